"""Every command that the documentation shows is one that the program accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from grpo.cli import parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(?:bash|sh|console)\n(.*?)```", re.DOTALL)


def documented_lines():
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                yield page.relative_to(ROOT), line.strip().removeprefix("$ ")


COMMANDS = [
    pytest.param(line, id=f"{page}: {line[:60]}")
    for page, line in documented_lines()
    if re.search(r"(^|/)verigrad\s", line)
]
SCRIPTS = {
    word
    for _, line in documented_lines()
    for word in shlex.split(line, comments=True)
    if word.startswith(("scripts/", "benchmarks/"))
}
TARGETS = {
    words[1]
    for _, line in documented_lines()
    if (words := shlex.split(line, comments=True))[:1] == ["make"] and len(words) > 1
}


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_line_is_accepted(line):
    words = shlex.split(line, comments=True)
    command = next(i for i, word in enumerate(words) if word.endswith("verigrad"))
    arguments = [word for word in words[command + 1 :] if word not in ("|", "&&")]
    parse(arguments)


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_the_script_exists(script):
    assert (ROOT / script).is_file()


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_make_target_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page}: {link}"
