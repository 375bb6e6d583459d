"""What holds for the whole suite."""

import pytest

from tests import requirements


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    items = requirements.load().values()
    proved = sum(item.status == "proved" for item in items)
    terminalreporter.write_line(f"requirements proved: {proved} of {len(items)}")
