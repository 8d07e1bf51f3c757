"""The verifiers of form: `regex`, `json_schema`, `format` and `length`."""

from __future__ import annotations

import json
import time

import pytest

from verifiers.errors import BadReference
from verifiers.json_text import MAX_DEPTH, NotJson, TooDeep, find_json, read_json
from verifiers.length import LengthVerifier, compute_band_score
from verifiers.problem import Problem, Submission
from verifiers.registry import build_verifier
from verifiers.verdict import Reason, Status

TREE = {
    "type": "object",
    "properties": {"next": {"$ref": "#"}, "tag": {"type": "string", "pattern": "^(a+)+$"}},
    "additionalProperties": False,
}
POINT = {
    "$defs": {"n": {"type": "integer", "minimum": 0}},
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/n"}, "y": {"$ref": "#/$defs/n"}},
    "required": ["x", "y"],
}


@pytest.fixture(scope="module")
def judge_once():
    """The verdict of a verifier that is built once; its worker processes stay warm."""
    built = {}

    def judge(spec, reference, completion, **options):
        if spec not in built:
            built[spec] = build_verifier(spec, options)
        problem = Problem(id="p", prompt="", verifier=spec, reference=reference, source="rows:1")
        built[spec].prepare(problem)
        return built[spec].verify(Submission(problem=problem, completion=completion))

    yield judge
    for verifier in built.values():
        verifier.close()


@pytest.mark.parametrize(
    ("pattern", "answer", "right"),
    [
        (r"\d{3}", "123", True),
        (r"\d{3}", "1234", False),
        (r"\d{3}", "123\n4", False),
        (r"(?i)yes|no", "YES", True),
        (r"yes|no", "yes or no", False),
        (r"a.c", "a\nc", False),
        (r"(?s)a.c", "a\nc", True),
        (r"^.*$", "anything", True),
    ],
)
def test_a_pattern_matches_all_of_the_answer(judge_once, pattern, answer, right):
    verdict = judge_once("regex", pattern, answer, extraction="whole")
    assert (verdict.status is Status.CORRECT) == right, verdict


def test_one_pattern_for_all_rows(judge_with):
    verdict = judge_with("regex", None, "\\boxed{12}", pattern=r"[0-9]+")
    assert verdict.reason is Reason.ACCEPTED


def test_catastrophic_backtracking_is_the_completions_limit_and_costs_no_more(judge_with):
    started = time.perf_counter()
    verdict = judge_with("regex", r"(a+)+b", "\\boxed{" + "a" * 60 + "}", cpu_limit_s=0.3)
    assert (verdict.status, verdict.reason, verdict.score) == (Status.LIMIT, Reason.DEADLINE, 0.0)
    assert time.perf_counter() - started < 10
    assert judge_with("regex", r"(a+)+b", "\\boxed{aab}").status is Status.CORRECT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"x": 1, "y": 2}', Reason.ACCEPTED),
        ('Here:\n```json\n{"x": 1, "y": 2}\n```\nDone.', Reason.ACCEPTED),
        ('```\n{"x": 1, "y": 2}\n```', Reason.ACCEPTED),
        ('```python\nx = 1\n```\n```json\n{"x": 1, "y": 2}\n```', Reason.ACCEPTED),
        ('```json\n{"x": 1, "y": 2}\n```\n```json\n{"x": 1, "y": 3}\n```', Reason.MULTIPLE_ANSWERS),
        ('Sure! {"x": 1, "y": 2}', Reason.UNPARSED),
        ('{"x": 1, "y": 2} and more', Reason.UNPARSED),
        ('{"x": 1, "y": 2, "y": 3}', Reason.UNPARSED),
        ('{"x": NaN, "y": 2}', Reason.UNPARSED),
        ('{"x": Infinity, "y": 2}', Reason.UNPARSED),
        ('{"x": 1e999, "y": 2}', Reason.UNPARSED),
        ("{'x': 1, 'y': 2}", Reason.UNPARSED),
        ('{"x": 1, "y": 2,}', Reason.UNPARSED),
        (f'{{"x": {"9" * 5000}, "y": 2}}', Reason.UNPARSED),
        ('```json\n{"x": 1, "y": 2}', Reason.UNPARSED),
        ('{"x": 1}', Reason.REJECTED),
        ('{"x": 1, "y": -2}', Reason.REJECTED),
        ('{"x": true, "y": 2}', Reason.REJECTED),
        ("[" * 100_000, Reason.TOO_LONG),
        ("[" * 500 + "]" * 500, Reason.TOO_LONG),
        ('<think>{"x": 1, "y": 2}', Reason.UNFINISHED_REASONING),
        ('<think>{"x": 1, "y": 2}</think>', Reason.EMPTY_ANSWER),
    ],
)
def test_json_is_strict_and_follows_its_schema(judge_once, answer, reason):
    assert judge_once("json_schema", POINT, answer).reason == reason


