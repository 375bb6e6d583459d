"""`toolpost tools check`: a tool's folder is held to the standard."""

from pathlib import Path

import pytest

from tests.cli.program import Run


@pytest.mark.req("NSTD-03")
def test_the_tools_that_ship_hold_to_it(toolpost: Run) -> None:
    done = toolpost("tools", "check", "--json")

    assert (done.code, done.json["status"]) == (0, "ok")
    assert len(done.json["tools"]) > 30


def test_a_folder_of_ones_own_is_reported_with_what_it_lacks(toolpost: Run, tmp_path: Path) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "schema.json").write_text("{}")

    done = toolpost("tools", "check", str(tmp_path / "greet"), "--json")
    told = toolpost("tools", "check", str(tmp_path / "greet"))

    assert (done.code, told.code, done.json["status"]) == (1, 1, "failed")
    assert [problem for problem in done.json["tools"][0]["problems"] if "no `input_schema`" in problem]
    assert "there are no tests" in told.out


def test_a_path_that_is_not_a_folder_is_reported(toolpost: Run, tmp_path: Path) -> None:
    done = toolpost("tools", "check", str(tmp_path / "missing"), "--json")

    assert done.code == 1
    assert "is not a folder" in done.json["tools"][0]["problems"][0]
