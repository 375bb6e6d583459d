"""Run one command: open the Toolbox with the sources that it needs, do its work, and exit with its code."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import signal
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias
from urllib.parse import urlsplit

import typer

from toolpost.cli.commands import NO_OPTIONS, Repeated
from toolpost.cli.completion import remember_names
from toolpost.cli.output import Output, ProgressSink, guard_stdout
from toolpost.contracts.errors import ErrorCategory, ToolError, did_you_mean

if TYPE_CHECKING:
    from toolpost.catalog.entry import Entry
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import EventSink
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_manager import SourceState


_UNREACHED = re.compile(r"no connection to|\bConnect(Error|Timeout)\b|no answer within")

FAILED = 1
INCOMPLETE = 4
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
TRACEBACK_VARIABLE = "TOOLPOST_TRACEBACK"

Work: TypeAlias = "Callable[[Toolbox, Output], Awaitable[int]]"


class Opening(Protocol):
    """Opens a Toolbox by the settings; `sinks` are told of its events from the start."""

    def __call__(
        self, loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /
    ) -> AbstractAsyncContextManager[Toolbox]: ...


def every_source(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
    """With all there is."""
    return _open_box(loaded, None, sinks)


def in_memory(loaded: LoadedSettings) -> LoadedSettings:
    """The same settings, under which nothing is kept: looking leaves no trace."""
    return replace(loaded, settings=loaded.settings.model_copy(update={"data_dir": None}))


def no_source(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
    """For what the store alone answers; one that is not there yet is not made for it."""
    return _open_box(_looking(loaded), (), sinks)


def store_alone(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
    """For who waits for what others will write into the store: it is made if it is not there yet."""
    return _open_box(loaded, (), sinks)


def one_source(name: str | None) -> Opening:
    """To look at the source of this name, which must be there; without a name, at all."""

    def opened(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
        if name is None:
            return every_source(_looking(loaded), sinks)
        _check_source(name, loaded.settings)
        return _open_box(_looking(loaded), {name}, sinks)

    return opened


def service_sources(provider: str) -> Opening:
    """With the sources that people sign in to a service for."""

    def opened(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AbstractAsyncContextManager[Toolbox]:
        found = {source.name for source in personal_sources(loaded.settings) if provider_of(source) == provider}
        return _open_box(loaded, found, sinks)

    return opened


def tool_source(name: str, *, called: bool) -> Opening:
    """With the source of a tool; with all, where its name tells of none, or it is called and may call others.

    Those that it may call are not waited for: each call of one does that.
    """

    @asynccontextmanager
    async def opened(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AsyncGenerator[Toolbox]:
        needed = _namespaces({name}, loaded.settings)
        if not called:
            loaded = _looking(loaded)
        async with _open_box(loaded, needed, sinks) as box:
            if needed == _enabled(loaded.settings) or not _needs_more(box, name, needed, called=called):
                yield box
                return
            found = box.registry.has(name)
        async with _open_box(loaded, None, sinks, waiting_for=needed if found else None) as box:
            yield box

    return opened


def told_sources(find: Callable[[Toolbox], Awaitable[Collection[PendingAction]]]) -> Opening:
    """With the sources of the tools that questions are about: their schemas say which arguments are secret."""

    @asynccontextmanager
    async def opened(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AsyncGenerator[Toolbox]:
        async with no_source(loaded, sinks) as box:
            needed = _namespaces({action.tool_name for action in await find(box)}, loaded.settings)
            if not needed:
                yield box
                return
        async with _open_box(loaded, needed, sinks) as box:
            yield box

    return opened


def asked_source(find: Callable[[Toolbox], Awaitable[PendingAction]]) -> Opening:
    """With the source of the tool that an answer runs."""

    @asynccontextmanager
    async def opened(loaded: LoadedSettings, sinks: Sequence[EventSink] = (), /) -> AsyncGenerator[Toolbox]:
        async with no_source(loaded, sinks) as box:
            name = (await find(box)).tool_name
        async with tool_source(name, called=True)(loaded, sinks) as box:
            yield box

    return opened


def personal_sources(settings: Settings) -> list[ExternalToolConfig]:
    """The sources for people's own accounts."""
    from toolpost.contracts.config import AuthType

    return [one for one in settings.all_sources() if one.enabled and one.auth_type is AuthType.OAUTH2_USER]


def provider_of(source: ExternalToolConfig) -> str:
    """The service that a source for people's own accounts signs them in to."""
    return str(source.auth_config.get("provider") or source.name)


