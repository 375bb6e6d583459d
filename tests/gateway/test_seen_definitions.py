"""Definitions that no lock file pins: they are recorded when first seen, and a change is reported, or blocked."""

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import child_environment, warm_command
from tests.gateway.serving import Served, served
from tests.gateway.test_definitions import POISON, Place
from tests.patient_settings import PatientSettings
from toolpost import Completed, EventCode, Paused, Toolbox
from toolpost.catalog.lock import Lock
from toolpost.configuration.loading import LoadedSettings
from toolpost.errors import ToolPermissionError

pytestmark = pytest.mark.programs


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    """A server whose tool has changed since a Toolbox with this data folder has first seen it."""
    made = Place(tmp_path)
    made.list()
    async with opened(made):
        pass
    made.list(description=POISON)
    return made


@asynccontextmanager
async def opened(place: Place, **settings: Any) -> AsyncGenerator[Toolbox]:
    async with Toolbox(settings=PatientSettings(data_dir=place.folder / "data", **place.settings, **settings)) as box:
        yield box


async def reported(box: Toolbox) -> list[Any]:
    await box.store.events.flush()
    events = await box.events(user="local:me", run_id="source_srv")
    return [event.payload for event in events if event.code == EventCode.DEFINITION_CHANGED]


async def test_a_change_is_an_event_and_a_warning_and_the_tool_runs_under_standard(place: Place) -> None:
    async with opened(place) as box:
        problems, spec = box.problems, box.registry.find("srv.look").spec
        done = await box.call("srv.look", {}, user="acme:ann")
        events = await reported(box)
    async with opened(place) as box:
        again = (box.problems, await reported(box))

    [problem] = [one for one in problems if "srv.look" in one]
    assert "its description changed since it was first seen" in problem
    assert "to accept it, run `toolpost lock approve srv.look`" in problem
    assert POISON not in problem
    assert isinstance(done, Completed)
    assert spec.description == POISON
    [event] = events
    assert (event["tool"], event["changed"], event["blocked"]) == ("srv.look", ["description"], False)
    assert (problem in again[0], len(again[1])) == (True, 1)  # the warning stays, the event was emitted once


@pytest.mark.parametrize("policy", ["regulated", "audit"])
async def test_a_changed_tool_is_blocked_under_a_strict_policy_until_the_operator_accepts(
    place: Place, policy: str
) -> None:
    async with opened(place, policy=policy) as box:
        listed = box.registry.find("srv.look").spec.description
        paused = await box.call("srv.look", {}, user="acme:ann")
        assert isinstance(paused, Paused)
        with pytest.raises(ToolPermissionError):
            await box.approve(paused.pending_id, by="acme:boss")
        box.pending.accept_definition("srv.look", by="local:root")
        accepted = box.registry.find("srv.look").spec.description
        left = [one for one in box.problems if "srv.look" in one]
    async with opened(place, policy=policy) as box:
        kept = (box.registry.find("srv.look").hold, [one for one in box.problems if "srv.look" in one])

    assert paused.question.reason == "definition_changed"
    assert POISON not in listed
    assert (accepted, left) == (POISON, [])
    assert kept == (None, [])


async def test_a_policy_that_becomes_strict_blocks_what_has_changed_before(place: Place) -> None:
    async with opened(place) as box:
        assert isinstance(await box.call("srv.look", {}, user="acme:ann"), Completed)
        await box.reload(loaded(box, policy="regulated"))
        paused = await box.call("srv.look", {}, user="acme:ann")
    assert isinstance(paused, Paused)
    assert paused.question.reason == "definition_changed"


def loaded(box: Toolbox, **changes: Any) -> LoadedSettings:
    return LoadedSettings(settings=box.settings.model_copy(update=changes), path=None)


async def test_rest_warns_of_a_changed_definition_and_the_operator_accepts_it(place: Place) -> None:
    async with served(place.folder / "data", **place.settings) as gate:
        tool = (await gate.http.get("/api/v1/tools/srv.look")).json()
        [listed] = (await gate.http.get("/api/v1/tools")).json()["items"]
        shown = (await gate.http.get("/api/v1/tools/srv.look/definition")).json()
        taken = await accept(gate, shown["hash"])
        after = (await gate.http.get("/api/v1/tools/srv.look")).json()

    assert tool["warning"] == listed["warning"]
    assert "its description changed since it was first seen" in tool["warning"]
    assert (shown["status"], shown["changes"][0]["after"]) == ("changed", POISON)
    assert (taken.status_code, after["warning"]) == (200, None)


async def accept(gate: Served, digest: str) -> Any:
    return await gate.http.post("/api/v1/tools/srv.look/definition", json={"hash": digest})


async def test_a_lock_file_takes_the_place_of_the_record(place: Place) -> None:
    async with opened(place) as box:
        Lock(place.lock).write({"srv": box.sources.index.pins("srv")})
    async with opened(place, policy="audit") as box:
        assert [one for one in box.problems if "srv.look" in one] == []


async def test_a_new_connection_is_seen_for_the_first_time(place: Place, tmp_path: Path) -> None:
    moved = Place(tmp_path / "moved")
    moved.folder.mkdir()
    moved.list(description="Another server.")
    settings = PatientSettings(data_dir=place.folder / "data", **moved.settings)
    async with Toolbox(settings=settings) as box:
        assert [one for one in box.problems if "srv.look" in one] == []


async def test_definitions_that_cannot_be_written_hold_no_source_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path)
    place.list()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "definitions").write_text("a file is in the way")
    async with opened(place) as box:
        done = await box.call("srv.look", {}, user="acme:ann")

    assert isinstance(done, Completed)
    assert "changes of definitions are not detected after a restart" in caplog.text


def test_the_command_line_warns_shows_and_accepts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    [source] = place.settings["sources"]
    text = (
        f"builtins: none\nsources:\n  - {{name: srv, transport: mcp, connection: '{source.connection}', trust: true}}\n"
    )
    (tmp_path / "toolpost.yaml").write_text(text)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            warm_command(*words), cwd=tmp_path, env=child_environment(), capture_output=True, text=True, check=False
        )

    place.list()
    run("tools", "call", "srv.look")  # a command that only lists makes no data folder
    first = run("tools", "list")
    place.list(description="Look, and do more.")
    warned, doctor, shown = run("tools", "list"), run("doctor"), run("lock", "diff")
    accepted = run("lock", "approve", "srv.look", "--yes")
    after = run("tools", "list")

    message = "its description changed since it was first seen"
    assert message not in first.stderr
    assert message in warned.stderr
    assert message in doctor.stdout + doctor.stderr
    assert "+ Look, and do more." in shown.stdout + shown.stderr
    assert accepted.returncode == 0, accepted.stderr
    assert message not in after.stderr
    assert not (tmp_path / "toolpost.lock").exists()
