"""One command from start to end: the Toolbox it opens, how it speaks, and with which code it leaves."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import typer

from toolpost.cli.answer_stream import answer_stream
from toolpost.cli.completion import remember_names
from toolpost.cli.opening import Opening, every_source, in_memory, no_source
from toolpost.cli.options import NO_OPTIONS, Repeated
from toolpost.cli.output import Output
from toolpost.cli.source_trouble import trouble
from toolpost.cli.status_line import ProgressSink
from toolpost.contracts.errors import ToolError

if TYPE_CHECKING:
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.contracts.storage import EventSink
    from toolpost.toolbox.box import Toolbox

FAILED = 1
INCOMPLETE = 4
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
TRACEBACK_VARIABLE = "TOOLPOST_TRACEBACK"

Work: TypeAlias = "Callable[[Toolbox, Output], Awaitable[int]]"


def run_with_box(
    work: Work, *, config: Path | None, as_json: bool, user: str = "", opening: Opening = every_source
) -> NoReturn:
    """Open the Toolbox, do the work, and leave with its code."""

    async def with_box(output: Output) -> int:
        from toolpost.configuration.loading import load_settings

        async with opening(load_settings(config), progress_sinks(output)) as box:
            _tell_problems(box, output)
            remember_names(box)
            return await work(box, output)

    run_command(with_box, as_json=as_json, again=Repeated(config, user))


def rehearsal(loaded: LoadedSettings, output: Output, *, connect: bool = True) -> AbstractAsyncContextManager[Toolbox]:
    """A Toolbox with the same sources, or with none of them started, that keeps everything in memory."""
    opening = every_source if connect else no_source
    return opening(in_memory(loaded), progress_sinks(output))


def progress_sinks(output: Output) -> list[EventSink]:
    """Who shows at a terminal what is going on; nobody where the answer is for a program."""
    return [ProgressSink(output.status)] if output.status.live and not output.as_json else []


def left_out(box: Toolbox) -> bool:
    """Whether a source that the command needs is down."""
    return any(not state.ok for state in box.report)


def run_command(
    work: Callable[[Output], Coroutine[None, None, int]], *, as_json: bool, again: Repeated = NO_OPTIONS
) -> NoReturn:
    """Do the work and leave with its code; every error is told in words, or as JSON where that was asked for."""
    if os.environ.get(TRACEBACK_VARIABLE):
        logging.basicConfig()  # what libraries have to say is shown then, too
    with answer_stream() as stream:
        code = _code_of(work, Output(stream, as_json=as_json, again=again))
    raise typer.Exit(code)


def _code_of(work: Callable[[Output], Coroutine[None, None, int]], output: Output) -> int:
    try:
        try:
            return asyncio.run(_until_terminated(work(output)))
        finally:
            output.status.clear()
    except ToolError as error:
        output.failure(error)
        return FAILED
    except KeyboardInterrupt:
        output.note(f"interrupted; `toolpost runs list{output.again}` shows calls that were under way.")
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED
    except BrokenPipeError:
        return FAILED
    except typer.BadParameter:  # what is wrong with the command line may be known only now
        raise
    except Exception as error:  # noqa: BLE001 - tools of others run in here; nobody wants their traceback
        output.failure(ToolError(f"{type(error).__name__}: {error}", code="internal_error", cause=error))
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exc()
        else:
            output.note(f"Set {TRACEBACK_VARIABLE}=1 to see where it came from.")
        return FAILED


async def _until_terminated(work: Coroutine[None, None, int]) -> int:
    """A polite request to end cancels the call, so that its end is recorded too."""
    task = asyncio.ensure_future(work)
    with suppress(NotImplementedError):  # Windows has no such signals.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _tell_problems(box: Toolbox, output: Output) -> None:
    for source in box.report:
        if not source.ok and source.state != "connecting":
            output.note(f"source {source.name!r} is left out: {trouble(source, box)}")
    known = box.sources.left_out
    for problem in box.problems:
        if problem not in known:
            output.note(problem)