def test_a_schema_may_be_text_or_one_for_all_rows(judge_with):
    answer = '{"x": 1, "y": 2}'
    assert judge_with("json_schema", json.dumps(POINT), answer).status is Status.CORRECT
    assert judge_with("json_schema", None, answer, schema=POINT).status is Status.CORRECT
    assert judge_with("json_schema", {"const": [1, "a"]}, '[1, "a"]').status is Status.CORRECT


def test_a_schema_that_leads_to_itself_is_followed_to_the_deepest_answer(judge_once):
    deepest = '{"next": ' * (MAX_DEPTH - 1) + "{}" + "}" * (MAX_DEPTH - 1)
    assert judge_once("json_schema", TREE, deepest).status is Status.CORRECT


def test_a_pattern_within_a_schema_cannot_hang(judge_with):
    answer = json.dumps({"tag": "a" * 60 + "b"})
    verdict = judge_with("json_schema", TREE, answer, cpu_limit_s=0.3)
    assert (verdict.status, verdict.reason) == (Status.LIMIT, Reason.DEADLINE)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "at least one keyword"),
        ("not json", "usable JSON schema"),
        (True, "no JSON object"),
        ({"type": "whatever"}, "whatever"),
        ({"pattern": "(a"}, "regex"),
        ({"$ref": "https://example.com/schema.json"}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, "nothing is fetched"),
        ({"$ref": "#"}, "without end"),
        ({"$schema": "https://example.com/draft-99", "type": "object"}, "no known draft"),
        ({"const": {1, 2}}, "set"),
    ],
)
def test_a_schema_that_cannot_be_used_is_found_before_training(judge_with, schema, why):
    with pytest.raises(BadReference, match=rf"(?s)rows:1.*{why}"):
        judge_with("json_schema", schema, "{}")


def test_a_property_named_like_a_reference_is_none(judge_once):
    schema = {"properties": {"$ref": {"type": "string"}}, "enum": [{"$ref": "http://x"}]}
    assert judge_once("json_schema", schema, '{"$ref": "http://x"}').status is Status.CORRECT


def test_json_text_is_read_once_whatever_it_holds():
    started = time.process_time()
    for text in ('"' + '\\"' * 200_000, "[]" * 200_000, "```json " + "a" * 200_000 + "`"):
        assert find_json(text) == text
        with pytest.raises(NotJson):
            read_json(text)
    assert time.process_time() - started < 2
    with pytest.raises(TooDeep):
        read_json('{"a":' * (MAX_DEPTH + 1))
    assert read_json(json.dumps("[" * 1000)) == "[" * 1000


@pytest.mark.parametrize(
    ("completion", "missing"),
    [
        ("<think>2+2</think><answer>4</answer>", []),
        ("\n<think>\n2+2\n</think>\n<answer>4</answer>\n", []),
        ("<think>2+2</think><answer>4</answer>.", []),
        ("<think> </think><answer>4</answer>", ["think"]),
        ("<answer>4</answer>", ["think", "order"]),
        ("<think>a</think><think>b</think><answer>4</answer>", ["think"]),
        ("<think>a<think>b</think><answer>4</answer>", ["think"]),
        ("So <think>a</think><answer>4</answer>", ["order"]),
        ("<think>a</think> so <answer>4</answer>", ["order"]),
        ("<answer>4</answer><think>a</think>", ["answer", "order", "end"]),
        ("<think>a</think><answer>4</answer> I hope it is right", ["end"]),
        ("<think>a</think><answer>4</answer><answer>5</answer>", ["answer", "order", "end"]),
        ("<think>a</think><answer> </answer>", ["answer"]),
        ("<think>a</think><answer>...</answer>", ["answer"]),
        ("<think>a</think>4", ["answer", "order", "end"]),
        ("<think>a <answer>4</answer>", ["think", "order"]),
        ("", ["think", "answer", "order", "end"]),
    ],
)
def test_the_form_is_anchored_and_its_parts_are_told_apart(judge_with, completion, missing):
    verdict = judge_with("format", None, completion)
    assert [name for name, value in verdict.components.items() if value == 0] == missing
    assert verdict.score == float(not missing)


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        (r"<think>a</think>The sum is $\boxed{4}$.", True),
        (r"<think>a \boxed{3}</think>So \[\boxed{4}\]", True),
        (r"<think>a</think>\boxed{3} or \boxed{4}", False),
        (r"<think>a</think>\boxed{4} and done", False),
        (r"<think>a</think>\boxed{}", False),
        (r"<think>a</think>\boxed{4", False),
        (r"<think>a</think>4", False),
    ],
)
def test_one_box_at_the_end(judge_with, completion, right):
    verdict = judge_with("format", None, completion, answer="box")
    assert (verdict.status is Status.CORRECT) == right, verdict


