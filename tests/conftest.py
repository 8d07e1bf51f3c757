"""What every test has: public data where it is laid, and rules for the integration tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INTEGRATION_TIMEOUT_S = 600
_NO_DATA = "no public benchmark data at"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public benchmark data: VERIGRAD_DATA, or shared/data beside the project."""
    folder = Path(os.environ.get("VERIGRAD_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{_NO_DATA} {folder}; set VERIGRAD_DATA to a folder that has it")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in tests/integration, and give them the time that real parts take."""
    for item in items:
        if ROOT / "tests" / "integration" in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(INTEGRATION_TIMEOUT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where VERIGRAD_STRICT is set, a skipped integration test is a failed one.

    The machine that runs the gate has promised Docker, Ray and vLLM; only absent data excuses.
    """
    report = yield
    promised = os.environ.get("VERIGRAD_STRICT") and item.get_closest_marker("integration")
    if promised and report.skipped and _NO_DATA not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but this gate promises it: {report.longrepr}"
    return report
