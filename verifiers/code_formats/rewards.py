"""Rows of reinforcement-learning sets: verl's reward model, DeepCoder, PrimeIntellect."""

from __future__ import annotations

from typing import Any

from verifiers.code_block import last_code_block
from verifiers.code_formats.cases import find_entry_point, make_reference, read_tests
from verifiers.code_formats.prompts import ask
from verifiers.code_formats.row import CodeFormat, CodeRow, Fields


def _read_verl(fields: Fields) -> CodeRow:
    prompt: Any = fields.value("prompt")
    extra = fields.object("extra_info") if fields.row.get("extra_info") else None
    split = extra.identity("split") if extra else None
    index = extra.identity("index", "id") if extra else None
    return CodeRow(
        id="-".join(filter(None, (split, index))) or None,
        prompt=prompt,  # complete, as verl hands it to the model
        reference=make_reference(read_tests(fields.object("reward_model"), "ground_truth")),
        solution=extra.optional_text("solution") if extra else None,
    )


def _read_deepcoder(fields: Fields) -> CodeRow:
    function = (
        fields.object("metadata").optional_text("func_name") if fields.row.get("metadata") else None
    )
    tests = read_tests(fields, "tests", function)
    solutions = fields.texts("solutions") if fields.row.get("solutions") else []
    return CodeRow(
        id=fields.identity("problem_id", "id"),
        prompt=ask(
            fields.text("problem"),
            entry_point=find_entry_point(tests),
            starter_code=fields.optional_text("starter_code"),
        ),
        reference=make_reference(tests),
        solution=solutions[0] if solutions else None,
    )


def _read_prime_intellect(fields: Fields) -> CodeRow:
    info = fields.object("verification_info")
    language = info.optional_text("language")
    if language not in (None, "python"):
        raise info.error("language", f"is {language!r}, and only python can be run")
    solution = fields.optional_text("gold_standard_solution")
    return CodeRow(
        id=fields.identity("problem_id", "id"),
        prompt=fields.text("prompt"),  # complete: it says what the program must read and print
        reference=make_reference(read_tests(info, "test_cases")),
        solution=solution and (last_code_block(solution) or solution),
    )


VERL = CodeFormat(
    name="verl",
    columns=("reward_model", "prompt"),
    bulky=("reward_model",),
    read=_read_verl,
)
DEEPCODER = CodeFormat(
    name="deepcoder",
    columns=("problem", "tests"),
    bulky=("tests", "solutions"),
    read=_read_deepcoder,
)
PRIME_INTELLECT = CodeFormat(
    name="primeintellect",
    columns=("prompt", "verification_info"),
    bulky=("verification_info", "gold_standard_solution"),
    read=_read_prime_intellect,
)
