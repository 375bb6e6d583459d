"""`toolpost run` and `toolpost chat`: a chat model that calls tools, with prompts for approvals and questions."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec import Struct

from toolpost.cli import completion
from toolpost.cli.arguments import parse_duration_option, read_text
from toolpost.cli.commands import CommonOptions
from toolpost.cli.output import Output, count, count_tools, format_json, show_tools
from toolpost.cli.prompts import EXIT_CODES, ask_at_terminal, describe_pause, is_interactive, read_line
from toolpost.cli.runner import FAILED, SourceSelection, run_with_box, selected_sources
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import Paused

if TYPE_CHECKING:
    from toolpost.agents.conversation import Budget
    from toolpost.agents.results import PlannerFinish, PlannerPause, PlannerResult
    from toolpost.cli.agent_view import AgentView
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.storage import EventSink
    from toolpost.toolbox.box import Toolbox


MODEL_VARIABLE = "TOOLPOST_MODEL"
_STEPS = 20
_NO_MODEL = (
    "no chat model is configured: give --model NAME, set TOOLPOST_MODEL, or write `model: NAME` into toolpost.yaml, "
    "for example gpt-4.1, claude-sonnet-4-5, ollama/llama3.2 or http://127.0.0.1:8080/v1#NAME"
)

Request = Annotated[str | None, typer.Argument(metavar="REQUEST", help="The task of the model; - reads it from stdin.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", envvar=MODEL_VARIABLE, help="The chat model, instead of `model` in toolpost.yaml."
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="NAME",
        help="Only these tools: names, collections, or patterns such as 'github.*'; several with commas.",
        autocompletion=completion.tool_words,
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="LIMITS",
        help=f"Limits of the run, for example steps=20,time=5m,tokens=50000,cost=0.50. [default: steps={_STEPS}]",
    ),
]
Mode = Annotated[
    Literal["native", "json"],
    typer.Option("--mode", help="json: for a model that cannot call functions and writes JSON instead."),
]
Instructions = Annotated[
    str | None, typer.Option("--instructions", metavar="TEXT", help="Instructions for the model: a text, or @FILE.")
]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="TOKEN", help="Resume a run that paused or was stopped.")
]
_BLOCK = '"""'
_HELP = f"""\
/tools  the tools that the model can call
/new    start a new conversation
/quit   end the conversation, like Ctrl-D
{_BLOCK}     starts and ends a text of several lines
Ctrl-C stops the model and its calls."""
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="NAME",
        help="Store the conversation in the data folder under this name, to continue it later.",
    ),
]


class AgentOptions(Struct, frozen=True, kw_only=True):
    """Options of `run` and `chat`; `words` select the tools."""

    model: str | None
    words: Sequence[str]
    budget: Budget
    mode: Literal["native", "json"]
    instructions: str | None

    def model_name(self, settings: Settings) -> str:
        """Return the name of the model; ConfigError where there is none."""
        name = self.model or settings.model
        if not name:
            raise ConfigError(_NO_MODEL, code="no_model")
        return name

    def given_budget(self) -> Budget | None:
        """Return the budget if it limits anything; None keeps the budget of a resumed run."""
        limits = self.budget
        said = any(limit is not None for limit in (limits.steps, limits.time_s, limits.tokens, limits.cost))
        return limits if said else None

    def to_words(self) -> list[str]:
        """Return the options for a command that resumes the run."""
        words = ["--model", self.model] if self.model else []
        words += [part for word in self.words for part in ("--tools", word)]
        return words if self.mode == "native" else [*words, "--mode", self.mode]


