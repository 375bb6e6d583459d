"""Webhooks: events of the log as signed requests, in order, at least once, whatever happens to either side."""

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.serving import listening
from tests.warm import Program
from toolpost import Settings, Toolbox, tool
from toolpost.configuration.loading import parse_settings
from toolpost.errors import ConfigError

SECRET = f"whsec_{base64.b64encode(b'a' * 32).decode()}"
OTHER = f"whsec_{base64.b64encode(b'b' * 32).decode()}"


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
async def drop(name: str, password: str) -> str:
    """Drop a table."""
    return name


class Receiver:
    """A receiver that verifies what comes as the package of Standard Webhooks does, and answers as the test says."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: list[tuple[str, Any]] = []
        self.answers: list[Response] = []
        self.came = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        message = Webhook(SECRET).verify(await request.body(), dict(request.headers))
        self.messages.append((request.headers["webhook-id"], message))
        self.came.set()
        return self.answers.pop(0) if self.answers else Response(status_code=204)

    @property
    def ids(self) -> list[int]:
        """The numbers of the events, each where it came first."""
        return list(dict.fromkeys(message["data"]["id"] for _, message in self.messages))

    def has(self, most: int) -> bool:
        return len(self.messages) >= most

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():
                self.came.clear()
                await self.came.wait()

    def settings(self, folder: Path | None, **webhook: Any) -> Settings:
        host = self.url.removeprefix("http://")
        return Settings.model_validate(
            {
                "data_dir": folder,
                "network": {"allow_hosts": [host]},
                "webhooks": [{"name": "audit", "url": f"{self.url}/hook", "secret": SECRET, **webhook}],
            }
        )


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    app = Starlette(routes=[Route("/hook", endpoint=receiver.__call__, methods=["POST"])])
    async with listening(app) as url:
        receiver.url = url
        yield receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def logged(folder: Path) -> list[int]:
    async with Toolbox(settings=Settings(data_dir=folder)) as box:
        return [event.id for event in await box.store.events.read(limit=100_000)]


async def test_a_receiver_gets_every_event_in_order_and_continues_after_a_restart(
    receiver: Receiver, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    async with Toolbox(tools=[add], settings=receiver.settings(folder)) as box:
        await box.call("add", {"a": 1, "b": 2}, user="acme:ann")
    async with Toolbox(tools=[add], settings=Settings(data_dir=folder)) as box:  # nobody sends meanwhile
        await box.call("add", {"a": 2, "b": 2}, user="acme:ann")
    async with Toolbox(tools=[add], settings=receiver.settings(folder)) as box:
        await box.call("add", {"a": 3, "b": 2}, user="acme:ann")

    assert receiver.ids == await logged(folder)
    assert len({message_id for message_id, _ in receiver.messages}) == len(receiver.messages) == 9
    last = receiver.messages[-1][1]
    assert last["type"] == "TOOL_CALL_COMPLETED"
    assert (last["data"]["tenant"], last["data"]["user"], last["data"]["payload"]["summary"]) == ("acme", "ann", 5)


@pytest.mark.waits
async def test_a_receiver_that_fails_gets_the_same_event_again_while_calls_and_other_webhooks_continue(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with receiving() as well:
        settings = receiver.settings(tmp_path / "data", events=["TOOL_CALL_COMPLETED"])
        other = well.settings(None, name="other", previous_secret=SECRET, secret=OTHER)
        both = settings.model_copy(update={"webhooks": [*settings.webhooks, *other.webhooks]})
        both = both.model_copy(update={"network": settings.network.model_copy(update={"allow_private": True})})
        receiver.answers += [Response(status_code=503, headers={"Retry-After": "1"}), Response(status_code=500)]
        async with Toolbox(tools=[add], settings=both) as box:
            for number in range(3):
                await box.call("add", {"a": number, "b": 0})
            # The receiver has the event before the sender has the receiver's answer.
            while not (all_failing := [one for one in await box.webhooks.states() if one["state"] == "failing"]):
                await asyncio.sleep(0.01)
            [failing] = all_failing
            problems = list(box.problems)
            await well.until(lambda: len(well.messages) == 9)
            await receiver.until(lambda: len(receiver.messages) == 5)

    assert (failing["name"], failing["failures"], failing["behind"] > 0) == ("audit", 1, True)
    assert "503" in failing["error"]
    assert [one for one in problems if one.startswith("webhook 'audit' has failed 1 times")]
    first, *again = [message_id for message_id, _ in receiver.messages]
    assert again[:2] == [first, first]
    assert [message["data"]["payload"]["summary"] for _, message in receiver.messages] == [0, 0, 0, 1, 2]


async def test_events_are_filtered_and_redacted_and_a_question_comes_with_its_card(
    receiver: Receiver, tmp_path: Path
) -> None:
    filters = {"events": ["APPROVAL_*"], "tools": ["dr*"], "principals": ["acme:*"]}
    async with Toolbox(tools=[add, drop], settings=receiver.settings(tmp_path / "data", **filters)) as box:
        await box.call("add", {"a": 1, "b": 1}, user="acme:ann")
        await box.call("drop", {"name": "t", "password": "hunter2hunter2"}, user="beta:eve")
        paused = await box.call("drop", {"name": "t", "password": "hunter2hunter2"}, user="acme:ann")

    [(_, message)] = receiver.messages
    assert message["data"]["card"]["call_id"] == paused.call_id
    assert message["data"]["card"]["asked_by"] == "acme:ann"
    assert "hunter2" not in str(message)


@pytest.mark.waits
async def test_closing_leaves_the_events_of_a_slow_receiver_to_the_next_process_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, may_answer = asyncio.Event(), asyncio.Event()

    async def answer_late(_request: Request) -> Response:
        hanging.set()
        await may_answer.wait()
        return Response(status_code=204)

    folder = tmp_path / "data"
    late = Starlette(routes=[Route("/hook", answer_late, methods=["POST"])])
    async with receiving() as receiver, listening(late) as slow:
        settings, url = receiver.settings(folder), receiver.url
        receiver.url = slow
        async with Toolbox(tools=[add], settings=receiver.settings(folder)) as box:
            await box.call("add", {"a": 1, "b": 2})
            await hanging.wait()
        receiver.url = url
        async with Toolbox(tools=[add], settings=settings):
            await receiver.until(lambda: receiver.has(3))
        may_answer.set()

    assert receiver.ids == await logged(folder)
    assert caplog.messages == ["webhook 'audit' answers slowly; the next process sends what is left"]


async def test_a_private_address_is_refused_unless_the_network_allows_it(receiver: Receiver, tmp_path: Path) -> None:
    refused = receiver.settings(tmp_path / "data").model_copy(update={"network": Settings().network})
    async with Toolbox(tools=[add], settings=refused) as box:
        await box.call("add", {"a": 1, "b": 1})
        while not (state := (await box.webhooks.states())[0])["failures"]:
            await asyncio.sleep(0)

    assert receiver.messages == []
    assert "allow_hosts" in state["error"]


async def test_a_receiver_that_is_gone_is_asked_no_more(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers.append(Response(status_code=410))
    async with Toolbox(tools=[add], settings=receiver.settings(tmp_path / "data")) as box:
        await box.call("add", {"a": 1, "b": 1})
        while (state := (await box.webhooks.states())[0])["state"] != "gone":
            await asyncio.sleep(0)

    assert len(receiver.messages) == 1
    assert state["next_try_at"] is None


async def test_one_of_two_processes_sends_and_the_other_continues_when_it_ends(
    receiver: Receiver, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    async with Toolbox(tools=[add], settings=receiver.settings(folder)) as left:
        async with Toolbox(tools=[add], settings=receiver.settings(folder)) as right:
            await left.call("add", {"a": 1, "b": 1})
            await right.call("add", {"a": 2, "b": 1})
            await receiver.until(lambda: len(receiver.messages) == 6)
        await left.call("add", {"a": 3, "b": 1})
        await receiver.until(lambda: len(receiver.messages) == 9)

    assert [message["data"]["id"] for _, message in receiver.messages] == await logged(folder)


async def test_webhooks_come_and_go_with_the_configuration(receiver: Receiver, tmp_path: Path) -> None:
    config, plain = tmp_path / "toolpost.yaml", "builtins: none\nnetwork: {allow_private: true}\n"
    config.write_text(plain)
    async with Toolbox.open(config, tools=[add]) as box:
        await box.call("add", {"a": 1, "b": 1})
        await box.store.events.flush()
        config.write_text(f"{plain}webhooks: [{{name: audit, url: '{receiver.url}/hook', secret: {SECRET}}}]\n")
        added = await box.reload()
        await receiver.until(lambda: len(receiver.messages) == 1)
        config.write_text(plain)
        removed = await box.reload()
        await box.call("add", {"a": 1, "b": 1})

    assert added.applied == removed.applied == ["webhooks"]
    assert [one["type"] for _, one in receiver.messages] == ["CONFIG_APPLIED"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"secret": "whsec_c2hvcnQ="}, "must be whsec_ and the base64 of at least 24 random bytes"),
        ({"secret": "not base64 at all!"}, "must be whsec_"),
        ({"events": ["TOOL_CALL_ENDED"]}, "none matches 'TOOL_CALL_ENDED'"),
        ({"url": "ftp://example.com"}, "webhooks[0].url"),
    ],
)
def test_a_wrong_webhook_is_refused_by_name_and_its_secret_is_not_shown(change: dict[str, Any], told: str) -> None:
    entry = {"name": "audit", "url": "https://example.com/hook", "secret": SECRET, **change}
    with pytest.raises(ConfigError) as refused:
        parse_settings({"webhooks": [entry]})

    assert told in str(refused.value)
    assert str(entry["secret"]) not in str(refused.value)


@pytest.mark.programs
async def test_no_event_is_lost_when_the_sender_is_killed(receiver: Receiver, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for most in (20, 60):
        with Program(Path(__file__).with_name("webhook_sender.py"), str(folder), receiver.url) as process:
            await receiver.until(partial(receiver.has, most))
            process.kill()
    async with Toolbox(settings=receiver.settings(folder)) as box:
        newest = (await box.store.events.read(limit=1, newest=True))[0].id
        await receiver.until(lambda: receiver.ids[-1] >= newest)

    everything = await logged(folder)
    assert receiver.ids == everything
