"""What the doctor says of machines that are not this one."""

import os
import platform
import resource
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolpost import Settings
from toolpost.cli.diagnostics import Check, check_data_folder, check_machine
from toolpost.sources.registry import Plugins


def found(name: str) -> Check:
    return next(check for check in check_machine() if check.name == name)


def test_an_old_sqlite_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))

    assert found("sqlite") == Check("sqlite", "broken", "3.31.1; 3.35 or newer is needed")


def test_another_platform_is_reported_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")

    assert found("platform").state == "note"
    assert "tested on Linux only" in found("platform").detail


@pytest.mark.parametrize(
    ("limit", "state", "said"),
    [(100, "note", "ulimit -n"), (4096, "ok", "at most 4096"), (resource.RLIM_INFINITY, "ok", "no limit")],
)
def test_the_limit_of_open_files_is_reported(
    monkeypatch: pytest.MonkeyPatch, limit: int, state: str, said: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))

    assert found("open files").state == state
    assert said in found("open files").detail


def test_a_broken_plug_in_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "toolpost.sources.registry.load_plugins", lambda: Plugins(problems=("plug-in 'x' is skipped: why",))
    )

    assert found("plug-in") == Check("plug-in", "broken", "plug-in 'x' is skipped: why")


def test_a_disk_that_is_nearly_full_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 1024 * 1024))

    assert Check("free space", "note", "5 MB") in check_data_folder(Settings(data_dir=tmp_path))


def test_a_folder_that_this_user_may_not_write_to_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)

    [first, *_] = check_data_folder(Settings(data_dir=tmp_path))
    [missing] = check_data_folder(Settings(data_dir=tmp_path / "new"))

    assert (first.state, missing.state) == ("broken", "broken")
    assert "read-only" in first.detail
