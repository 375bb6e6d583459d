"""Pauses outlive the process that asked, as far as what keeps them does; many people share one planner."""

import asyncio
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests import warm
from tests.agents import shop
from tests.auth.ledger import Ledger, hub
from tests.patient_settings import PatientSettings
from tests.stores.state_stores import DatabaseState, EventsOnly, OverwritingState
from toolpost import (
    AuthType,
    ConfigError,
    ExternalToolConfig,
    PlannerFinish,
    PlannerPause,
    ReactPlanner,
    Settings,
    Toolbox,
    ToolContext,
    ToolError,
    TransportType,
    tool,
)
from toolpost.auth import ManagedCredentials
from toolpost.sources import Answer
from toolpost.testing import ScriptedModel, tool_calls

ROOT = Path(__file__).parent.parent.parent
SHOP = Path(shop.__file__)
TOKEN = "a-token-of-the-callers-own"
QUIET = Settings(data_dir=None, policy="exploratory")

HOST = dedent(
    """
    import asyncio, sys
    from pathlib import Path

    from toolpost.testing import ScriptedModel, tool_calls
    from toolpost import ReactPlanner, Settings, Toolbox, ToolContext, tool

    folder = Path(sys.argv[1])

    @tool(side_effects="write")
    async def pay(euro: int, ctx: ToolContext) -> str:
        async def charge():
            with (folder / "ledger").open("a") as ledger:
                ledger.write(f"charge {euro}\\n")

        await ctx.once("charge", charge)
        code = await ctx.pause("await_input", {"prompt": "Which code?"})
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"pay {euro} with {code}\\n")
        return f"paid, in {ctx.tool_context['lang']} by {ctx.tool_context['device']}"

    async def main():
        async with Toolbox(tools=[pay], settings=Settings(data_dir=folder / "data")) as box:
            if sys.argv[2] == "run":
                planner = ReactPlanner(catalog=box, llm=ScriptedModel(tool_calls(("pay", {"euro": 50}))))
                context = {"user_id": "acme:ann", "lang": "de", "device": "phone"}
                paused = await planner.run("Pay 50 euro.", tool_context=context)
                print(paused.resume_token, flush=True)
                await asyncio.Event().wait()
            model = ScriptedModel("Paid.")
            planner = ReactPlanner(catalog=box, llm=model)
            result = await planner.resume(sys.argv[2], "1234", tool_context={"device": "desk"})
            print(result.reason, "-", *model.results, "-", model.requests[-1][1]["content"], flush=True)

    asyncio.run(main())
    """
)


@pytest.mark.programs
@pytest.mark.req("OAUTH-23", "OAUTH-28")
def test_a_run_whose_process_was_killed_is_resumed_in_another(tmp_path: Path) -> None:
    program = tmp_path / "host.py"
    program.write_text(HOST)
    with warm.Program(program, str(tmp_path), "run") as host:
        token = host.stdout.readline().strip()
        host.kill()

    said = [_resumed(program, token) for _ in range(2)]

    assert said[0].stdout.strip() == "answer_complete - paid, in de by desk - Pay 50 euro.", said[0].stderr
    assert "KeyError: 'this pause was resumed before'" in said[1].stderr
    assert (tmp_path / "ledger").read_text() == "charge 50\npay 50 with 1234\n"


def _resumed(program: Path, token: str) -> subprocess.CompletedProcess[str]:
    command = warm.command(program, str(program.parent), token)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.programs
@pytest.mark.parametrize("where", ["model", "call"])
async def test_a_kill_in_the_middle_of_resume_loses_nothing_and_repeats_nothing(where: str, tmp_path: Path) -> None:
    model = ScriptedModel("The owl is on its way.")
    with warm.Program(SHOP, str(tmp_path), where) as victim:
        token, _ = victim.stdout.readline().strip(), victim.stdout.readline()
        async with shop.opened(tmp_path) as box:
            planner = ReactPlanner(catalog=box, llm=model)
            with pytest.raises(KeyError, match="is being resumed"):
                await planner.resume(token, "1234")
            victim.kill()
            result = await planner.resume(token, "1234")
            if isinstance(result, PlannerPause):
                assert (where, result.kind, result.tool_name) == ("call", "unknown", "ship")
                result = await planner.resume(result.resume_token, Answer(decision="happened", value="owl shipped"))
            with pytest.raises(KeyError, match="resumed before"):
                await planner.resume(token, "1234")
    assert result.payload == {"answer": "The owl is on its way."}
    assert model.results == ["paid 50", "owl shipped"]
    assert (tmp_path / "ledger").read_text() == "pay 50 with 1234\nship owl\n"


