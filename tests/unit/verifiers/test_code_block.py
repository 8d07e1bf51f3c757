import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.code_block import find_program, last_code_block
from verifiers.verdict import Reason

CODE = "print(1)\n"


@pytest.mark.parametrize("tag", ["", "python", "Python", "py", "python3", "py3", "python title=x"])
def test_python_blocks_are_found(tag):
    assert last_code_block(f"Text.\n```{tag}\n{CODE}```\nMore.") == CODE


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("no block", None),
        ("", None),
        ("```", None),
        ("```python\n\n```", None),
        ("```bash\nls\n```", None),
        (f"```python\n{CODE}```\n```bash\nls\n```", CODE),
        (f"```python\nprint(0)\n```\n```\n{CODE}```", CODE),
        (f"```python\n{CODE}```\n```python\n\n```", CODE),
        (f"~~~python\n{CODE}~~~", CODE),
        (f"````python\ns = '''\n```\n'''\n{CODE}````", f"s = '''\n```\n'''\n{CODE}"),
        (f"```python\n{CODE}", CODE),
        (f"   ```python\n{CODE}   ```", CODE),
        ("```python\nprint('```')\n```", "print('```')\n"),
        ("Use ```f(x)``` here.", None),
        (f"```python\n{CODE}```python\n", f"{CODE}```python\n"),
        (f"```output\n1\n```\n```py\n{CODE}```", CODE),
    ],
)
def test_which_block_counts(text, program):
    assert last_code_block(text) == program


def test_the_first_block_can_be_asked_for():
    text = f"```bash\nls\n```\n```python\n{CODE}```\n```python\nprint(2)\n```"
    assert find_program(text, "first_block") == CODE
    assert find_program(text, "block") == "print(2)\n"
    assert find_program(text, "text") == text
    assert find_program("none", "first_block") is Reason.NO_CODE


@given(st.text(alphabet="`~ \nap"))
def test_any_text_gives_a_program_or_none(text):
    program = last_code_block(text)
    assert program is None or (program.strip() and program in text)


@pytest.mark.parametrize(
    "text", ["```" + "a" * 200_000 + "`", "```" + " a" * 100_000 + "`", "```" + " " * 200_000 + "`"]
)
def test_a_long_line_is_read_once(text):
    started = time.perf_counter()
    assert last_code_block(text) is None
    assert time.perf_counter() - started < 1.0
