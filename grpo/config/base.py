"""What every part of the configuration is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def as_switch(value: Any) -> Any:
    """YAML reads a bare `on` or `off` as a truth value."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value
