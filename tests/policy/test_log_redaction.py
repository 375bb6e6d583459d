"""What the package logs holds no known secret while something is open."""

import logging
import re
from pathlib import Path

import pytest

import toolpost
from tests.patient_settings import PatientSettings
from toolpost import Toolbox
from toolpost.policy.log_redaction import LOGGERS, redacted_logs
from toolpost.policy.redaction import Redactor

SECRET = "hunter22-and-more"
log = logging.getLogger("toolpost.runtime")


def test_message_arguments_and_traceback_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    with redacted_logs(Redactor([SECRET])):
        raised = ValueError(SECRET)
        raised.__cause__ = RuntimeError(f"before {SECRET}")
        log.error("it failed with %s and %r", SECRET, raised, exc_info=raised)

    assert SECRET not in caplog.text
    assert "it failed with [redacted] and ValueError('[redacted]')" in caplog.text
    assert "RuntimeError: before [redacted]" in caplog.text
    assert caplog.records[0].exc_info is None


def test_a_message_stays_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with redacted_logs(Redactor()):
        log.warning("the tool said %s", "no\r\n2026-01-01 ERROR all is lost\u2028\x1b[2K")

    assert caplog.messages == [r"the tool said no\r\n2026-01-01 ERROR all is lost\u2028\x1b[2K"]


def test_each_that_is_open_takes_out_what_it_knows_and_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    with redacted_logs(Redactor(["secret-of-one"])), redacted_logs(Redactor(["secret-of-two"])):
        log.warning("secret-of-one and secret-of-two")
    log.warning("nobody is open")

    assert caplog.messages == ["[redacted] and [redacted]", "nobody is open"]
    assert not any(logging.getLogger(name).filters for name in LOGGERS)


async def test_an_open_toolbox_redacts_and_a_closed_one_does_not(caplog: pytest.LogCaptureFixture) -> None:
    source = {"name": "x", "transport": "cli", "connection": "true", "env": {"API_KEY": SECRET}, "required": False}
    async with Toolbox(settings=PatientSettings.model_validate({"data_dir": None, "sources": [source]})):
        log.warning("open: %s", SECRET)
    log.warning("closed: %s", SECRET)

    assert caplog.messages == ["open: [redacted]", f"closed: {SECRET}"]


def test_every_logger_of_the_package_is_known() -> None:
    named = re.compile(r'getLogger\(f?"(toolpost[^"]*)"\)')
    sources = Path(toolpost.__file__).parent.rglob("*.py")
    found = {name for path in sources for name in named.findall(path.read_text())}

    assert found - {"toolpost.sources.{transport}"} <= set(LOGGERS)