def run_agent(
    common: CommonOptions,
    request: Request = None,
    model: Model = None,
    tools: Tools = None,
    budget: Limits = None,
    mode: Mode = "native",
    instructions: Instructions = None,
    resume: Resume = None,
) -> None:
    """Let a chat model answer a request with tools.

    Questions and approvals are prompted at the terminal. Exits with 0 for an answer, 1 without one, and 3 if the run
    paused until someone answers.
    """
    options = read_options(model, tools, budget, mode, instructions)
    if (request is None) == (resume is None):
        both = "" if request is None else "; not both, because a resumed run keeps its request"
        raise typer.BadParameter(f"give a request, or --resume TOKEN{both}", param_hint="REQUEST")
    query = sys.stdin.read() if request == "-" else request or ""
    if resume is None and not query.strip():
        raise typer.BadParameter("the request is empty", param_hint="REQUEST")

    async def work(box: Toolbox, output: Output) -> int:
        async with open_agent(box, output, options, common.user) as agent:
            try:
                result = await (agent.begin(query) if resume is None else agent.resume(resume))
            except ToolError as error:
                return agent.show_failure(error)
            except asyncio.CancelledError:
                agent.show_cancelled()
                raise
            return await agent.show(result)

    run_with_box(work, common, agent_sources(options))


def read_options(
    model: str | None,
    tools: Sequence[str] | None,
    budget: Sequence[str] | None,
    mode: Literal["native", "json"],
    instructions: str | None,
) -> AgentOptions:
    """Read the options that both commands have; raise a BadParameter for a wrong one."""
    words = [word.strip() for option in tools or () for word in option.split(",") if word.strip()]
    text = None if instructions is None else read_text(instructions, option="--instructions")
    return AgentOptions(model=model, words=words, budget=parse_budget(budget or ()), mode=mode, instructions=text)


def parse_budget(written: Sequence[str]) -> Budget:
    """Parse limits such as `steps=20,time=5m`; raise a BadParameter for anything else."""
    from toolpost.agents.conversation import Budget

    parsers: dict[str, Callable[[str], float]] = {
        "steps": int,
        "time": parse_duration_option,
        "tokens": int,
        "cost": lambda text: float(text.lstrip("$")),
    }
    limits: dict[str, Any] = {}
    for pair in (part.strip() for text in written for part in text.split(",")):
        name, _, value = pair.partition("=")
        if name not in parsers:
            message = (
                f"{pair!r} is not a limit; write steps=20, time=5m, tokens=50000 or cost=0.50, with commas between"
            )
            raise typer.BadParameter(message, param_hint="--budget")
        try:
            limits["time_s" if name == "time" else name] = parsers[name](value.replace("_", ""))
        except ValueError:
            raise typer.BadParameter(f"{pair!r}: {value!r} is not a number", param_hint="--budget") from None
    try:
        return Budget(**limits)
    except ConfigError as error:
        raise typer.BadParameter(error.message, param_hint="--budget") from None


