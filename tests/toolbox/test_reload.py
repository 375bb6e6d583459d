"""An open Toolbox takes other settings: only what changed is touched, and a wrong file changes nothing."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolpost import Completed, ConfigError, Failed, Paused, Toolbox
from toolpost.configuration.loading import load_settings
from toolpost.contracts.events import EventCode
from toolpost.toolbox.config_follower import ConfigFollower
from toolpost.toolbox.reload import Reload

TOOLS = """
from toolpost import tool

@tool(side_effects="pure")
async def {0}() -> str:
    '''Tell which one it is.'''
    return "{0}"

@tool(side_effects="write", destructive=True)
async def drop() -> str:
    '''Drop it.'''
    return "gone"
"""
BASE: dict[str, Any] = {"data_dir": None, "lock": None, "builtins": "none"}


class Home:
    """A folder with a configuration, in which each source is a Python file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "toolpost.yaml"

    def write(self, sources: dict[str, str] | None = None, *, text: str | None = None, **settings: Any) -> None:
        """Write the configuration, each source with a tool of the name given; as editors do, by a rename."""
        listed: list[dict[str, Any]] = []
        for name, word in (sources or {}).items():
            (self.folder / f"{name}_{word}.py").write_text(TOOLS.format(word))
            listed.append({"name": name, "transport": "python", "connection": f"./{name}_{word}.py"})
        beside = self.file.with_suffix(".new")
        beside.write_text(yaml.safe_dump({**BASE, "sources": listed, **settings}) if text is None else text)
        beside.rename(self.file)

    def open(self) -> Toolbox:
        return Toolbox.open(self.file)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def tools(box: Toolbox) -> set[str]:
    return {spec.name for spec in box.registry.specs() if not spec.name.endswith(".drop")}


async def test_only_the_sources_that_changed_are_touched(home: Home) -> None:
    home.write({"a": "one", "b": "two", "c": "three"})
    async with home.open() as box:
        kept = box.registry.find("a.one")
        home.write({"a": "one", "b": "other", "d": "four"})
        reload = await box.reload()
        await box.wait_for_sources()

        assert box.registry.find("a.one") is kept
        assert tools(box) == {"a.one", "b.other", "d.four"}
        assert not await box.reload()
    assert (reload.added, reload.replaced, reload.removed, reload.restart) == (["d"], ["b"], ["c"], [])


async def test_policy_approvals_collections_and_overrides_are_applied(home: Home) -> None:
    home.write({"a": "one"})
    async with home.open() as box:
        asked = await box.call("a.drop")
        overrides = {"a.one": {"description": "Count."}}
        home.write({"a": "one"}, policy="exploratory", collections={"first": ["a.*"]}, overrides=overrides)
        reload = await box.reload()
        done = await box.call("a.drop")
        found = box.registry.specs("first")

        assert box.registry.find("a.one").spec.description == "Count."
        home.write({"a": "one"}, policy=[{"action": "deny"}])
        await box.reload()
        denied = await box.call("a.drop")
        with pytest.raises(KeyError, match="first"):
            box.registry.specs("first")

    assert (type(asked), type(done), type(denied)) == (Paused, Completed, Failed)
    assert (set(reload.applied), reload.replaced) == ({"policy", "collections", "overrides"}, ["a"])
    assert len(found) == 2


async def test_what_needs_a_restart_is_named_and_stays(home: Home) -> None:
    home.write({"a": "one"})
    async with home.open() as box:
        home.write({"a": "one"}, limits={"inline_bytes": 5}, tools={"timeout": "5s"}, overrides={"add": {"hide": True}})
        first, second = await box.reload(), await box.reload()

        assert box.settings.limits.inline_bytes != 5
    assert first.restart == second.restart == ["limits", "tools.timeout", "overrides.add"]
    assert list(first.lines())[-1].startswith("changed, and needs a restart: limits")


async def test_a_source_whose_new_settings_do_not_work_stays_and_is_tried_again_next_time(home: Home) -> None:
    home.write({"a": "one", "b": "two"})
    async with home.open() as box:
        home.write({"a": "other", "b": "other"})
        (home.folder / "a_other.py").write_text("raise RuntimeError('no licence')")
        reload = await box.reload()

        assert tools(box) == {"a.one", "b.other"}
        (home.folder / "a_other.py").write_text(TOOLS.format("other"))
        assert (await box.reload()).replaced == ["a"]
        assert tools(box) == {"a.other", "b.other"}
    assert list(reload.failed) == ["a"]
    assert "no licence" in reload.failed["a"]


async def test_a_source_that_is_down_takes_its_new_settings_in_any_case(home: Home) -> None:
    home.write({"a": "one"})
    (home.folder / "a_one.py").write_text("raise RuntimeError('no licence')")
    async with home.open() as box:
        home.write({"a": "two"})
        reload = await box.reload()
        await box.wait_for_sources()

        assert tools(box) == {"a.two"}
    assert reload.replaced == ["a"]