def test_forms_without_reasoning_or_with_a_prompt_that_opens_it(judge_with):
    assert judge_with("format", None, "a</think><answer>4</answer>", think_in_prompt=True).score
    twice = "<think>a</think><answer>4</answer>"
    assert not judge_with("format", None, twice, think_in_prompt=True).score
    assert judge_with("format", None, "<answer>4</answer>", think=False).score
    assert not judge_with("format", None, twice, think=False).score
    assert judge_with("format", None, "It is 4.", think=False, answer="text").score
    assert not judge_with("format", None, "<answer>4", think=False, answer="text").score


def test_block_spam_gains_nothing_and_costs_little(judge_with):
    for spam in ("<think>" * 50_000, "<answer>" * 50_000, "\\boxed{" * 50_000):
        verdict = judge_with("format", None, spam, answer="box")
        assert verdict.score == 0.0
        assert verdict.seconds < 1


def test_a_band_with_slopes_never_leaves_0_to_1():
    scores = [compute_band_score(length, 10, 20, 5) for length in range(1000)]
    assert scores[10:21] == [1.0] * 11
    assert (scores[5], scores[8], scores[21], scores[25]) == (0.0, 0.6, 0.8, 0.0)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert sorted(scores[20:], reverse=True) == scores[20:]


@pytest.mark.parametrize(
    ("completion", "options", "score", "length"),
    [
        ("one two three", {"minimum": 3}, 1.0, 3),
        ("one two", {"minimum": 3}, 0.0, 2),
        ("one two", {"minimum": 3, "slope": 2}, 0.5, 2),
        ("", {"maximum": 3}, 1.0, 0),
        ("äöü", {"maximum": 3, "unit": "characters"}, 1.0, 3),
        ("<think>a b c d</think>e f", {"maximum": 2, "scope": "reply"}, 1.0, 2),
        ("word " * 100_000, {"maximum": 10, "slope": 10}, 0.0, 100_000),
    ],
)
def test_length(judge_with, completion, options, score, length):
    verdict = judge_with("length", None, completion, **options)
    assert (verdict.score, verdict.components["length"]) == (score, length)
    assert (verdict.status is Status.CORRECT) == (score == 1.0)


def test_an_open_block_has_no_reply_to_measure(judge_with):
    verdict = judge_with("length", None, "<think>a", maximum=2, scope="reply")
    assert verdict.reason is Reason.UNFINISHED_REASONING


def test_tokens_are_counted_by_the_models_own_tokenizer(judge_with, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    options = {"unit": "tokens", "tokenizer": str(tmp_path), "maximum": 3}

    assert judge_with("length", None, "abc", **options).components["length"] == 3
    assert judge_with("length", None, "abca", **options).status is Status.INCORRECT
    assert judge_with("length", None, "a\ud800", **options).components["length"] == 2
    assert LengthVerifier(**options).examples() == []


@pytest.mark.parametrize(
    "spec", ["regex", "json_schema", "format", "countdown", "ifeval", "length"]
)
def test_a_truncated_completion_is_no_answer(judge_with, spec):
    references = {
        "regex": ".*",
        "json_schema": {"type": "integer"},
        "countdown": {"numbers": [24], "target": 24},
        "ifeval": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    }
    options: dict[str, object] = {"minimum": 0, "maximum": 9} if spec == "length" else {}
    completion = "<think>a</think><answer>24</answer>" if spec == "format" else "24"
    if spec in ("regex", "countdown"):
        options["extraction"] = "whole"
    verdicts = [
        judge_with(
            spec,
            references.get(spec),
            completion,
            truncated=True,
            allow_truncated=allowed,
            **options,
        )
        for allowed in (False, True)
    ]
    assert verdicts[0].reason is Reason.TRUNCATED
    assert verdicts[1].status is Status.CORRECT
