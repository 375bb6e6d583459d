"""The guard by which a test that leaves the process changed fails itself, and not the next one."""

import gc
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process_state import ProcessState

ROOT = Path(__file__).parents[1]
LEAKING = """
import logging

def test_a():
    logging.getLogger("toolpost.leak").setLevel("ERROR")

def test_b(monkeypatch, caplog):
    monkeypatch.setenv("TOOLPOST_LEAK", "1")
    caplog.set_level("DEBUG", "toolpost.leak")

def test_c():
    assert logging.getLogger("toolpost.leak").level == logging.NOTSET
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: os.chdir("/"), "the working directory is /"),
        (lambda: os.environ.update(TOOLPOST_LEAK="s3cret"), "the environment variable TOOLPOST_LEAK is set"),
        (lambda: os.environ.update(PATH="s3cret"), "the environment variable PATH is changed"),
        (lambda: os.environ.pop("PATH"), "the environment variable PATH is gone"),
        (lambda: logging.getLogger("toolpost").setLevel("ERROR"), "the logger 'toolpost' is"),
        (
            lambda: logging.getLogger("toolpost.never_made_before").setLevel(1),
            "the logger 'toolpost.never_made_before'",
        ),
        (lambda: logging.root.setLevel("DEBUG"), "the logger 'root' is"),
        (logging.disable, "logging.disable is 50, it was 0"),
        (lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN), "the handlers of signals is"),
        (lambda: sys.setprofile(lambda *_: None), "the profiler is"),
        (lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1), "the recursion limit is"),
        (gc.disable, "the garbage collector is False, it was True"),
    ],
)
def test_a_change_of_a_test_is_reported_and_undone(change: object, told: str) -> None:
    before = ProcessState()
    change()  # type: ignore[operator]

    (found,) = before.restore()

    assert found.startswith(told)
    assert "s3cret" not in found
    assert before.restore() == []


def test_a_time_zone_is_put_back_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ProcessState()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()

    assert [one.split(" is ")[0] for one in before.restore()] == ["the environment variable TZ", "the time zone"]
    assert before.restore() == []


@pytest.mark.programs
def test_a_test_that_leaves_the_process_changed_fails_by_its_name_and_the_next_one_passes(tmp_path: Path) -> None:
    (tmp_path / "test_leaking.py").write_text(LEAKING)
    (tmp_path / "conftest.py").write_text("from tests.conftest import _leaves_the_process_as_it_was\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]

    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )

    assert "ERROR test_leaking.py::test_a - Failed: This test leaves the process changed" in ended.stdout
    assert "3 passed, 1 error" in ended.stdout
