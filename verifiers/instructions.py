"""The checks behind `ifeval`: what each instruction asks of a reply, by its published id."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifiers.json_text import NotJson, find_json, read_json
from verifiers.verdict import Reason

CONSTRAINED_REPLIES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
PARAGRAPH_MARK = "***"
RESPONSE_MARK = "******"
_APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
_WORD = re.compile(r"\w+")
_CASED_WORD = re.compile(rf"[^\W\d_]+(?:[{_APOSTROPHES}-][^\W\d_]+)*+")
_BRACKETS = re.compile(r"\[([^\[\]\n]*+)\]")
_STARS = re.compile(r"\*\*([^*\n]++)\*\*|\*([^*\n]++)\*")
_ANGLES = re.compile(r"<<([^<>\n]++)>>")
_POSTSCRIPT_SPACE = re.compile(r"\s+")


def check_existence(reply: str, *, keywords: Sequence[str]) -> bool:
    """Every keyword stands in the reply, as literal text; case does not count."""
    low = reply.lower()
    return all(keyword.lower() in low for keyword in keywords)


def check_frequency(reply: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword stands there so often, counted without overlap."""
    return relate(reply.lower().count(keyword.lower()), frequency, relation)


def check_forbidden_words(reply: str, *, forbidden_words: Sequence[str]) -> bool:
    """None of the words stands in the reply as a word of its own."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", reply, re.IGNORECASE)
        for word in forbidden_words
    )


def check_letter_frequency(
    reply: str, *, letter: str, let_frequency: int, let_relation: str
) -> bool:
    """The letter stands there so often, in either case."""
    return relate(reply.lower().count(letter.lower()), let_frequency, let_relation)


def check_number_words(reply: str, *, num_words: int, relation: str) -> bool:
    """The reply has so many words: runs of letters, digits and underscores."""
    return relate(sum(1 for _ in _WORD.finditer(reply)), num_words, relation)


def check_number_paragraphs(reply: str, *, num_paragraphs: int) -> bool:
    """`***` divides the reply into exactly so many paragraphs, none of them empty inside."""
    paragraphs = [part.strip() for part in reply.split(PARAGRAPH_MARK)]
    if not paragraphs[0]:
        paragraphs = paragraphs[1:]
    if paragraphs and not paragraphs[-1]:
        paragraphs = paragraphs[:-1]
    return len(paragraphs) == num_paragraphs and all(paragraphs)


def check_nth_paragraph_first_word(
    reply: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Empty lines divide it into exactly so many paragraphs; the nth begins with the word."""
    paragraphs = [part.strip() for part in reply.split("\n\n") if part.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    word = paragraphs[nth_paragraph - 1].split()[0]
    return word.strip("\"'*_.,;:?!").lower() == first_word.lower()


def check_number_placeholders(reply: str, *, num_placeholders: int) -> bool:
    """At least so many placeholders such as `[address]`, empty ones not counted."""
    return sum(bool(text.strip()) for text in _BRACKETS.findall(reply)) >= num_placeholders


def check_postscript(reply: str, *, postscript_marker: str) -> bool:
    """A line begins with the marker (`P.S.`, `P.P.S`), whatever its case and spaces."""
    marker = _squeeze(postscript_marker)
    return any(_squeeze(line).lstrip("*_").startswith(marker) for line in reply.splitlines())


def check_number_bullet_lists(reply: str, *, num_bullets: int) -> bool:
    """Exactly so many lines begin with `* ` or `- `."""
    lines = (line.strip() for line in reply.splitlines())
    return sum(line.startswith(("* ", "- ")) for line in lines) == num_bullets


def check_constrained_response(reply: str) -> bool:
    """Exactly one of the three allowed sentences stands in the reply."""
    return sum(sentence in reply for sentence in CONSTRAINED_REPLIES) == 1


def check_number_highlighted_sections(reply: str, *, num_highlights: int) -> bool:
    """At least so many sections such as `*this*` or `**this**`."""
    sections = ("".join(pair) for pair in _STARS.findall(reply))
    return sum(bool(section.strip()) for section in sections) >= num_highlights


def check_multiple_sections(reply: str, *, section_spliter: str, num_sections: int) -> bool:
    """The section mark stands before at least so many different numbers, as in `Section 2`."""
    numbers = re.findall(rf"(?<!\w){re.escape(section_spliter)}\s?([0-9]{{1,9}})", reply)
    return len(set(map(int, numbers))) >= num_sections


def check_json_format(reply: str) -> bool:
    """The reply is one JSON value, bare or as the only content of one fenced block."""
    text = reply.strip()
    found = find_json(text)
    if isinstance(found, Reason) or (found != text and not _is_one_fence(text)):
        return False
    try:
        read_json(found)
    except NotJson:
        return False
    return True


def check_title(reply: str) -> bool:
    """A title stands in double angle brackets, as `<<this>>`."""
    return any(title.strip() for title in _ANGLES.findall(reply))


def check_two_responses(reply: str) -> bool:
    """`******` stands between two different responses."""
    parts = [part.strip() for part in reply.strip().split(RESPONSE_MARK)]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def check_repeat_prompt(reply: str, *, prompt_to_repeat: str) -> bool:
    """The reply begins with the prompt, whatever its case."""
    return reply.strip().lower().startswith(prompt_to_repeat.strip().lower())


def check_end(reply: str, *, end_phrase: str) -> bool:
    """Nothing but a quotation mark follows the phrase."""
    return reply.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def check_quotation(reply: str) -> bool:
    """Quotation marks stand around the reply."""
    text = reply.strip()
    return len(text) > 2 and text[0] == text[-1] == '"'


def check_capital_word_frequency(
    reply: str, *, capital_frequency: int, capital_relation: str
) -> bool:
    """The reply has so many words all in capitals."""
    count = sum(word.isupper() for word in _CASED_WORD.findall(reply))
    return relate(count, capital_frequency, capital_relation)


def check_english_capital(reply: str) -> bool:
    """All letters are capitals."""
    return reply.isupper()


def check_english_lowercase(reply: str) -> bool:
    """No letter is a capital."""
    return reply.islower()


def check_no_comma(reply: str) -> bool:
    """There is no comma."""
    return "," not in reply


def relate(count: int, bound: int, relation: str) -> bool:
    """Whether a count is `at least` a bound, or `less than` it."""
    return count >= bound if relation == "at least" else count < bound


def _squeeze(text: str) -> str:
    return _POSTSCRIPT_SPACE.sub("", text).lower()


def _is_one_fence(text: str) -> bool:
    return text.startswith(("```", "~~~")) and text.endswith(("```", "~~~"))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_letter(value: object) -> bool:
    return _is_text(value) and len(str(value)) == 1


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_text, value))


