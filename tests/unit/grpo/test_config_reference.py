from pathlib import Path

from grpo.config.load import known_options
from grpo.config.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_current():
    assert PAGE.read_text() == render(), (
        "run: python -m grpo.config.reference > docs/configuration.md"
    )


def test_every_option_says_what_it_means():
    for line in render().splitlines():
        if line.startswith("| `") and line.count("|") == 4:
            option, _, meaning = (cell.strip() for cell in line.strip("|").split("|"))
            assert len(meaning) > 8, option


def test_every_option_is_on_the_page():
    page = render()
    for option in known_options():
        assert f"`{option}`" in page or f"## `{option}`" in page, option