@pytest.mark.programs
@pytest.mark.parametrize("where", ["model", "call"])
async def test_a_run_that_began_with_a_token_continues_after_a_kill(where: str, tmp_path: Path) -> None:
    with warm.Program(SHOP, str(tmp_path), where, TOKEN) as victim:
        victim.stdout.readline()
        victim.kill()
    model = ScriptedModel("The owl is on its way.")
    async with shop.opened(tmp_path) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        result = await planner.resume(TOKEN)
        if isinstance(result, PlannerPause):
            assert (where, result.kind, result.tool_name) == ("call", "unknown", "ship")
            result = await planner.resume(result.resume_token, Answer(decision="happened", value="owl shipped"))
        with pytest.raises(KeyError, match="resumed before"):
            await planner.resume(TOKEN)
        with pytest.raises(KeyError, match="another run has or had this token"):
            await planner.run("Ship an owl.", resume_token=TOKEN)
    assert result.payload == {"answer": "The owl is on its way."}
    assert sorted(model.results) == ["9 of owl left", "owl shipped"]
    assert model.requests[0][1]["content"] == "Ship an owl."
    assert (tmp_path / "ledger").read_text() == "ship owl\n"


@pytest.mark.parametrize("state_store", [None, OverwritingState(), EventsOnly()])
async def test_a_run_whose_model_fails_continues_with_the_token_it_began_with(state_store: Any) -> None:
    async with Toolbox(tools=[shop.stock], settings=QUIET) as box:
        failing = ScriptedModel(tool_calls(("stock", {"what": "owls"})), ConnectionError("no model there"), "Nine.")
        planner = ReactPlanner(catalog=box, llm=failing, state_store=state_store)
        with pytest.raises(ToolError, match="no model there"):
            await planner.run("Count the owls.", resume_token=TOKEN)
        finish = await planner.resume(TOKEN)

    assert isinstance(finish, PlannerFinish)
    assert (finish.answer, finish.metadata["tool_calls"], failing.results) == ("Nine.", 1, ["9 of owls left"])


async def test_a_token_of_the_callers_cannot_be_one_that_is_guessed() -> None:
    planner = ReactPlanner(catalog=[shop.stock], llm=ScriptedModel("Nine."), settings=QUIET)
    with pytest.raises(ConfigError, match="resume_token is too short"):
        await planner.run("Count the owls.", resume_token="job-1")
    await planner.close()


@tool(side_effects="external", destructive=False)
async def publish(text: str, ctx: ToolContext) -> str:
    """Publish something."""
    if not ctx.tool_context.get("oauth_ready"):
        await ctx.pause("external_event", {"pause_type": "oauth", "auth_url": "https://example.invalid/canary"})
    return f"published {text} under {ctx.idempotency_key}"


@pytest.mark.req("STATE-05", "OAUTH-28")
async def test_where_the_question_is_unknown_the_same_call_is_made_again(tmp_path: Path) -> None:
    said: list[str] = []
    theirs = DatabaseState(tmp_path / "theirs.db")
    async with Toolbox(tools=[publish], settings=QUIET) as box:
        pause = await ReactPlanner(
            catalog=box, llm=ScriptedModel(tool_calls(("publish", {"text": "news"}))), state_store=theirs
        ).run("Publish.", tool_context={"user_id": "acme:ann"})
    assert isinstance(pause, PlannerPause)
    assert b"canary" not in (tmp_path / "theirs.db").read_bytes()
    for ready in (False, True):
        model = ScriptedModel("It is published.")
        async with Toolbox(tools=[publish], settings=QUIET) as box:
            planner = ReactPlanner(catalog=box, llm=model, state_store=theirs)
            result = await planner.resume(pause.resume_token, tool_context={"oauth_ready": ready})
        if isinstance(result, PlannerPause):
            assert result.payload == pause.payload
            pause = result
        else:
            said += model.results
    theirs.close()
    assert len(said) == 1
    assert said[0].startswith("published news under plan_")