def _is_relation(value: object) -> bool:
    return value in ("at least", "less than")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One kind of instruction.

    Attributes:
        check: Called with the reply and the arguments.
        arguments: For each argument, what its value must be.
    """

    check: Callable[..., bool]
    arguments: Mapping[str, Callable[[object], bool]]

    def find_fault(self, given: Mapping[str, Any]) -> str | None:
        """Why the instruction cannot be checked with these arguments; None when it can."""
        for name, is_valid in self.arguments.items():
            if name not in given:
                return f"the argument {name!r} is missing"
            if not is_valid(given[name]):
                return f"the argument {name!r} cannot be {given[name]!r}"
        surplus = [name for name in given if name not in self.arguments]
        return f"there is no argument {surplus[0]!r}" if surplus else None


INSTRUCTIONS: Mapping[str, Instruction] = {
    "change_case:capital_word_frequency": Instruction(
        check_capital_word_frequency,
        {"capital_frequency": _is_count, "capital_relation": _is_relation},
    ),
    "change_case:english_capital": Instruction(check_english_capital, {}),
    "change_case:english_lowercase": Instruction(check_english_lowercase, {}),
    "combination:repeat_prompt": Instruction(check_repeat_prompt, {"prompt_to_repeat": _is_text}),
    "combination:two_responses": Instruction(check_two_responses, {}),
    "detectable_content:number_placeholders": Instruction(
        check_number_placeholders, {"num_placeholders": _is_count}
    ),
    "detectable_content:postscript": Instruction(check_postscript, {"postscript_marker": _is_text}),
    "detectable_format:constrained_response": Instruction(check_constrained_response, {}),
    "detectable_format:json_format": Instruction(check_json_format, {}),
    "detectable_format:multiple_sections": Instruction(
        check_multiple_sections, {"section_spliter": _is_text, "num_sections": _is_count}
    ),
    "detectable_format:number_bullet_lists": Instruction(
        check_number_bullet_lists, {"num_bullets": _is_count}
    ),
    "detectable_format:number_highlighted_sections": Instruction(
        check_number_highlighted_sections, {"num_highlights": _is_count}
    ),
    "detectable_format:title": Instruction(check_title, {}),
    "keywords:existence": Instruction(check_existence, {"keywords": _is_texts}),
    "keywords:forbidden_words": Instruction(check_forbidden_words, {"forbidden_words": _is_texts}),
    "keywords:frequency": Instruction(
        check_frequency, {"keyword": _is_text, "frequency": _is_count, "relation": _is_relation}
    ),
    "keywords:letter_frequency": Instruction(
        check_letter_frequency,
        {"letter": _is_letter, "let_frequency": _is_count, "let_relation": _is_relation},
    ),
    "length_constraints:nth_paragraph_first_word": Instruction(
        check_nth_paragraph_first_word,
        {"num_paragraphs": _is_count, "nth_paragraph": _is_count, "first_word": _is_text},
    ),
    "length_constraints:number_paragraphs": Instruction(
        check_number_paragraphs, {"num_paragraphs": _is_count}
    ),
    "length_constraints:number_words": Instruction(
        check_number_words, {"num_words": _is_count, "relation": _is_relation}
    ),
    "punctuation:no_comma": Instruction(check_no_comma, {}),
    "startend:end_checker": Instruction(check_end, {"end_phrase": _is_text}),
    "startend:quotation": Instruction(check_quotation, {}),
}
