from pathlib import Path

from grpo.config.load import known_options
from grpo.config.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_current():
    assert PAGE.read_text() == render(), (
        "run: python -m grpo.config.reference > docs/configuration.md"
    )


def test_every_option_is_on_it_with_a_meaning_or_a_plain_name():
    page = render()
    for option in known_options():
        assert f"`{option.split('.')[-1]}`" in page or f"`{option}`" in page, option
