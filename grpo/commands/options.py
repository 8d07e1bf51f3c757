"""What several commands read off the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from verifiers.errors import UserError


def is_config(name: str) -> bool:
    """Whether an argument names a configuration, and not a data set."""
    return Path(name).suffix in (".yaml", ".yml")


def read_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options written as `KEY=VALUE`, values as YAML.

    Raises:
        UserError: One is not of that form.
    """
    options = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise UserError(f"--option {text!r} is not of the form KEY=VALUE")
        options[key] = yaml.safe_load(value)
    return options
