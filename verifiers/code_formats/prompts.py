"""How a task is put to a model: what a program has to look like to be tested."""

from __future__ import annotations

from collections.abc import Sequence


def ask(question: str, *, entry_point: str | None, starter_code: str | None = None) -> str:
    """The task, and what the program must define or do.

    Args:
        question: The task.
        entry_point: The function that tests call; None where the whole program is run.
        starter_code: How the program must begin, where a function is called.
    """
    task = question.strip()
    if entry_point is None:
        return (
            f"{task}\n\nWrite a Python program that reads from standard input and prints to "
            "standard output."
        )
    if starter_code and starter_code.strip():
        start = starter_code.rstrip()
        return f"{task}\n\nThe program must begin like this:\n\n```python\n{start}\n```"
    return f"{task}\n\nWrite a Python function `{entry_point}`."


def show_asserts(question: str, asserts: Sequence[str]) -> str:
    """The task, and asserts that must hold, which also tell the function's name."""
    shown = "\n".join(asserts)
    return f"{question.strip()}\n\nThese must hold:\n\n```python\n{shown}\n```"
