"""The command `verigrad`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from grpo import __version__
from sandbox.errors import SandboxError
from verifiers.errors import UserError

_COMMANDS = ("train", "eval", "verify", "sandbox")
_MODULES = {"eval": "evaluate"}
_DESCRIPTION = (
    "Train reasoning models on verified rewards, evaluate them, and try verifiers and the sandbox."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 on success, 1 on failure, 2 when what the user gave is wrong, 130 after Ctrl-C.
    """
    parser = make_parser()
    args = parser.parse_args(arguments)
    try:
        return args.run(args)
    except (UserError, SandboxError) as error:
        if args.debug:
            raise
        print(f"verigrad: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if args.debug:
            raise
        print("verigrad: stopped", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="verigrad", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"verigrad {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in _COMMANDS:
        importlib.import_module(f"grpo.commands.{_MODULES.get(name, name)}").add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
