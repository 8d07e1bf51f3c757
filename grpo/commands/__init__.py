"""The subcommands of `verigrad`: each reads its arguments, does its job and prints the report."""
