"""The verifier `ifeval`: every instruction that it knows, followed and not followed."""

from __future__ import annotations

import re
import time

import pytest

from verifiers.errors import BadReference
from verifiers.instructions import INSTRUCTIONS
from verifiers.verdict import Reason, Status

THREE = {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "Second"}

# Instruction, its arguments, a reply that follows it, replies that do not.
CASES = [
    ("keywords:existence", {"keywords": ["C++", "fast"]}, "Fast c++ code", ["C is fast", "c++"]),
    ("keywords:frequency", {"keyword": "a.b", "frequency": 2, "relation": "at least"},
     "a.b and A.B", ["a.b axb", "a.b"]),
    ("keywords:frequency", {"keyword": "no", "frequency": 2, "relation": "less than"},
     "yes no", ["no no"]),
    ("keywords:forbidden_words", {"forbidden_words": ["bad", "c++"]},
     "badly put c", ["A BAD idea", "c++!"]),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"},
     "Quick q", ["quick"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"},
     "one two three", ["one two", "- - -"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"},
     "one two", ["one two three"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2},
     "one\n***\ntwo", ["one", "one\n***\ntwo\n***\nthree", "one\n***\n\n***\ntwo"]),
    ("length_constraints:nth_paragraph_first_word", THREE,
     'First.\n\n"Second", third.\n\nLast.', ["First.\n\nThen.\n\nLast.", "a\n\nsecond b"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 2},
     "[name] at [home address]", ["[name]", "[] [ ]"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"},
     "Hi.\n\nP. P. S. more", ["Hi", "Use P.P.S sparingly"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2},
     "* a\n- b\n**c**", ["* a", "* a\n* b\n* c", "---\n***"]),
    ("detectable_format:constrained_response", {},
     "My answer is no.", ["No.", "My answer is yes. My answer is no."]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2},
     "*one* and **two**", ["*one*", "* one\n* two", "** ** * *"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     "Section 1\na\nSection 2\nb", ["Section 1\na", "Section 1 Section 1", "Subsection 1 Section"]),
    ("detectable_format:json_format", {},
     '```json\n{"a": 1}\n```', ["{'a': 1}", "Sure:\n```json\n{}\n```", '{"a": 1, "a": 2}']),
    ("detectable_format:title", {}, "<<Poem>>\nRoses", ["<Poem>", "<< >>", "<<a\nb>>"]),
    ("combination:two_responses", {},
     "One.\n******\nTwo.", ["One.", "One.\n******\nOne.", "One.\n******\n"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi. "}, "SAY HI. Hi!", ["Hi!"]),
    ("startend:end_checker", {"end_phrase": "Any questions?"},
     'So it is. any questions?"', ["Any questions? No.", "So."]),
    ("startend:quotation", {}, '"All of it"', ['"Some" of it', '""']),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     "THIS is IT", ["THIS is it"]),
    ("change_case:english_capital", {}, "ALL OF IT, 2!", ["All of it", "123"]),
    ("change_case:english_lowercase", {}, "all of it, 2!", ["All of it"]),
    ("punctuation:no_comma", {}, "one; two", ["one, two"]),
]  # fmt: skip


def reference(instruction, arguments):
    return {"instruction_id_list": [instruction], "kwargs": [arguments]}


def test_every_instruction_has_a_case():
    assert {case[0] for case in CASES} == set(INSTRUCTIONS)


@pytest.mark.parametrize(
    ("instruction", "arguments", "followed", "broken"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_an_instruction(judge_with, instruction, arguments, followed, broken):
    gold = reference(instruction, arguments)
    assert judge_with("ifeval", gold, followed).reason is Reason.ACCEPTED
    assert judge_with("ifeval", gold, f"<think>a, B</think>{followed}").score == 1.0
    for reply in broken:
        verdict = judge_with("ifeval", gold, reply)
        assert (verdict.reason, verdict.score) == (Reason.REJECTED, 0.0), reply
        assert instruction in (verdict.detail or "")


def test_all_must_be_followed_and_parts_count_only_when_asked_for(judge_with):
    gold = {
        "instruction_id_list": ["punctuation:no_comma", "detectable_format:title"],
        "kwargs": [{"num_words": None, "relation": None}, None],
    }
    strict = judge_with("ifeval", gold, "no title")
    partial = judge_with("ifeval", gold, "no title", partial=True)
    assert (strict.score, partial.score) == (0.0, 0.5)
    assert partial.status is Status.INCORRECT
    assert strict.components == {"1.punctuation:no_comma": 1.0, "2.detectable_format:title": 0.0}


def test_a_row_of_the_published_data_set_is_read_as_it_is(judge_with):
    columns = {"key": 1001, "kwargs": [{"num_words": 2, "relation": "at least", "letter": None}]}
    ids = ["length_constraints:number_words"]
    assert judge_with("ifeval", ids, "two words", columns=columns).status is Status.CORRECT


@pytest.mark.parametrize("completion", ["", " \n", "<think>so</think>", "<think>so"])
def test_no_reply_follows_nothing(judge_with, completion):
    gold = reference("punctuation:no_comma", {})
    assert judge_with("ifeval", gold, completion).status is Status.NO_ANSWER


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        (reference("language:response_language", {"language": "de"}), "known are change_case"),
        (reference("keywords:existence", {}), "'keywords' is missing"),
        (reference("keywords:existence", {"keywords": "one"}), "cannot be 'one'"),
        (reference("keywords:existence", {"keywords": ["a"], "relation": "x"}), "no argument"),
        (reference("length_constraints:number_words", {"num_words": 3, "relation": "about"}),
         "cannot be 'about'"),
        ({"instruction_id_list": ["punctuation:no_comma"]}, "kwargs is no list of 1"),
        ({"instruction_id_list": [], "kwargs": []}, "at least one instruction"),
        ("[", "no JSON"),
        (None, "at least one instruction"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_checked_is_found_before_training(judge_with, gold, why):
    with pytest.raises(BadReference, match=f"rows:1.*{re.escape(why)}"):
        judge_with("ifeval", gold, "x")


@pytest.mark.parametrize("text", ["[", "*", "<<", "Section ", "p. ", "a\n\n", "***", '"', "- "])
def test_no_check_is_slow_on_any_text(judge_with, text):
    gold = {
        "instruction_id_list": [case[0] for case in CASES],
        "kwargs": [case[1] for case in CASES],
    }
    started = time.perf_counter()
    judge_with("ifeval", gold, text * 50_000)
    assert time.perf_counter() - started < 3
