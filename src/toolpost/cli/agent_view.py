"""Show the progress of an agent's run: JSON lines for programs; text, calls and a status line for people."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from toolpost.agents.results import CallEnded, CallStarted, ModelReplied, ModelText, RunFinished, RunPaused
from toolpost.cli.output import Output, count, format_json_line, progress_text
from toolpost.contracts.chat import Usage
from toolpost.contracts.events import EventCode, RunEvent

if TYPE_CHECKING:
    from toolpost.agents.results import PlannerEvent, PlannerFinish

_TICK_S = 0.25
_LINE = 160  # characters of a line about a call without a terminal
_NEWLINE = "\n"
_FAILED = re.compile(r"^The call failed \(\w+\): ")  # the form in which a model reads it
_COLOURS = {"completed": "green", "failed": "red", "paused": "yellow"}


class AgentView:
    """Writes the events of a planner and the progress of its tools to an `Output`.

    At a terminal, text is written as it arrives; elsewhere `show_answer` writes only the answer.
    """

    def __init__(self, output: Output, *, model: str) -> None:
        self.run_id = ""
        self._output = output
        self._model = model
        self._streams = output.is_terminal and not output.as_json
        self._usage = Usage()
        self._ended: list[CallEnded] = []
        self._text = ""  # text of the model since its last call
        self._started: dict[str, CallStarted] = {}
        self._running: dict[str, str] = {}
        self._progress = ""
        self._began = time.monotonic()

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Show the current activity and its duration on the status line."""
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            self._output.status.clear()
            self._end_line()

    def begin(self) -> None:
        """Begin another run."""
        self.run_id, self._text, self._usage, self._progress = "", "", Usage(), ""
        self._ended, self._started, self._running = [], {}, {}
        self._began = time.monotonic()

    def receive(self, event: PlannerEvent) -> None:
        """Show an event of the planner."""
        self.run_id = event.run_id
        if self._output.as_json:
            if not isinstance(event, RunFinished | RunPaused):  # the last line has what these say
                self._output.line(event.to_dict())
            self._note(event)
            return
        if isinstance(event, ModelText) and self._streams:
            self._text += event.text
            self._output.piece(event.text)
        elif isinstance(event, CallStarted | RunPaused):
            self._end_line()
            self._text = ""
        self._note(event)
        if isinstance(event, CallEnded):
            self._show_call(event)

    def emit(self, event: RunEvent) -> None:
        """Show the progress of a tool."""
        if event.code is EventCode.SUBAGENT_ACTION:
            self._progress = progress_text(event)

    def show_answer(self, answer: str) -> None:
        """Write the answer, unless it was written as it came."""
        if self._text.strip() != answer.strip():
            self._output.text(answer)

    def summary(self, finish: PlannerFinish) -> str:
        """Summarize the steps, calls and cost of a run on one line."""
        facts = finish.metadata
        counts = f"{count(facts['iterations'], 'step')}, {count(facts['tool_calls'], 'call')}"
        verb = "answered" if finish.reason == "answer_complete" else "ended"
        return f"{verb} in {facts['seconds']:.1f} s: {counts}{describe_usage(self._usage)} (run {self.run_id})"

    def describe_calls(self) -> str:
        """Return how the calls of the run stand, on one line; empty without any."""
        ended = [f"{call.tool_name} {call.status}" for call in self._ended]
        return ", ".join([*ended, *(f"{name} was stopped" for name in self._running.values())])

    def _note(self, event: PlannerEvent) -> None:
        """Store the data for the status line and the end of the run."""
        match event:
            case ModelReplied(usage=usage):
                self._usage = usage
            case CallStarted(call_id=call_id, tool_name=name):
                self._started[call_id], self._running[call_id] = event, name
            case CallEnded(call_id=call_id):
                self._running.pop(call_id, None)
                self._progress = ""
                self._ended.append(event)
            case _:
                pass

    def _show_call(self, ended: CallEnded) -> None:
        """Write one line about a call that ended or waits."""
        started = self._started.get(ended.call_id)
        match ended.status:
            case "completed":
                state = f"completed in {ended.duration_ms:.0f} ms"
            case "paused":
                state = "is waiting for an answer"
            case _:
                state = f"failed: {_FAILED.sub('', ended.text.partition(_NEWLINE)[0])}"
        call = ended.tool_name if started is None else f"{started.tool_name} {describe_arguments(started.arguments)}"
        width = shutil.get_terminal_size().columns - 1 if self._output.status.live else _LINE
        shown = _shorten(call.strip(), max(width // 2, width - len(state) - 2))
        self._output.note(_shorten(f"{shown}: {state}", width), colour=_COLOURS.get(ended.status))

    def _end_line(self) -> None:
        if self._text and not self._text.endswith("\n"):
            self._output.piece("\n")
            self._text += "\n"

    async def _tick(self) -> None:
        while True:
            if not self._text or self._text.endswith("\n"):  # else it would stand in the middle of the model's line
                self._output.status.show(self._status())
            await asyncio.sleep(_TICK_S)

    def _status(self) -> str:
        what = self._progress or ", ".join(self._running.values()) or f"waiting for {self._model}"
        return f"{what} · {time.monotonic() - self._began:.0f} s{describe_usage(self._usage)}"


def describe_usage(usage: Usage) -> str:
    """Return the tokens and the cost, as far as they are known, to be appended to a text."""
    tokens = f" · {usage.total_tokens:,} tokens" if usage.total_tokens else ""
    return tokens if usage.cost is None else f"{tokens} · ${usage.cost:.4f}"


def describe_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments on one line."""
    return " ".join(f"{name}={format_json_line(value)}" for name, value in arguments.items())


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
