"""The verifier of JSON answers: strict JSON that a schema describes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.json_text import NotJson, TooDeep, find_json, read_json
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Status, Verdict
from verifiers.workers import WorkerPool, WorkerSettings

MAX_ANSWER_CHARS = 100_000
MAX_DETAIL_CHARS = 300
# About a dozen frames for each of the levels that `json_text` lets pass, several times over.
RECURSION_LIMIT = 4000


class JsonSchemaVerifier(Verifier):
    """Judges a JSON answer by a JSON schema (drafts 3 to 2020-12).

    The JSON is the one fenced block of what `extraction` finds, or all of it. Repeated keys, NaN
    and infinities are not JSON. References of the schema lead into the schema itself: nothing is
    ever fetched. A wanted value is written as `{"const": value}`.

    Args:
        schema: The schema of every row; by default each row's reference is its schema (an object,
            or its JSON text).
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        allow_truncated: Judge a completion that was cut off at the length limit.
        cpu_limit_s: CPU seconds for one answer; beyond it the completion gets `LIMIT`.
        concurrency: Answers judged at the same time in one verifier worker.
        poison_file: JSONL file to which answers that cost a worker process are appended.

    Raises:
        UserError: The schema is none, or there is no such extraction policy.
    """

    name = "json_schema"
    version = 1

    def __init__(
        self,
        *,
        schema: Mapping[str, Any] | str | None = None,
        extraction: Policy = "whole",
        allow_truncated: bool = False,
        cpu_limit_s: float = 2.0,
        concurrency: int = 1,
        poison_file: str | None = None,
    ) -> None:
        self._schema = schema
        if schema is not None:
            try:
                compile_schema(_schema_text(schema))
            except ValueError as error:
                raise UserError(
                    f"option 'schema' of the verifier `json_schema`: {error}"
                ) from error
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)
        settings = WorkerSettings(
            target="verifiers.json_schema:validate",
            preload=("verifiers.json_schema",),
            cpu_limit_s=cpu_limit_s,
        )
        self.concurrency = concurrency
        self._pool = WorkerPool(settings, size=concurrency, poison_file=poison_file)

    def prepare(self, problem: Problem) -> None:
        """Check that the row has a schema that can be used.

        Raises:
            BadReference: It has not.
        """
        try:
            compile_schema(self._find_schema(problem))
        except ValueError as error:
            raise BadReference(
                f"{problem.source}: the reference is no usable JSON schema: {error}"
            ) from error

    def verify(self, submission: Submission) -> Verdict:
        """Judge one completion."""
        return self._reader.judge(submission, self.label, self._rule)

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer; none where one schema of the user's counts for all rows."""
        if self._schema is not None:
            return []
        schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
        return self._reader.make_examples(self.name, schema, right='{"n": 7}', wrong='{"n": "7"}')

    def _find_schema(self, problem: Problem) -> str:
        return _schema_text(problem.reference if self._schema is None else self._schema)

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        found = find_json(answer)
        if isinstance(found, Reason):
            return Ruling.no_answer(found)
        return replace(self._judge(problem, found), extracted=found)

    def _judge(self, problem: Problem, answer: str) -> Ruling:
        try:
            schema = self._find_schema(problem)
            compile_schema(schema)
        except ValueError as error:
            return Ruling.bad_gold(str(error))
        if len(answer) > MAX_ANSWER_CHARS:
            return Ruling.too_long()
        outcome = self._pool.run(schema, answer)
        return outcome.value if outcome.failure is None else Ruling.failed(outcome)


def validate(schema: str, answer: str) -> Ruling:
    """Run in a worker: read the answer and compare it with the schema."""
    sys.setrecursionlimit(RECURSION_LIMIT)
    try:
        value = read_json(answer)
    except TooDeep as error:
        return Ruling(status=Status.LIMIT, reason=Reason.TOO_LONG, detail=str(error))
    except NotJson as error:
        return Ruling.wrong(Reason.UNPARSED, str(error)[:MAX_DETAIL_CHARS])
    for error in compile_schema(schema).iter_errors(value):
        return Ruling.wrong(
            Reason.REJECTED, f"{error.json_path}: {error.message}"[:MAX_DETAIL_CHARS]
        )
    return Ruling.right(Reason.ACCEPTED)


@functools.lru_cache(maxsize=1024)
def compile_schema(text: str) -> Validator:
    """A validator for a schema.

    Raises:
        ValueError: The text is no schema, says nothing, names an unknown draft, or refers to
            something outside of itself or to itself without end.
    """
    schema = read_json(text)
    if not isinstance(schema, dict) or not schema:
        raise ValueError("it is no JSON object with at least one keyword")
    unknown: Any = None
    validator_class: Any = Draft202012Validator
    if "$schema" in schema:
        validator_class = validator_for(schema, default=unknown)
    if validator_class is None:
        raise ValueError(f"its $schema {schema['$schema']!r} is no known draft")
    try:
        validator_class.check_schema(schema, format_checker=FormatChecker(["regex"]))
    except SchemaError as error:
        raise ValueError(f"{error.json_path}: {error.message}"[:MAX_DETAIL_CHARS]) from error
    _check_references(schema)
    validator = validator_class(schema, registry=EMPTY_REGISTRY)
    try:
        validator.is_valid(None)
    except RecursionError:
        raise ValueError("it refers to itself without end") from None
    return validator


def _check_references(schema: Mapping[str, Any]) -> None:
    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    pending = [(root, EMPTY_REGISTRY.resolver_with_root(root))]
    while pending:
        resource, resolver = pending.pop()
        contents = resource.contents
        for keyword in ("$ref", "$dynamicRef"):
            if not isinstance(contents, dict) or not isinstance(contents.get(keyword), str):
                continue
            try:
                resolver.lookup(contents[keyword])
            except Unresolvable as error:
                raise ValueError(
                    f"{keyword} {contents[keyword]!r} is not in the schema, and nothing is fetched"
                ) from error
        pending += [(sub, resolver.in_subresource(sub)) for sub in resource.subresources()]


def _schema_text(reference: object) -> str:
    """The schema as JSON text.

    Raises:
        ValueError: It is neither text nor made of JSON values.
    """
    if isinstance(reference, str):
        return reference
    try:
        return json.dumps(reference, allow_nan=False)
    except TypeError as error:
        raise ValueError(str(error)) from error
