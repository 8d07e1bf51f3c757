"""The command `verigrad`."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Collection, Sequence

from grpo import __version__
from grpo.errors import RunFailed
from sandbox.errors import SandboxUnavailable
from verifiers.errors import UserError

_COMMANDS = ("train", "eval", "compare", "export", "replay", "verify", "data", "sandbox", "view")
_MODULES = {"eval": "evaluate"}
_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")
_DESCRIPTION = (
    "Train reasoning models on verified rewards, evaluate them, replay updates, look at runs, "
    "check data, and try verifiers and the sandbox."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 on success, 1 on failure, 2 when what the user gave is wrong, 130 after Ctrl-C.
    """
    args = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        return args.run(args)
    except (UserError, SandboxUnavailable, RunFailed) as error:
        if args.debug:
            raise
        print(f"verigrad: {error}", file=sys.stderr)
        return 1 if isinstance(error, RunFailed) else 2
    except KeyboardInterrupt:
        if args.debug:
            raise
        print("verigrad: stopped", file=sys.stderr)
        return 130


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, with a configuration's overrides wherever they stand in it.

    An override is `key=value`, `--key=value` or `--key value`. argparse would take the first form
    only, and only right after the configuration's name.
    """
    parser = make_parser()
    if not set(arguments) & {"train", "eval"}:
        return parser.parse_args(arguments)
    rest, overrides = _split_overrides(arguments, own=_option_strings(parser))
    args = parser.parse_args(rest)
    args.overrides = overrides
    return args


def _split_overrides(arguments: Sequence[str], own: Collection[str]) -> tuple[list[str], list[str]]:
    rest: list[str] = []
    overrides: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        key = word.partition("=")[0]
        if key in own or not (_OVERRIDE.match(word) or word.startswith("--")):
            rest.append(word)
        elif "=" in word or not waiting or waiting[0].startswith("--"):
            overrides.append(word)
        else:
            overrides.append(f"{word}={waiting.pop(0)}")
    return rest, overrides


def _option_strings(parser: argparse.ArgumentParser) -> set[str]:
    """Every option of the parser and of its subparsers."""
    found: set[str] = set()
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                found |= _option_strings(inner)
    return found


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="verigrad", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"verigrad {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in _COMMANDS:
        importlib.import_module(f"grpo.commands.{_MODULES.get(name, name)}").add_parser(subparsers)
    return parser
