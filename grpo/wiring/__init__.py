"""Builds the real parts of a run from its configuration; nothing else does."""
