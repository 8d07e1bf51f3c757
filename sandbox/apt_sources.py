"""Which package mirror this Debian or Ubuntu machine uses itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ONE_LINE = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class AptSource:
    """One mirror with one suite of it.

    Example:
        >>> AptSource(uri="http://mirror.example/debian", suite="bookworm",
        components=("main",)).suite 'bookworm'
    """

    uri: str
    suite: str
    components: tuple[str, ...]


def own_source(etc: Path) -> AptSource | None:
    """The mirror of this machine's own release.

    Args:
        etc: The folder that holds `os-release` and `apt/`.

    Returns:
        The first configured source whose suite is the release's code name; None where there is
        none.
    """
    codename = _codename(etc / "os-release")
    sources = (source for source in _all_sources(etc / "apt") if source.suite == codename)
    return next(sources, None)


def _codename(os_release: Path) -> str | None:
    if not os_release.is_file():
        return None
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)", os_release.read_text("utf-8"), re.MULTILINE)
    return found.group(1) if found else None


def _all_sources(apt: Path) -> Iterator[AptSource]:
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for file in files:
        if file.suffix == ".sources" and file.is_file():
            yield from _deb822(file.read_text("utf-8"))
        elif file.suffix == ".list" and file.is_file():
            yield from _one_line(file.read_text("utf-8"))


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        found = _ONE_LINE.match(line.split("#")[0].strip())
        if found:
            uri, suite, components = found.groups()
            yield AptSource(uri=uri, suite=suite, components=tuple(components.split()))


def _deb822(text: str) -> Iterator[AptSource]:
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {
            key.strip().lower(): value.split()
            for key, _, value in (line.partition(":") for line in lines if not line.startswith(" "))
        }
        if "deb" not in fields.get("types", []) or fields.get("enabled") == ["no"]:
            continue
        components = tuple(fields.get("components", []))
        for uri in fields.get("uris", []):
            for suite in fields.get("suites", []):
                yield AptSource(uri=uri, suite=suite, components=components)
