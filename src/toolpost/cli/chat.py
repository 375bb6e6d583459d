"""`toolpost chat`: a conversation with a chat model that calls tools, at the terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from toolpost.cli.agent import Instructions, Limits, Mode, Model, Tools, agent_sources, open_agent, read_options
from toolpost.cli.commands import Config, Json, User
from toolpost.cli.output import Output, count, count_tools, show_tools
from toolpost.cli.prompts import is_interactive, read_line
from toolpost.cli.runner import run_with_box
from toolpost.contracts.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from toolpost.agents.results import PlannerResult
    from toolpost.cli.agent import TerminalAgent
    from toolpost.contracts.storage import PlannerStateStore
    from toolpost.toolbox.box import Toolbox

_BLOCK = '"""'
_HELP = f"""\
/tools  the tools that the model can call
/new    begin a new conversation
/quit   end it, as Ctrl-D does
{_BLOCK}     begins and ends a text of several lines
Ctrl-C stops the model and its calls."""

Keep = Annotated[
    str | None,
    typer.Option("--keep", metavar="NAME", help="Keep the conversation in the data folder, and go on with it later."),
]


def chat(
    model: Model = None,
    tools: Tools = None,
    budget: Limits = None,
    mode: Mode = "native",
    instructions: Instructions = None,
    keep: Keep = None,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Talk to a chat model that calls tools.

    /help tells what else can be written. The conversation is not kept, unless --keep names it. The budget is that of
    one request.
    """
    options = read_options(model, tools, budget, mode, instructions)
    if not is_interactive():
        raise typer.BadParameter("there is no terminal to talk at; `toolpost run REQUEST` needs none")

    async def work(box: Toolbox, output: Output) -> int:
        history = History(box, user, keep)
        messages = await history.load()
        async with open_agent(box, output, options, user) as agent:
            before = sum(message["role"] == "user" for message in messages)
            output.note(f"{agent.model_name} with {count_tools(len(agent.tools))}. /help tells what can be written.")
            if before:
                output.note(f"The conversation {keep!r} goes on after {count(before, 'request')}; /new begins another.")
            await _talk(agent, output, history, messages)
        return 0

    run_with_box(work, config=config, user=user, as_json=json, sources=agent_sources(options))


class History:
    """The messages of a conversation, sealed in the data folder under a name; without a name they are not kept."""

    def __init__(self, box: Toolbox, user: str, name: str | None) -> None:
        if name is not None and box.settings.data_dir is None:
            raise ConfigError("--keep needs a data folder, and `data_dir: null` keeps everything in memory")
        self._state = cast("PlannerStateStore", box.store.state)
        self._user = user
        self._key = None if name is None else f"chat:{user}:{name}"

    async def load(self) -> list[dict[str, Any]]:
        """Return the messages so far."""
        kept = {} if self._key is None else await self._state.load_planner_state(self._key)
        messages: list[dict[str, Any]] = kept.get("messages", [])
        return messages

    async def save(self, messages: list[dict[str, Any]]) -> None:
        """Store the messages in place of those before."""
        if self._key is not None:
            await self._state.save_planner_state(self._key, {"user": self._user, "messages": messages})


async def _talk(agent: TerminalAgent, output: Output, history: History, messages: list[dict[str, Any]]) -> None:
    """Take turns until the person ends the conversation."""
    while (request := await _read_request()) not in (None, "/quit"):
        if request == "/tools":
            show_tools([*agent.tools], output)
        elif request == "/new":
            messages = []
            await history.save(messages)
            output.note("A new conversation begins.")
        elif request.startswith("/"):
            output.note(_HELP)
        else:
            messages = await _take_turn(agent, request, messages)
            await history.save(messages)


async def _read_request() -> str | None:
    """Read a request, which may have several lines; None at the end of input."""
    lines: list[str] = []
    while not lines or not _is_whole(lines):
        written = await read_line(". " if lines else "> ")
        if written is None:
            return None
        if lines or written.strip():
            lines.append(written)
    text = "\n".join(lines).strip()
    return text.removeprefix(_BLOCK).removesuffix(_BLOCK).strip() if text.startswith(_BLOCK) else text


def _is_whole(lines: list[str]) -> bool:
    """Return whether the text ends here: at once, or where the block that it began ends."""
    text = "\n".join(lines).strip()
    return not text.startswith(_BLOCK) or (len(text) >= 2 * len(_BLOCK) and text.endswith(_BLOCK))


async def _take_turn(agent: TerminalAgent, request: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answer one request and return the conversation after it, or as it was where there is no answer."""
    from toolpost.agents.results import PlannerFinish

    try:
        result = await _interruptible(agent.run(request, messages))
    except ToolError as error:
        agent.show_failure(error)
        return messages
    if result is None:
        agent.show_cancelled()
        return messages
    await agent.show(result)
    return result.messages if isinstance(result, PlannerFinish) else messages


async def _interruptible(work: Coroutine[Any, Any, PlannerResult]) -> PlannerResult | None:
    """Wait for a turn, which Ctrl-C ends while the conversation goes on; None for one that was ended."""
    turn, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    interrupted = asyncio.Event()

    def interrupt(*_: object) -> None:
        interrupted.set()
        loop.call_soon_threadsafe(turn.cancel)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        return await turn
    except asyncio.CancelledError:
        if interrupted.is_set():
            return None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
