"""Versions of a workflow side by side, other names for them, and calls shared out between two."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.patient_settings import PatientSettings
from toolpost import Completed, Toolbox, tool
from toolpost.sources import ExternalToolConfig
from toolpost.sources.workflow.options import WorkflowOptions
from toolpost.sources.workflow.source import choose_version

ANN = "acme:ann"


@tool(side_effects="pure")
async def echo(value: Any) -> Any:
    """Return what is given."""
    return value


def folder_of(path: Path, *versions: int) -> Path:
    for version in versions:
        text = f"name: report\nversion: {version}\nside_effects: pure\n"
        (path / f"report{version}.yaml").write_text(
            f"{text}steps: {{a: {{tool: echo, arguments: {{value: version {version}}}}}}}\n"
        )
    return path


def box_of(path: Path, aliases: dict[str, Any] | None = None) -> Toolbox:
    options = {"aliases": aliases or {}}
    source = ExternalToolConfig(name="flows", transport="workflow", connection=str(path), options=options)
    return Toolbox(tools=[echo], settings=PatientSettings(data_dir=None, sources=[source], builtins="none"))


@pytest.mark.req("FUT-10")
async def test_versions_stand_side_by_side_and_the_plain_name_is_the_newest(tmp_path: Path) -> None:
    async with box_of(folder_of(tmp_path, 1, 2, 10), {"report_stable": "report_v1"}) as box:
        names = sorted(spec.name for spec in box.registry.specs() if spec.source == "flows")
        said = {name: await box.call(f"flows.{name}", user=ANN) for name in ("report", "report_stable", "report_v2")}
    assert names == [f"flows.report{end}" for end in ("", "_stable", "_v1", "_v10", "_v2")]
    assert {name: one.content for name, one in said.items() if isinstance(one, Completed)} == {
        "report": "version 10",
        "report_stable": "version 1",
        "report_v2": "version 2",
    }


async def test_one_version_has_its_plain_name_alone(tmp_path: Path) -> None:
    async with box_of(folder_of(tmp_path, 3)) as box:
        assert [spec.name for spec in box.registry.specs() if spec.source == "flows"] == ["flows.report"]
        assert box.registry.find("flows.report").spec.version == "3"


@pytest.mark.req("FUT-12")
async def test_calls_are_shared_out_by_percentages_and_counted_for_each_version(tmp_path: Path) -> None:
    async with box_of(folder_of(tmp_path, 1, 2), {"report": {"report_v1": 75, "report_v2": 25}}) as box:
        outcomes = [await box.call("flows.report", user=ANN) for _ in range(400)]
        counts = {name: box.registry.find(f"flows.{name}").counts for name in ("report", "report_v1", "report_v2")}
    got = [one.content for one in outcomes if isinstance(one, Completed)]
    assert counts["report"].count == 400
    assert [counts["report_v1"].count, counts["report_v2"].count] == [got.count("version 1"), got.count("version 2")]
    assert 50 <= counts["report_v2"].count <= 150


def test_a_call_keeps_its_version_and_many_follow_the_percentages() -> None:
    shares = {"a": 90, "b": 10, "c": 0}
    chosen = [choose_version(shares, f"call_{number}") for number in range(10_000)]
    assert chosen == [choose_version(shares, f"call_{number}") for number in range(10_000)]
    assert 800 < chosen.count("b") < 1200
    assert "c" not in chosen


@pytest.mark.parametrize("share", [{"report_v1": 50, "report_v2": 40}, {"report_v1": 150, "report_v2": -50}])
def test_percentages_that_are_not_whole_are_refused(share: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        WorkflowOptions(aliases={"report": share})


async def test_an_alias_of_no_version_and_a_version_in_two_files_are_reported(tmp_path: Path) -> None:
    folder_of(tmp_path, 1, 2)
    (tmp_path / "twice.yaml").write_text((tmp_path / "report1.yaml").read_text())
    async with box_of(tmp_path) as box:
        assert any("twice.yaml: workflow 'report' (version 1) exists in another file" in str(p) for p in box.problems)
    async with box_of(tmp_path, {"report": "report_v3"}) as box:
        assert any("alias 'report' leads to 'report_v3', which is not a version" in str(p) for p in box.problems)
