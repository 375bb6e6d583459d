"""Tools that come, change and go while the server runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import inquirer, until
from tests.sources.mcp.rogues import Rogue, config_by, rogue_by, tool
from toolpost import EventCode, ExternalToolConfig, Toolbox

pytestmark = pytest.mark.programs


def toolbox(source: ExternalToolConfig) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[source]))


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_a_server_that_tells_of_changes_is_believed_at_once(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol)) as box:
        await box.call("srv.grow", {"name": "extra"})
        await until(lambda: box.registry.has("srv.extra"))
        outcome = await box.call("srv.extra", {})
        await box.call("srv.shrink", {"name": "extra"})
        await until(lambda: not box.registry.has("srv.extra"))
        gone = await box.call("srv.extra", {})
    assert outcome.content == "done"
    assert gone.status == "failed"


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_helpers_for_resources_and_prompts_come_with_the_first_of_them_and_do_not_count(protocol: str) -> None:
    async with toolbox(inquirer(protocol=protocol, env={"LIBRARY": "1"})) as box:
        before = {spec.name for spec in box.registry.specs() if spec.source}
        [empty] = box.report
        await box.call("srv.grow", {"name": "publish"})
        await until(lambda: box.registry.has("srv.publish"))
        await box.call("srv.publish", {})
        await until(lambda: box.registry.has("srv.resources_list") and box.registry.has("srv.prompts_list"))
        [stocked] = box.report
        listed = await box.call("srv.resources_list", {})
    assert len(before) == empty.tools
    assert not [name for name in before if "resources" in name or "prompts" in name]
    assert stocked.tools == empty.tools + 1
    assert [one["uri"] for one in listed.content["resources"]] == ["note://one"]


async def test_a_server_that_tells_nothing_is_asked_as_often_as_its_own_ttl_says() -> None:
    async with toolbox(inquirer(env={"SILENT": "1", "TTL_MS": "1000"})) as box:
        await box.call("srv.grow", {"name": "extra"})
        await until(lambda: box.registry.has("srv.extra"))


async def test_a_server_without_a_ttl_is_asked_as_often_as_the_configuration_says() -> None:
    async with toolbox(inquirer(protocol="legacy", env={"SILENT": "1"}, poll_s=1)) as box:
        await box.call("srv.grow", {"name": "extra"})
        await until(lambda: box.registry.has("srv.extra"))


async def test_changes_are_reported_as_events() -> None:
    async with toolbox(inquirer()) as box:
        await box.call("srv.grow", {"name": "extra"})
        await until(lambda: box.registry.has("srv.extra"))
        told = await box.store.events.read(run_id="catalog")
    assert [(event.code, event.payload["tool_name"], event.payload["change"]) for event in told] == [
        (EventCode.CATALOG_CHANGED, "srv.extra", "added")
    ]


async def test_what_did_not_change_keeps_its_place_and_its_counts() -> None:
    async with toolbox(inquirer()) as box:
        await box.call("srv.grow", {"name": "extra"})
        await until(lambda: box.registry.has("srv.extra"))
        stats = box.registry.get_stats().call_stats
    assert stats["srv.grow"].count == 1


@pytest.mark.parametrize("way", ["stdio-modern", "http-modern-sse"])
async def test_a_subscription_that_ended_is_begun_again_on_the_same_session(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("echo"), listens=True) as rogue:
        async with toolbox(config_by(way, rogue)):
            await until(lambda: len(rogue.received("subscriptions/listen")) > 2)
    assert rogue.greetings == 1


async def test_a_server_that_grants_no_subscription_is_asked_for_one_once(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"), era="modern", listens="not")
    async with toolbox(rogue.config(options={"poll_s": 1})):
        await until(lambda: len(rogue.received("tools/list")) > 3)
    assert len(rogue.received("subscriptions/listen")) == 1
