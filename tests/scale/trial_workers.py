"""Workers on a real PostgreSQL with what must not stop them; `make test-scale` runs this."""

import asyncio
import base64
import json
import os
import pickle
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.postgres.databases import new_database
from tests.postgres.server import restartable, running
from tests.scale.workers import ANN, Deployment, job, outcome_of
from toolpost.contracts.errors import StoreError, ToolRateLimitError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.contracts.principal import Principal
from toolpost.toolbox.box import Toolbox

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.waits]
LATE_S = 90
# An agent whose model notes each reply that it writes; one of them takes until a file exists.
AGENT = '''
from functools import partial
from pathlib import Path
from toolpost import Paused, ToolContext, model_text

async def ask(request, messages):
    number = sum(one["role"] == "assistant" for one in messages)
    note(f"{request}-reply-{number}")
    if number == 2:
        while request == "hang" and not Path(__file__).with_name("released").exists():
            await asyncio.sleep(0.05)
        return {"role": "assistant", "content": f"done: {messages[-1]['content']}"}
    function = {"name": "local.drop" if number and request != "hang" else "local.fetch"}
    return {"role": "assistant", "calls": [{**function, "arguments": {"name": f"{request}-{function['name']}"}}]}

@tool(side_effects="external", destructive=False, timeout_s=600)
async def assistant(name: str, ctx: ToolContext) -> str:
    """Answer a request with tools."""
    messages = [{"role": "user", "content": name}]
    while True:
        turn = len(messages)
        messages.append(reply := await ctx.once(f"reply {turn}", partial(ask, name, messages), repeatable=True))
        if not (calls := reply.get("calls")):
            return reply["content"]
        outcomes = [await ctx.call(one["name"], one["arguments"], key=str(turn)) for one in calls]
        if waiting := [one for one in outcomes if isinstance(one, Paused)]:
            ctx.wait_for(*waiting)
        messages += [{"role": "tool", "content": model_text(one)} for one in outcomes]
'''
COLUMNS = "name, queue_name, queue_partition_key, application_name, priority, created_at"


@pytest.fixture
def deployment(postgres_url: str, tmp_path: Path) -> Deployment:
    return Deployment(tmp_path, postgres_url, concurrency=4)


async def ends(box: Toolbox, *names: str, who: Principal = ANN) -> list[Outcome]:
    """Wait until the runs of these names have outcomes."""
    async with asyncio.timeout(LATE_S):
        found: dict[str, Outcome] = {}
        while left := [name for name in names if name not in found]:
            with suppress(StoreError):  # the server may be away
                for name in left:
                    if (outcome := await outcome_of(box, name, who=who)) is not None:
                        found[name] = outcome
            await asyncio.sleep(0.1)
    return [found[name] for name in names]


