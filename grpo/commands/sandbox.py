"""`verigrad sandbox`: build the image, check the machine, run a program, judge solutions."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from grpo.commands.sandbox_judge import add_action as add_judge_action
from sandbox.canary import run_canaries
from sandbox.docker_pool import check_engine, reap, start_worker
from sandbox.engine import Engine
from sandbox.image import DEFAULT_IMAGE, ensure_image
from sandbox.limits import Limits
from sandbox.options import Isolation, SandboxOptions
from sandbox.result import ExecResult, ExecStatus, Job
from verifiers.errors import UserError

_DESCRIPTION = """\
Where model-written code runs: Docker containers without network, files or rights.

See docs/sandbox.md for what is defended and what is not.
"""
_EXAMPLES = """\
examples:
  verigrad sandbox build
  verigrad sandbox check
  verigrad sandbox check --runtime runsc
  verigrad sandbox check --isolation namespace
  verigrad sandbox run solution.py --stdin "3 4"
  echo 41 | verigrad sandbox run solution.py --json
  verigrad sandbox judge humaneval --data HumanEval.jsonl.gz --solutions reference
"""
_STDIN = "-"


def add_parser(subparsers: Any) -> None:
    """Add `sandbox` with its actions to the command line."""
    parser = subparsers.add_parser(
        "sandbox",
        help="build, check and try the sandbox",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    build = actions.add_parser("build", help="make the image; returns at once when it is there")
    build.add_argument("--rebuild", action="store_true", help="make it anew")
    build.set_defaults(run=_build)
    check = actions.add_parser("check", help="prove that the limits hold on this machine")
    check.set_defaults(run=_check)
    execute = actions.add_parser("run", help="run a program once and show what came of it")
    execute.add_argument(
        "file", metavar="FILE", help=f"Python source; {_STDIN} reads it from stdin"
    )
    execute.add_argument("--stdin", metavar="TEXT", help="its input; by default this command's own")
    execute.add_argument("--cpu-s", type=float, default=4.0, help="CPU seconds (default: 4)")
    execute.add_argument("--memory-mb", type=int, default=256, help="memory (default: 256)")
    execute.set_defaults(run=_run)
    add_judge_action(actions)
    for action in (build, check, execute):
        action.add_argument("--image", default=DEFAULT_IMAGE, help=f"default: {DEFAULT_IMAGE}")
        action.add_argument("--json", action="store_true", help="print one JSON object")
    for action in (check, execute):
        action.add_argument("--runtime", help="container runtime, such as runsc (gVisor)")
        action.add_argument(
            "--isolation",
            choices=get_args(Isolation),
            default="uid",
            help="what keeps programs from each other (default: uid)",
        )


def run(args: argparse.Namespace) -> int:
    """Run the chosen action; 0 when all is well."""
    return args.run(args)


def _build(args: argparse.Namespace) -> int:
    start = time.monotonic()
    with closing(Engine()) as engine:
        state = ensure_image(engine, args.image, rebuild=args.rebuild, report=_progress)
    facts = {**asdict(state), "seconds": round(time.monotonic() - start, 2)}
    made = "is there" if state.origin == "present" else f"was made ({state.origin})"
    _show(
        args,
        facts,
        f"The sandbox image {state.image} {made}: {state.megabytes:.0f} MB, {facts['seconds']} s.",
    )
    return 0


def _check(args: argparse.Namespace) -> int:
    options = SandboxOptions(image=args.image, runtime=args.runtime, isolation=args.isolation)
    start = time.monotonic()
    with closing(Engine()) as engine:
        check_engine(engine, options)
        removed = reap(engine)
        with closing(start_worker(engine, options)) as worker:
            started_s = time.monotonic() - start
            reports = run_canaries(worker, options)
    lines = [f"A container of {options.image} was ready after {started_s:.2f} s."]
    lines += [f"  {one.name:<10} {one.problem or 'contained'}" for one in reports]
    if removed:
        lines.append(f"Removed {removed} containers that dead runs had left.")
    healthy = not any(one.problem for one in reports)
    lines.append("The sandbox is sound." if healthy else "The sandbox is NOT sound.")
    facts = {
        "healthy": healthy,
        "start_s": round(started_s, 3),
        "removed": removed,
        "canaries": [asdict(one) for one in reports],
    }
    _show(args, facts, "\n".join(lines))
    return 0 if healthy else 1


def _run(args: argparse.Namespace) -> int:
    program = _read_program(args.file)
    stdin = _read_input(args)
    try:
        limits = Limits(cpu_s=args.cpu_s, memory_mb=args.memory_mb)
    except ValueError as error:
        raise UserError(f"The program cannot be limited so: {error}.") from error
    options = SandboxOptions(
        image=args.image, runtime=args.runtime, isolation=args.isolation, limits=limits
    )
    with closing(Engine()) as engine:
        check_engine(engine, options)
        with closing(start_worker(engine, options)) as worker:
            (result,) = worker.run(Job(program=program, inputs=(stdin,), limits=limits))
    if args.json:
        print(json.dumps(_result_json(result)))
    else:
        sys.stdout.buffer.write(result.stdout)
        sys.stdout.flush()
        print(_summary(result), file=sys.stderr)
    return 0 if result.status is ExecStatus.OK else 1


def _read_program(file: str) -> str:
    if file == _STDIN:
        return sys.stdin.read()
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The program {file} cannot be read: {error}.") from error


def _read_input(args: argparse.Namespace) -> bytes:
    if args.stdin is not None:
        return args.stdin.encode("utf-8", "surrogateescape")
    if args.file == _STDIN or sys.stdin.isatty():
        return b""
    return sys.stdin.buffer.read()


def _result_json(result: ExecResult) -> dict[str, Any]:
    return {
        "status": str(result.status),
        "detail": result.detail,
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr,
        "exit_code": result.exit_code,
        "cpu_s": round(result.cpu_s, 4),
        "wall_s": round(result.wall_s, 4),
        "memory_mb": round(result.memory_mb, 1),
        "flags": sorted(map(str, result.flags)),
    }


def _summary(result: ExecResult) -> str:
    lines = [result.stderr.rstrip()] if result.stderr.strip() else []
    flags = "".join(f" {flag}" for flag in sorted(map(str, result.flags)))
    detail = f" ({result.detail})" if result.detail else ""
    lines.append(
        f"{result.status}{flags}{detail}: {result.cpu_s:.3f} s CPU, {result.wall_s:.3f} s wall, "
        f"{result.memory_mb:.0f} MB"
    )
    return "\n".join(lines)


def _progress(line: str) -> None:
    print(line, file=sys.stderr)


def _show(args: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts) if args.json else text)