async def test_sources_that_a_program_added_are_left_alone(home: Home) -> None:
    home.write({"a": "one", "b": "two"})
    async with home.open() as box:
        own = box.settings.sources[1].model_copy(update={"name": "own"})
        await box.sources.add(own)
        home.write({"a": "one", "own": "other"})
        reload = await box.reload()

        assert tools(box) == {"a.one", "own.two"}
    assert (reload.removed, list(reload.failed)) == (["b"], ["own"])


async def test_code_that_comes_later_is_out_of_reach_of_file_tools_too(home: Home) -> None:
    home.write(builtins=["file_tools"], tools={"allowedPaths": ["."]})
    async with home.open() as box:
        home.write({"a": "one"}, builtins=["file_tools"], tools={"allowedPaths": ["."]}, policy="exploratory")
        await box.reload()
        outcome = await box.call("write_file", {"path": str(home.folder / "a_one.py"), "content": "evil"})

    assert isinstance(outcome, Failed)
    assert "a_one.py" in str(outcome.error)


# ------------------------------------------------------------------ following the file


@asynccontextmanager
async def following(home: Home) -> AsyncGenerator[tuple[Toolbox, asyncio.Queue[Reload | ConfigError], ConfigFollower]]:
    """A Toolbox that follows its file, and what is reported of that."""
    told: asyncio.Queue[Reload | ConfigError] = asyncio.Queue()
    async with home.open() as box:
        follower = ConfigFollower(box, partial(load_settings, home.file), told.put)
        task = asyncio.create_task(follower.run())
        try:
            yield box, told, follower
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def next_of(told: asyncio.Queue[Reload | ConfigError]) -> Reload | ConfigError:
    async with asyncio.timeout(30):
        return await told.get()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.waits
async def test_a_broken_file_leaves_the_old_state_running_and_says_why(home: Home) -> None:
    home.write({"a": "one"})
    async with following(home) as (box, told, _):
        home.write(text="sorces: []\n")
        unknown = await next_of(told)
        home.write(text="sources: [")
        unreadable = await next_of(told)
        home.file.unlink()
        gone = await next_of(told)
        outcome = await box.call("a.one")
        events = await box.events(user="local:anyone")
        home.write({"a": "two"})
        mended = await next_of(told)

        assert tools(box) == {"a.two"}
    assert isinstance(outcome, Completed)
    assert "did you mean 'sources'" in str(unknown)
    assert [isinstance(one, ConfigError) for one in (unknown, unreadable, gone, mended)] == [True, True, True, False]
    refused = [event.payload["reason"] for event in events if event.code is EventCode.CONFIG_REFUSED]
    assert refused[0] == str(unknown)


@pytest.mark.waits
async def test_changes_in_quick_succession_end_in_the_last_state(home: Home) -> None:
    home.write({"a": "one"})
    async with following(home) as (box, _, _):
        for word in ("two", "three", "four", "five"):
            home.write({"a": word})
            await asyncio.sleep(0.05)
        await until(lambda: tools(box) == {"a.five"})


def in_place(home: Home) -> None:
    """Write into the same file, half by half."""
    text = home.file.read_text().replace("a_one.py", "a_two.py")
    with home.file.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        file.write(text[len(text) // 2 :])


def by_link(home: Home) -> None:
    """Exchange a link, as volumes of containers do."""
    kept = home.folder / "kept.yaml"
    kept.write_text(home.file.read_text().replace("a_one.py", "a_two.py"))
    link = home.folder / "link"
    link.symlink_to(kept)
    link.rename(home.file)


def same_size_and_time(home: Home) -> None:
    """Leave nothing but the content to tell that it changed."""
    times = home.file.stat()
    home.file.write_text(home.file.read_text().replace("a_one.py", "a_two.py"))
    os.utime(home.file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [in_place, by_link, same_size_and_time])
async def test_a_change_is_noticed_however_it_is_written(home: Home, change: Callable[[Home], None]) -> None:
    home.write({"a": "one"})
    (home.folder / "a_two.py").write_text(TOOLS.format("two"))
    async with following(home) as (box, _, _):
        change(home)
        await until(lambda: tools(box) == {"a.two"})


async def test_a_variable_of_the_env_file_counts_and_its_secret_is_masked(home: Home) -> None:
    home.write({"a": "one"}, text=None)
    text = home.file.read_text().replace("./a_one.py", "./${WHICH_FILE}")
    (home.folder / ".env").write_text("WHICH_FILE=a_one.py\n")
    home.write(text=text)
    (home.folder / "a_two_secret.py").write_text(TOOLS.format("two"))
    async with following(home) as (box, _, follower):
        (home.folder / ".env").write_text("WHICH_FILE=a_two_secret.py\n")
        follower.reload_now()
        await until(lambda: tools(box) == {"a.two"})

        assert "a_two_secret" not in box.redactor.text("loaded a_two_secret.py")