class Evil:
    """What is unpickled creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.req("SCALE-07")
async def test_a_row_with_pickled_data_runs_no_code_and_its_job_is_run_all_the_same(
    deployment: Deployment, postgres_url: str, tmp_path: Path
) -> None:
    flag = tmp_path / "code-ran"
    bad = base64.b64encode(pickle.dumps({"args": (Evil(flag),), "kwargs": {}})).decode()
    async with deployment.client() as box:
        with deployment.worker("--queues", "calls"):
            await box.engine.enqueue(job("blocker", seconds=1.0))
            await ends(box, "blocker")
        await box.engine.enqueue(job("evil"))
        with psycopg.connect(postgres_url, autocommit=True) as db:
            columns = f"{COLUMNS}, serialization"
            db.execute(
                f"INSERT INTO dbos.workflow_status (workflow_uuid, status, {columns}) "
                f"SELECT 'run:evil:0', 'ENQUEUED', {COLUMNS}, 'py_pickle' "
                "FROM dbos.workflow_status WHERE workflow_uuid = 'run:blocker:0'".encode()
            )
            db.execute("INSERT INTO dbos.workflow_input (workflow_uuid, inputs) VALUES ('run:evil:0', %s)", (bad,))
        with deployment.worker("--queues", "calls"):
            [outcome] = await ends(box, "evil")

    assert not flag.exists()
    assert isinstance(outcome, Completed)
    assert deployment.effects()["evil"] == 1


@pytest.mark.req("SCALE-07")
async def test_a_worker_opens_no_port_and_ignores_variables_of_conductor(deployment: Deployment) -> None:
    async with deployment.client() as box:
        await box.engine.enqueue(job("one"))
        conductor = {
            "DBOS__CLOUD": "true",
            "DBOS__CONDUCTOR_KEY": "secret-canary",
            "DBOS__CONDUCTOR_URL": "wss://127.0.0.1:1/conductor",
            "DBOS__CONDUCTOR_APP_NAME": "x",
        }
        with deployment.worker(**conductor) as worker:
            [outcome] = await ends(box, "one")
            sockets = worker.seen.net_connections(kind="inet")
            code = worker.stop()

    assert isinstance(outcome, Completed)
    assert sockets == []
    assert code == 0
    assert "DBOS__CONDUCTOR_KEY is ignored" in worker.text
    assert "secret-canary" not in worker.text


@pytest.mark.req("SCALE-07")
async def test_an_entry_of_another_version_and_a_poisoned_one_do_not_stop_a_queue(
    deployment: Deployment, postgres_url: str
) -> None:
    async with deployment.client() as box:
        with deployment.worker():
            await box.engine.enqueue(job("first"))
            await ends(box, "first")
        await box.engine.enqueue(job("older"))
        with psycopg.connect(postgres_url, autocommit=True) as db:
            columns = f"{COLUMNS}, serialization"
            template = (
                f"INSERT INTO dbos.workflow_status (workflow_uuid, status, {columns}, application_version) "
                f"SELECT %s, 'ENQUEUED', {columns}, %s "
                "FROM dbos.workflow_status WHERE workflow_uuid = 'run:first:0'"
            ).encode()
            given = json.dumps({"args": [{"no": "job"}], "kwargs": {}})
            for name, version, inputs in (
                ("run:older:0", "0-of-long-ago", json.dumps({"args": ["run:older:0"], "kwargs": {}})),
                ("poison-1", None, given),
                ("poison-2", None, "no JSON {"),
                ("poison-3", None, json.dumps({"args": ["run:gone:0"], "kwargs": {}})),
            ):
                db.execute(template, (name, version))
                db.execute("INSERT INTO dbos.workflow_input (workflow_uuid, inputs) VALUES (%s, %s)", (name, inputs))
        with deployment.worker() as worker:
            await box.engine.enqueue(job("last"))
            outcomes = await ends(box, "last", "older")

    assert [type(one) for one in outcomes] == [Completed, Completed]
    assert "names no job" in worker.text


@pytest.mark.req("SCALE-04")
async def test_a_run_whose_tool_is_gone_fails_and_the_others_continue(deployment: Deployment) -> None:
    async with deployment.client() as box:
        with deployment.worker():
            for name, tool in (("gone", "local.removed"), ("unknown", "other.tool"), ("fine", "local.fetch")):
                await box.engine.enqueue(job(name, tool))
            outcomes = await ends(box, "gone", "unknown", "fine")

    assert [type(one) for one in outcomes] == [Failed, Failed, Completed]
    assert "local.removed" in str(outcomes[0])


@pytest.mark.req("SCALE-03")
async def test_a_full_queue_refuses_and_tenants_get_no_more_than_their_share(postgres_url: str, tmp_path: Path) -> None:
    limits = {"max_waiting_per_tenant": 3, "max_running_per_tenant": 1, "concurrency": 4}
    deployment = Deployment(tmp_path, postgres_url, **limits)
    names, eve = ["a-1", "a-2", "a-3"], Principal("evil", "eve")
    async with deployment.client() as box:
        for name in names:
            await box.engine.enqueue(job(name, seconds=0.5))
        with pytest.raises(ToolRateLimitError, match="is full"):
            await box.engine.enqueue(job("a-4"))
        await box.engine.enqueue(job("e-1", who=eve, seconds=0.5))
        with deployment.worker(), deployment.worker():
            await ends(box, *names)
            await ends(box, "e-1", who=eve)
    at = {line.split()[0]: float(line.split()[2]) for line in deployment.ledger.read_text().splitlines()}
    times = sorted(at[name] for name in names)

    assert [later - earlier >= 0.5 for earlier, later in pairwise(times)] == [True, True]


@pytest.mark.req("SCALE-02")
async def test_an_answer_is_carried_out_by_a_worker(deployment: Deployment) -> None:
    async with deployment.client() as box:
        with deployment.worker():
            await box.engine.enqueue(job("table", "local.drop"))
            [paused] = await ends(box, "table")
            assert isinstance(paused, Paused)
            approved = await box.approve(paused.pending_id, by="acme:boss")
        continued = await box.store.jobs.of_run("table", tenant=ANN.tenant)

    assert isinstance(approved, Completed)
    assert continued is not None
    assert continued.id == "run:table:1"
    assert deployment.effects() == {"table": 1}
    assert deployment.worker_of()["table"] != os.getpid()


@pytest.mark.req("SCALE-08")
async def test_an_agent_run_continues_on_another_worker_and_repeats_no_reply_of_its_model(
    deployment: Deployment,
) -> None:
    with (deployment.folder / "tools.py").open("a") as tools:
        tools.write(AGENT)
    async with deployment.client() as box:
        with deployment.worker() as first:
            await box.engine.enqueue(job("ask", "local.assistant"))
            [paused] = await ends(box, "ask")
            await box.engine.enqueue(job("hang", "local.assistant"))
            while not deployment.effects()["hang-reply-2"]:
                await asyncio.sleep(0.05)
            before = deployment.worker_of()
            first.kill()
        (deployment.folder / "released").touch()
        with deployment.worker():
            assert isinstance(paused, Paused)
            approved = await box.approve(paused.pending_id, by="acme:boss")
            [interrupted] = await ends(box, "hang")
            assert isinstance(interrupted, Paused)
            continued = await box.answer(interrupted.pending_id, by="acme:boss", decision="rerun")
    effects, after = deployment.effects(), deployment.worker_of()

    assert isinstance(approved, Completed)
    assert approved.content == "done: ask-local.drop"
    assert [effects[f"ask-reply-{number}"] for number in range(3)] == [1, 1, 1]
    # Only the reply that was being written when the worker was killed is requested again.
    assert isinstance(continued, Completed)
    assert [effects[f"hang-reply-{number}"] for number in range(3)] == [1, 1, 2]
    assert after["ask-reply-2"] == after["hang-reply-2"] != before["ask-reply-0"]


@pytest.mark.req("SCALE-06")
async def test_a_database_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with restartable() as (server, kill_and_start):
        deployment = Deployment(tmp_path, new_database(server), concurrency=8)
        names = [f"read-{number}" for number in range(40)]
        paid = [f"pay-{number}" for number in range(10)]
        async with deployment.client() as box:
            with deployment.worker(), deployment.worker():
                for name in names:
                    await box.engine.enqueue(job(name, seconds=0.3))
                for name in paid:
                    await box.engine.enqueue(job(name, "local.pay", seconds=0.1))
                while len(deployment.effects()) < 10:
                    await asyncio.sleep(0.05)
                await asyncio.to_thread(kill_and_start)
                began = time.monotonic()
                outcomes = await ends(box, *names, *paid)

    assert time.monotonic() - began < LATE_S
    assert {type(one) for one in outcomes[: len(names)]} == {Completed}
    assert {type(one) for one in outcomes[len(names) :]} <= {Completed, Paused}
    assert all(deployment.effects()[name] <= 1 for name in paid)


@pytest.mark.req("SCALE-06")
async def test_a_worker_whose_database_is_away_can_be_stopped(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with running() as server:
            deployment = Deployment(tmp_path, new_database(server))
            worker = stack.enter_context(deployment.worker("--shutdown-limit", "1"))
            async with deployment.client() as box:
                await box.engine.enqueue(job("pay", "local.pay", seconds=3.0))
                while not deployment.effects()["pay"]:
                    await asyncio.sleep(0.05)
        code = worker.stop()

    assert code == 0
    assert "left to another process" in worker.text