def agent_sources(options: AgentOptions) -> SourceSelection:
    """Select the sources of the tools; a missing model is an error before any of them starts."""

    def open_box(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
        options.model_name(loaded.settings)
        return selected_sources(options.words)(loaded, sinks)

    return open_box


@asynccontextmanager
async def open_agent(box: Toolbox, output: Output, options: AgentOptions, user: str) -> AsyncGenerator[TerminalAgent]:
    """Yield an agent, and close the connections of its model at the end."""
    from toolpost.agents.models.names import open_model
    from toolpost.cli.agent_view import AgentView

    name = options.model_name(box.settings)
    view = AgentView(output, model=name)
    box.router.emitter.add_sink(view)
    async with AsyncExitStack() as stack:
        model = open_model(name, proxy=box.settings.network.proxy)
        if isinstance(model, AbstractAsyncContextManager):
            await stack.enter_async_context(model)
        yield TerminalAgent(box, output, options, user, model=model, view=view)


class TerminalAgent:
    """A planner with questions prompted at the terminal and events shown by a view.

    `tools` are those that the model may call.
    """

    def __init__(
        self, box: Toolbox, output: Output, options: AgentOptions, user: str, *, model: ChatModel, view: AgentView
    ) -> None:
        from toolpost.agents.planner import INSTRUCTIONS, ReactPlanner

        self.model_name = options.model_name(box.settings)
        self.tools = box.registry.resolve(options.words) if options.words else box.registry.specs()
        self._box = box
        self._output = output
        self._options = options
        self._user = user
        self._view = view
        self._token = ""  # resumes the run as it stands
        self._planner = ReactPlanner(
            catalog=box,
            llm=model,
            max_iters=_STEPS,
            budget=options.budget,
            tools=[spec.name for spec in self.tools] if options.words else None,
            mode=options.mode,
            instructions=INSTRUCTIONS if options.instructions is None else options.instructions,
            on_event=view.receive,
        )

    async def begin(self, query: str) -> PlannerResult:
        """Answer a request as `run` does; with a data folder, `--resume` can continue it after any interruption."""
        if self._box.settings.data_dir is None:
            return await self.run(query)
        token = secrets.token_urlsafe(32)
        if self._output.as_json:
            self._output.line({"type": "started", "resume_token": token})
        return await self.run(query, token=token)

    async def run(
        self, query: str, messages: Sequence[dict[str, Any]] | None = None, *, token: str = ""
    ) -> PlannerResult:
        """Answer a request; prompt at the terminal for the questions of the run."""
        self._view.begin()
        self._token = token
        running = self._planner.run(
            query, messages=messages, tool_context={"user_id": self._user}, resume_token=token or None
        )
        return await self._settle(running)

    async def resume(self, token: str) -> PlannerResult:
        """Go on with a paused run."""
        return await self._settle(self._resumed(token))

    async def _resumed(self, token: str) -> PlannerResult:
        self._token = token
        try:
            return await self._planner.resume(
                token, answers={}, tool_context={"user_id": self._user}, budget=self._options.given_budget()
            )
        except KeyError as error:
            self._token = ""
            raise ToolError(str(error.args[0]), code="pause_not_found") from None

    async def _settle(self, running: Coroutine[Any, Any, PlannerResult]) -> PlannerResult:
        """Wait for a result, and resume as long as the person at the terminal answers every question."""
        from toolpost.agents.results import PlannerPause

        while True:
            async with self._view.watching():
                result = await running
            if not isinstance(result, PlannerPause):
                self._token = ""  # it is used up
                return result
            self._token = result.resume_token
            if not await self._ask(result):
                return result
            running = self._resumed(result.resume_token)

    async def _ask(self, pause: PlannerPause) -> bool:
        """Ask all questions of a pause; return whether all are answered."""
        left: set[str] = set()  # to later
        for question in pause.questions:
            paused = await self._paused(question.pending_id)
            outcome = paused and await ask_at_terminal(
                paused, self._box, self._output, user=self._user, left=left, reads_lines=True
            )
            if isinstance(outcome, Paused):
                left.update(one.pending_id for one in outcome.questions)
        return not left

    async def _paused(self, pending_id: str) -> Paused | None:
        """Return the paused call of a pending action; None if it was answered or the call has ended."""
        action = await self._box.pending.get(pending_id, by=self._user)
        if action.status != "open":
            return None
        outcome = await self._box.pending.outcome(action.id, by=self._user, wait_s=0)
        return outcome if isinstance(outcome, Paused) else None

    async def show(self, result: PlannerResult) -> int:
        """Write the result of a run and return its exit code."""
        from toolpost.agents.results import PlannerPause

        if isinstance(result, PlannerPause):
            return await self._show_pause(result)
        answered = result.reason == "answer_complete"
        error = None if answered else _failure(result)
        if self._output.as_json:
            self._last_line("completed" if answered else "failed", result=result, error=error)
        elif error is None:
            self._view.show_answer(format_json(result.answer))
        else:
            if result.answer:
                self._view.show_answer(format_json(result.answer))
            self._output.explain(error)
        self._output.note(self._view.summary(result))
        return EXIT_CODES["completed"] if answered else FAILED

    async def _show_pause(self, pause: PlannerPause) -> int:
        if self._output.as_json:
            self._last_line("paused", pause=pause)
        else:
            for question in pause.questions:
                paused = await self._paused(question.pending_id)
                if paused is not None:
                    self._output.text(describe_pause(paused, self._output.options))
            self._output.text(f"To resume the run after the answer: {self._resume_command()}")
        return EXIT_CODES["paused"]

    def show_failure(self, error: ToolError) -> int:
        """Write why a run ended without a result, and return its exit code."""
        if self._output.as_json:
            self._last_line("failed", error=error)
        else:
            self._output.explain(error)
            self._offer_resume()
        return FAILED

    def show_cancelled(self) -> None:
        """Write the calls of a run that was stopped."""
        if self._output.as_json:
            self._last_line("cancelled")
            return
        calls, run_id = self._view.describe_calls(), self._view.run_id
        more = f" `toolpost runs show {run_id}{self._output.options}` shows details." if calls else ""
        self._output.note(f"stopped: {calls or 'no tool was called'}.{more}")
        self._offer_resume()

    def _offer_resume(self) -> None:
        if self._token:
            self._output.note(f"To resume the run: {self._resume_command()}")

    def _resume_command(self) -> str:
        return (
            f"`toolpost run {shlex.join(['--resume', self._token, *self._options.to_words()])}{self._output.options}`"
        )

    def _last_line(
        self,
        status: str,
        *,
        result: PlannerFinish | None = None,
        pause: PlannerPause | None = None,
        error: ToolError | None = None,
    ) -> None:
        """Write the result as the last of the JSON lines."""
        self._output.line(
            {
                "type": "result",
                "status": status,
                "run_id": self._view.run_id or None,
                "answer": None if result is None else result.answer,
                "error": None if error is None else error.to_dict(),
                "questions": [] if pause is None else [question.to_dict() for question in pause.questions],
                "resume_token": self._token or None,
                "metadata": {} if result is None else dict(result.metadata),
            }
        )


def _failure(finish: PlannerFinish) -> ToolError:
    """Return why a run that ended has no answer."""
    if finish.reason == "budget_exhausted":
        kind = finish.metadata["budget"]
        message = (
            f"the {kind} limit of the run was reached before there was an answer; raise it with --budget {kind}=..."
        )
        return ToolError(message, code=finish.reason)
    return ToolError(
        f"the run has no answer: {finish.metadata.get('problem', 'the model stopped')}", code=finish.reason
    )


def chat(
    common: CommonOptions,
    model: Model = None,
    tools: Tools = None,
    budget: Limits = None,
    mode: Mode = "native",
    instructions: Instructions = None,
    keep: Keep = None,
) -> None:
    """Talk to a chat model that calls tools.

    Type /help for the commands of a conversation. The conversation is stored only with --keep. The budget applies to
    each request.
    """
    options = read_options(model, tools, budget, mode, instructions)
    if not is_interactive():
        raise typer.BadParameter("this needs a terminal; `toolpost run REQUEST` does not")

    async def work(box: Toolbox, output: Output) -> int:
        history = History(box, common.user, keep)
        messages = await history.load()
        async with open_agent(box, output, options, common.user) as agent:
            before = sum(message["role"] == "user" for message in messages)
            output.note(f"{agent.model_name} with {count_tools(len(agent.tools))}. /help lists the commands.")
            if before:
                output.note(
                    f"The conversation {keep!r} continues after {count(before, 'request')}; /new starts another."
                )
            await _talk(agent, output, history, messages)
        return 0

    run_with_box(work, common, agent_sources(options))


class History:
    """The messages of a conversation, encrypted in the data folder under a name; without a name they are not kept."""

    def __init__(self, box: Toolbox, user: str, name: str | None) -> None:
        if name is not None and box.settings.data_dir is None:
            raise ConfigError("--keep needs a data folder, and `data_dir: null` keeps everything in memory")
        self._state = box.store.state
        self._user = user
        self._key = None if name is None else f"chat:{user}:{name}"

    async def load(self) -> list[dict[str, Any]]:
        """Return the messages so far."""
        state = {} if self._key is None else await self._state.load_planner_state(self._key)
        messages: list[dict[str, Any]] = state.get("messages", [])
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
            output.note("A new conversation starts.")
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
    """Return whether the text is complete: without a block, or after the end of its block."""
    text = "\n".join(lines).strip()
    return not text.startswith(_BLOCK) or (len(text) >= 2 * len(_BLOCK) and text.endswith(_BLOCK))


async def _take_turn(agent: TerminalAgent, request: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answer one request and return the conversation after it, or the unchanged conversation without an answer."""
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
    """Wait for a turn; return None if Ctrl-C ended it, which does not end the conversation."""
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