@pytest.mark.req("OAUTH-28")
async def test_a_state_store_that_cannot_keep_pauses_keeps_them_for_the_process_only() -> None:
    async with Toolbox(tools=[publish], settings=QUIET) as box:
        lines = (tool_calls(("publish", {"text": "news"})), "Done.")
        first, second = (
            ReactPlanner(catalog=box, llm=ScriptedModel(*lines), state_store=EventsOnly()) for _ in range(2)
        )
        pause = await first.run("Publish.")
        assert isinstance(pause, PlannerPause)
        with pytest.raises(KeyError):
            await second.resume(pause.resume_token)
        assert isinstance(await first.resume(pause.resume_token), PlannerFinish)


async def test_a_pause_that_could_not_be_kept_is_not_reported_as_one() -> None:
    class Down(OverwritingState):
        async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
            raise OSError("the database is gone")

    async with Toolbox(tools=[publish], settings=QUIET) as box:
        planner = ReactPlanner(
            catalog=box, llm=ScriptedModel(tool_calls(("publish", {"text": "news"}))), state_store=Down()
        )
        with pytest.raises(OSError, match="the database is gone"):
            await planner.run("Publish.")


@pytest.mark.req("GEN-03", "OAUTH-17", "OAUTH-18")
@pytest.mark.parametrize(("signed_in", "shown"), [(True, "created Bug"), (False, "OAuth for github was not completed")])
async def test_a_source_for_peoples_own_accounts_pauses_the_run(signed_in: bool, shown: str) -> None:
    ledger, (server, created) = Ledger(), hub()
    config = ExternalToolConfig(
        name="github", transport=TransportType.MCP, connection="memory:hub", auth_type=AuthType.OAUTH2_USER
    )
    box = Toolbox(
        settings=PatientSettings(data_dir=None, policy="exploratory", sources=[config]),
        credentials={"github": ManagedCredentials(ledger, "github")},
        servers={"github": server},
    )
    model = ScriptedModel(tool_calls(("github__create", {"title": "Bug"})), "Done.")
    async with box:
        planner = ReactPlanner(catalog=box, llm=model)
        pause = await planner.run("File it.", tool_context={"user_id": "acme:ann", "trace_id": "t1"})
        assert isinstance(pause, PlannerPause)
        assert (pause.reason, pause.kind, pause.tool_name) == ("external_event", "consent", "github.create")
        assert (pause.payload["pause_type"], pause.payload["provider"]) == ("oauth", "github")
        assert ledger.asked == [("github", "acme:ann", "t1")]
        if signed_in:
            ledger.tokens["acme:ann", "github"] = "canary-token"
        result = await planner.resume(pause.resume_token, tool_context={"user_id": "acme:ann"})
    assert isinstance(result, PlannerFinish)
    assert shown in model.results[0]
    assert created == ["Bug"] * signed_in
    assert "canary" not in repr((model.requests, pause, result))


async def test_one_planner_serves_many_people_at_once() -> None:
    @tool(side_effects="read")
    async def whose(ctx: ToolContext) -> str:
        """Tell whose call it is."""
        word = await ctx.pause("await_input", {"prompt": f"{ctx.user_id}?"})
        return f"{ctx.user_id} {word} {ctx.tool_context['n']}"

    class Echo:
        async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
            await asyncio.sleep(0)
            last = messages[-1]
            return {"content": last["content"]} if last["role"] == "tool" else tool_calls(("whose", {}))

    async def one(n: int) -> Any:
        context = {"user_id": f"acme:u{n}", "n": n}
        pause = await planner.run("Who?", tool_context=context)
        assert isinstance(pause, PlannerPause)
        assert pause.prompt == f"acme:u{n}?"
        result = await planner.resume(pause.resume_token, f"word{n}", tool_context=context)
        return result.payload["answer"]

    async with Toolbox(tools=[whose], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=Echo())
        answers = await asyncio.gather(*(one(n) for n in range(20)))
    assert answers == [f"acme:u{n} word{n} {n}" for n in range(20)]
