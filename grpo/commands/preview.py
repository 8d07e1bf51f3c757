"""`verigrad data preview`: the exact text and token ids that a model gets to see."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from grpo.commands.options import is_config
from grpo.config import load_config
from grpo.config.data import DataConfig
from grpo.config.recipes import recipe_names
from grpo.config.schema import RunConfig
from grpo.data.problems import load_problems
from grpo.data.prompts import PromptEncoder
from grpo.inputs import load_problem_sets
from grpo.paths import find_model
from verifiers.errors import UserError
from verifiers.problem import Problem

_DESCRIPTION = """\
Show what a model gets to see of the first rows: the rendered text, to the last character, and its
token ids, with the reference, the verifier, and the tokens that end a completion.
"""
_EXAMPLES = """\
examples:
  verigrad data preview configs/quickstart.yaml --rows 2
  verigrad data preview gsm8k path=rows.jsonl --model embedded:quickstart
  verigrad data preview rows.jsonl --model embedded:quickstart --json
"""
_SHOWN_CHARS = 400


def add_preview(actions: Any) -> None:
    """Add `preview` to the actions of `verigrad data`."""
    parser = actions.add_parser(
        "preview",
        help="show prompts as the model gets them",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", help="a configuration (.yaml), a recipe, a data file or a hub id")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="options of the configuration or the set"
    )
    parser.add_argument("--model", help="whose tokenizer; by default the configuration's")
    parser.add_argument("--rows", type=int, default=3, metavar="N", help="of each set (default: 3)")
    parser.add_argument("--json", action="store_true", help="one object a line, for each row")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UserError: The input, the model or an option is wrong.
    """
    if args.rows < 1:
        raise UserError(f"--rows takes a number of at least 1, not {args.rows}")
    sets, encoder = _load(args)
    if encoder is not None and not args.json:
        print(f"completions end at token {' or '.join(map(str, encoder.stop_token_ids))}")
    for name, problems in sets.items():
        for problem in problems[: args.rows]:
            shown = _describe(name, problem, encoder)
            if args.json:
                print(json.dumps(shown, ensure_ascii=False, default=str))
            else:
                _print_row(shown)
    return 0


def _load(
    args: argparse.Namespace,
) -> tuple[Mapping[str, Sequence[Problem]], PromptEncoder | None]:
    from grpo.preparation import make_encoder

    if is_config(args.input):
        overrides = [f"model={args.model}"] if args.model else []
        config, _ = load_config(args.input, [*overrides, *args.overrides])
        train_sets, eval_sets = load_problem_sets(config)
        return {**train_sets, **eval_sets}, make_encoder(config, find_model(config.model))
    data = make_data(args.input, args.overrides)
    encoder = None
    if args.model:
        encoder = make_encoder(RunConfig(model=args.model, data=(data,)), find_model(args.model))
    return {data.label: load_problems(data)}, encoder


def make_data(name: str, overrides: Sequence[str]) -> DataConfig:
    """The set that a recipe's name, a file or a hub id stands for.

    Raises:
        UserError: An option is not of the form key=value, or there is no such option.
    """
    options: dict[str, Any] = {"recipe" if name in recipe_names() else "path": name}
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or key not in DataConfig.model_fields:
            known = ", ".join(DataConfig.model_fields)
            raise UserError(f"{text!r} sets no option of a data set; they are {known}.")
        options[key] = yaml.safe_load(value)
    if "recipe" not in options:
        options.setdefault("verifier", "math")
    try:
        return DataConfig.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"Option {where or name} of the set: {first['msg']}.") from None


def _describe(name: str, problem: Problem, encoder: PromptEncoder | None) -> dict[str, Any]:
    return {
        "set": name,
        "id": problem.id,
        "source": problem.source,
        "verifier": problem.verifier,
        "reference": problem.reference,
        "prompt": problem.prompt,
        "text": encoder.render(problem) if encoder else None,
        "token_ids": list(encoder.encode(problem)) if encoder else None,
    }


def _print_row(shown: Mapping[str, Any]) -> None:
    reference = str(shown["reference"])
    cut = reference if len(reference) <= _SHOWN_CHARS else f"{reference[:_SHOWN_CHARS]}..."
    print(f"--- {shown['set']}: {shown['source']}, judged by {shown['verifier']}: {cut}")
    if shown["text"] is None:
        print(shown["prompt"])
        return
    print(shown["text"])
    print(f"--- {len(shown['token_ids'])} tokens: {' '.join(map(str, shown['token_ids']))}")
