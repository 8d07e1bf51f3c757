"""`verigrad view`: a run's curves and completions in the browser."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import Any

_DESCRIPTION = """\
Show runs in the browser: curves of every metric, warnings, and the completions of any step, group
by group, each with its verdict and the reason. Reads the runs' folders, also of a run that goes
on; sends nothing anywhere, and answers to this machine only. Ctrl-C ends it.
"""
_EXAMPLES = """\
examples:
  verigrad view runs/quickstart
  verigrad view runs/quickstart runs/quickstart-2 --port 0
  ssh -L 7337:localhost:7337 MACHINE verigrad view runs/quickstart --no-browser
"""
_DEFAULT_PORT = 7337


def add_parser(subparsers: Any) -> None:
    """Add `view` to the command line."""
    parser = subparsers.add_parser(
        "view",
        help="show runs in the browser",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder")
    parser.add_argument("--port", type=int, default=_DEFAULT_PORT, help="0 takes a free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command until Ctrl-C."""
    from grpo.viewer.reading import RunReader
    from grpo.viewer.server import Viewer

    with Viewer([RunReader(Path(folder)) for folder in args.runs], args.port) as viewer:
        print(f"{viewer.url} (Ctrl-C ends it)", flush=True)
        if not args.no_browser:
            webbrowser.open(viewer.url)
        try:
            viewer.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