@asynccontextmanager
async def _open_box(
    loaded: LoadedSettings,
    only: Collection[str] | None,
    sinks: Sequence[EventSink],
    *,
    waiting_for: Collection[str] | None = None,
) -> AsyncGenerator[Toolbox]:
    """Wait for every source that a command needs, and say at a terminal which are still starting."""
    from toolpost.toolbox.box import Toolbox

    lines = [sink for sink in sinks if isinstance(sink, ProgressSink)]
    needed = only if waiting_for is None else waiting_for
    starting = _enabled(loaded.settings) if needed is None else _enabled(loaded.settings) & set(needed)
    for line in lines:
        line.starting([one.name for one in loaded.settings.all_sources() if one.name in starting])
    async with Toolbox.open(at_once(loaded), only=only, sinks=sinks) as box:
        while slow := [one.name for one in box.report if one.state == "connecting" and one.name in starting]:
            for line in lines:
                line.starting(slow)
            await box.sources.settled(slow[:1])
        for line in lines:
            line.starting([])
        yield box


def at_once(loaded: LoadedSettings) -> LoadedSettings:
    """The same settings for whoever waits for the sources after opening, and not while it opens."""
    return replace(loaded, settings=loaded.settings.model_copy(update={"startup_wait_s": 0.0}))


def _looking(loaded: LoadedSettings) -> LoadedSettings:
    """For a command that only looks, perhaps in a folder of others: no data folder is made for it."""
    folder = loaded.settings.data_dir
    if folder is None or folder.exists():
        return loaded
    return in_memory(loaded) if folder.parent.is_dir() else loaded  # where it can never be made, that is told


def _namespaces(names: Collection[str], settings: Settings) -> set[str]:
    """The sources that tools of these names are from; built-in tools are from none."""
    return {source for source in _enabled(settings) for name in names if name.startswith((f"{source}.", f"{source}__"))}


def _enabled(settings: Settings) -> set[str]:
    return {source.name for source in settings.all_sources() if source.enabled}


def _check_source(name: str, settings: Settings) -> None:
    if name in _enabled(settings):
        return
    names = [source.name for source in settings.all_sources()]
    if name in names:
        told = f"source {name!r} is turned off by `enabled: false` in the configuration"
    else:
        told = f"there is no source {name!r}; {did_you_mean(name, names) or _there_are(names)}"
    raise ToolError(told, category=ErrorCategory.NON_RETRYABLE_CLIENT, code="source_not_found")


def _there_are(names: list[str]) -> str:
    return f"there are: {', '.join(sorted(names)) or 'none'}"


def _needs_more(box: Toolbox, name: str, needed: Collection[str], *, called: bool) -> bool:
    if box.registry.has(name):
        return called and _may_call_others(box.registry.find(name), box.settings)
    return not needed  # else its source failed, or has no such tool


def _may_call_others(entry: Entry, settings: Settings) -> bool:
    """Whether a tool is handed the context, by which code of this process calls other tools."""
    from toolpost.builtin.loader import DeferredTool
    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.config import TransportType

    if entry.config is not None and entry.config.transport is not TransportType.PYTHON:
        return False
    tool = entry.tool
    if isinstance(tool, DeferredTool):
        return _asks_a_tool(tool.spec.name, settings)
    if not isinstance(tool, FunctionTool):
        return True
    arguments: Collection[str] = tool.spec.input_schema.get("properties", {})
    return any(name not in arguments for name in inspect.signature(tool.fn).parameters)


def _asks_a_tool(name: str, settings: Settings) -> bool:
    """Whether a built-in tool has a provider that is a tool of a source."""
    tools = settings.tools
    chains = {"web_search": tools.web_search.providers(), "web_fetch": tools.web_fetch.chain}
    chains["retrieve"] = tools.retrieval.chain
    return any(link.provider == "mcp" for link in chains.get(name, ()))


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
    with guard_stdout() as stream:
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


def trouble(state: SourceState, box: Toolbox) -> str:
    """What is wrong with a source; where nobody answered at its address, that is named."""
    told = state.error or "it is down"
    address = next((_address(one.connection) for one in box.settings.all_sources() if one.name == state.name), "")
    if not address or not _UNREACHED.search(told):
        return told
    shown = box.redactor.text(address)
    return f"{told}; is the server at {shown} running, and is the address right?"


def _address(connection: str) -> str:
    """A URL without what may be secret in it; a command or a file has none."""
    try:
        url = urlsplit(connection.strip())
        port = f":{url.port}" if url.port else ""
    except ValueError:
        return ""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}{port}{url.path}" if url.scheme and host else ""
