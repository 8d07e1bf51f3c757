"""The mathematics of the update, as pure functions: no model, no process, no file."""
