"""What holds for the whole suite."""

import os

import pytest
from hypothesis import settings

from tests import requirements

# What CI says must depend on the change alone; elsewhere every run may find something new.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    items = requirements.load().values()
    proved = sum(item.status == "proved" for item in items)
    terminalreporter.write_line(f"requirements proved: {proved} of {len(items)}")
