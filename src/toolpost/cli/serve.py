"""Serve the catalog: `toolpost serve` over stdin and stdout, `toolpost up` over HTTP, with one worker or several."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from msgspec.structs import replace

from toolpost.cli.commands import CommonOptions, Config, User, default_user
from toolpost.cli.console import operator_ticket, shows_console, sign_in_link
from toolpost.cli.output import Output, count
from toolpost.cli.runner import (
    collect_garbage,
    describe_problems,
    no_source,
    run_command,
    serving_garbage_collection,
    settle_garbage,
)
from toolpost.configuration.defaults import FILE_NAME
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from toolpost.configuration.loading import LoadedSettings
    from toolpost.gateway.access import Callers
    from toolpost.gateway.siblings import Siblings
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.reload import Reload
    from toolpost.wire.http_server import ListeningSocket


_STARTUP_WAIT_S = 0.5  # clients are notified of tools that connect later

ViewOption = Annotated[
    str | None,
    typer.Option("--view", metavar="NAME", help="View of clients: all, search, or a view of the configuration."),
]
_LAST_S = 15.0  # in addition to the limit of calls, to close resources


def serve(
    view: ViewOption = None,
    unattended: Annotated[
        bool,
        typer.Option(
            "--unattended",
            help="No user operates the client: questions of tools and servers are pending actions, like approvals.",
        ),
    ] = False,
    client_config: Annotated[
        bool,
        typer.Option("--client-config", help="Print the entry for the client's configuration, and exit."),
    ] = False,
    config: Config = None,
    user: User = "",
) -> None:
    """Serve all tools as one MCP server on stdin and stdout, for a client that starts this command.

    Calls run as --user. Approvals are given elsewhere: toolpost pending list. The user of the client answers
    questions of tools and servers there, unless it is --unattended.
    """
    options = {"--view": view, "--user": None if user == default_user() else user}
    entry = client_entry(config, [*(["--unattended"] if unattended else []), *_words(options)])
    if client_config:
        typer.echo(json.dumps(entry, indent=2))
        return
    if sys.stdin.isatty():
        typer.echo(f"An MCP client starts this command. Its configuration: {json.dumps(entry)}", err=True)
    run_command(partial(_serve_stdio, config, user, view, not unattended), CommonOptions(config, user))


def client_entry(config: Path | None, options: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry of an MCP client that starts `toolpost serve`, with absolute paths.

    A client has another PATH and another working folder than the person who writes its configuration.
    """
    path = Path(FILE_NAME) if config is None else config
    arguments = ["serve", *(["--config", str(path.absolute())] if path.exists() else []), *options]
    program = Path(sys.argv[0]).absolute()
    command = [str(program)] if program.stem == "toolpost" and os.access(program, os.X_OK) else []
    first, *rest = command or [sys.executable, "-m", "toolpost"]
    return {"mcpServers": {"toolpost": {"command": first, "args": [*rest, *arguments]}}}


def _words(options: Mapping[str, object]) -> list[str]:
    """Return the words of the options of a command line that have a value."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    return [word for pair in given.items() for word in pair]


async def _serve_stdio(
    config: Path | None,
    user: str,
    view: str | None,
    interactive: bool,
    output: Output,
) -> int:
    import anyio
    from mcp.server.stdio import stdio_server

    from toolpost.configuration.loading import for_gateway, load_settings
    from toolpost.gateway.mcp.progress import ProgressRelay
    from toolpost.gateway.mcp.server import McpServer
    from toolpost.gateway.views import default_view
    from toolpost.toolbox.box import Toolbox

    collect_garbage()
    relay = ProgressRelay()

    def load() -> LoadedSettings:
        return for_gateway(load_settings(config))

    async with Toolbox.open(load(), sinks=[relay]) as box:
        shown = default_view(box, view)
        mcp = McpServer(box, principal=lambda _ctx: user, interactive=lambda _ctx: interactive, relay=relay, view=shown)

        async def show_views() -> None:
            mcp.show(default_view(box, view))

        following = _following(box, load, show_views, output)
        try:
            async with (
                following,
                mcp.publishing(),
                stdio_server(stdout=anyio.wrap_file(output.stream)) as (receiving, sending),
            ):
                await mcp.server.run(receiving, sending, mcp.initialization)
        except* BrokenPipeError:
            pass  # the client ended during the response
    return 0


def up(
    common: CommonOptions,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for a free port.")] = 7300,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; a public one needs keys or OIDC.")
    ] = "127.0.0.1",
    shutdown_limit: Annotated[
        float | None,
        typer.Option(
            "--shutdown-limit",
            min=0,
            metavar="SECONDS",
            help="Time for running calls to finish at shutdown. [default: server.shutdown_limit_s]",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Number of worker processes; each connects to all sources.")
    ] = 1,
    view: ViewOption = None,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option("--log-format", help="Write one line per request and per call to stderr."),
    ] = None,
    worker: Annotated[str | None, typer.Option("--worker", hidden=True)] = None,
) -> None:
    """Serve all tools over HTTP: MCP at /mcp, REST under /api/v1, for callers with a key or the data folder's token.

    The views of the configuration are at /mcp/NAME; --view selects the one at /mcp. On SIGTERM or Ctrl-C, stops after
    the running calls have finished. Calls that exceed the limit are suspended if they are safe to repeat, and resume
    at the next start.
    """
    options = UpOptions(common.config, common.user, host, port, view, shutdown_limit, workers, log_format)
    start = None if worker is None else WorkerStart.of_option(worker)
    run_command(partial(_serve_http, options, start), common)


def _data_folder(loaded: LoadedSettings) -> Path:
    folder = loaded.settings.data_dir
    if folder is None:
        raise ConfigError("with `data_dir: null` there is no token for callers; give the gateway a data folder")
    return folder


def _operator_token(loaded: LoadedSettings) -> str:
    from toolpost.gateway.caller_keys import local_token

    return local_token(_data_folder(loaded), loaded.settings.server.token)


async def _serve_http(options: UpOptions, worker: WorkerStart | None, output: Output) -> int:
    if find_spec("mcp") is None:  # the first request that needs it would be too late to learn of this
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp")
    from toolpost.configuration.loading import load_settings
    from toolpost.gateway.observation import logging_to_stderr
    from toolpost.wire.http_server import inherited, listen_when_free

    loaded = load_settings(options.config)
    _data_folder(loaded)
    logging = logging_to_stderr(options.log_format or loaded.settings.server.log_format)
    if worker is not None:
        with logging, inherited(worker.listening) as listening, inherited(worker.own) as own:
            return await _serve_on([listening, own], options, worker, output)
    waits = f"another gateway at {options.host}:{options.port} is stopping; waiting for its workers to end"
    opened = listen_when_free(options.host, options.port, on_wait=partial(output.note, waits))
    with logging:
        async with opened as listening:
            return await _serve_at(listening, options, loaded, output)


async def _serve_at(listening: ListeningSocket, options: UpOptions, loaded: LoadedSettings, output: Output) -> int:
    """Serve on a socket of this process, in it or in workers."""
    if options.workers == 1:
        return await _serve_on([listening], options, None, output)
    _operator_token(loaded)  # before several processes could make one
    limit_s = loaded.settings.server.shutdown_limit_s if options.limit_s is None else options.limit_s
    return await run_workers(options, listening, loaded, limit_s, output)


async def _serve_on(
    sockets: Sequence[ListeningSocket], options: UpOptions, worker: WorkerStart | None, output: Output
) -> int:
    from toolpost.configuration.loading import load_settings
    from toolpost.gateway.event_feed import EventFeed
    from toolpost.gateway.http import gateway_app
    from toolpost.gateway.mcp.progress import ProgressRelay
    from toolpost.gateway.observation import CallLog
    from toolpost.gateway.rest.sources import apply_changes
    from toolpost.gateway.source_changes import ChangedSources
    from toolpost.gateway.view_servers import ViewServers
    from toolpost.gateway.views import make_views
    from toolpost.processes.worker_pool import watch_parent
    from toolpost.toolbox.box import Toolbox
    from toolpost.wire.http_server import notify_service_manager, serve_until_stopped

    loaded, view, address = load_settings(options.config), options.view, options.address(sockets[0])
    folder = _data_folder(loaded)
    collect_garbage()
    relay, feed = ProgressRelay(), EventFeed()
    opened = Toolbox.open(_as_gateway(loaded, address), sinks=[relay, CallLog()])
    async with opened as box, _open_callers(box, folder, options, worker) as callers:
        siblings = None if worker is None else worker.siblings(callers.token)
        changed = ChangedSources()
        if siblings is not None and worker is not None and worker.again:
            changed = await siblings.changed_sources()
            await apply_changes(box, changed)

        views = make_views(box, view)
        mcp = ViewServers(box, views[view or box.settings.view], views, relay=relay, on_load=settle_garbage)
        public_url = (box.settings.server.public_url or address).rstrip("/")
        app = gateway_app(box, mcp, callers, feed, public_url=public_url, siblings=siblings, changed_sources=changed)

        async def show_views() -> None:
            views = make_views(box, view)
            await mcp.show(views[view or box.settings.view], views)

        def load() -> LoadedSettings:
            return _as_gateway(load_settings(box.config_path), address)

        is_first = worker is None or worker.number == 0
        is_serving = nullcontext() if siblings is None else siblings.serving()
        async with _following(box, load, show_views, output, tells=is_first):
            stop = _Stop(box, "" if worker is None else f"worker {worker.number} is ", options, output)
            if worker is None:
                options.announce(sockets[0], loaded, output)
                if shows_console(output):
                    _, ticket = await callers.sessions.issue_ticket(callers.operator)
                    output.text(f"Console: {sign_in_link(options.local_address(sockets[0]), ticket)}")
                notify_service_manager("READY=1")
            else:
                output.line({"ready": worker.number})
                watch_parent(0, partial(stop.as_orphan, _current_task()))

            def on_stop() -> None:
                stop.tell()
                feed.close()

            finish = partial(box.router.park, within_s=stop.limit_s)
            with is_serving, serving_garbage_collection():
                await serve_until_stopped(
                    app,
                    *sockets,
                    on_stop=on_stop,
                    finish=finish,
                    frees_address=stop.is_orphan,
                    trusted_proxies=box.settings.server.trusted_proxies,
                )
    return 0


def _open_callers(
    box: Toolbox, folder: Path, options: UpOptions, worker: WorkerStart | None
) -> AbstractAsyncContextManager[Callers]:
    from toolpost.gateway.http import open_callers

    # The folder of the sockets exists for one run of the gateway, in all of its workers.
    gateway = None if worker is None else Path(worker.folder).name
    return open_callers(box, folder, options.user, host=options.host, gateway=gateway)


class _Stop:
    """Shutdown of a gateway, with messages about running calls; `who` is the prefix of a worker's messages."""

    def __init__(self, box: Toolbox, who: str, options: UpOptions, output: Output) -> None:
        self.limit_s = box.settings.server.shutdown_limit_s if options.limit_s is None else options.limit_s
        self._box = box
        self._who = who
        self._output = output
        self._is_told = self._is_orphan = False

    def is_orphan(self) -> bool:
        """Return whether the parent process has ended, so another gateway may need the address."""
        return self._is_orphan

    def as_orphan(self, serving: asyncio.Task[Any]) -> None:
        """Stop because the parent process has ended."""
        self._is_orphan = True
        serving.cancel()

    def tell(self) -> None:
        """Report the shutdown and the running calls; a worker without calls reports nothing."""
        names = Counter(self._box.router.inflight.tool_names())
        if self._is_told:
            self._output.note(f"{self._who}stopping immediately; running calls are cancelled")
        elif names:
            calls = ", ".join(name if times == 1 else f"{name} ({times})" for name, times in sorted(names.items()))
            waits = f"waiting up to {self.limit_s:g} s for {count(names.total(), 'call')}: {calls}"
            self._output.note(f"{self._who}stopping; {waits}. A second signal stops immediately.")
        elif not self._who:
            self._output.note("stopping")
        self._is_told = True


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    return task


@asynccontextmanager
async def _following(
    box: Toolbox,
    load: Callable[[], LoadedSettings],
    show_views: Callable[[], Awaitable[None]],
    output: Output,
    *,
    tells: bool = True,
) -> AsyncGenerator[None]:
    """Apply and report changes of the configuration while this is open, immediately on SIGHUP.

    Only one worker `tells`.
    """
    from toolpost.toolbox.config_follower import ConfigFollower

    reporter = _ProblemReporter(box, output)

    async def report(outcome: Reload | ConfigError) -> None:
        for line in _reload_lines(outcome) if tells else ():
            output.note(line)
        if isinstance(outcome, ConfigError):
            return
        reporter.look_again()
        try:
            await show_views()
        except ConfigError as error:
            if tells:
                output.note(f"the views are unchanged: {error}")

    follower = ConfigFollower(box, load, report)
    loop, serving, terminal = asyncio.get_running_loop(), asyncio.current_task(), os.isatty(0)

    def hang_up() -> None:
        if terminal and not os.isatty(0) and serving is not None:
            serving.cancel()  # its terminal was closed
        else:
            follower.reload_now()

    with suppress(NotImplementedError, AttributeError):  # Windows has no such signal
        loop.add_signal_handler(signal.SIGHUP, hang_up)
    tasks = [loop.create_task(follower.run())]
    if tells:
        tasks.append(loop.create_task(reporter.run()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reload_lines(outcome: Reload | ConfigError) -> Iterator[str]:
    if isinstance(outcome, ConfigError):
        yield f"the changed configuration was rejected; the previous one still applies: {outcome}"
    elif outcome:
        for line in outcome.lines():
            yield f"configuration: {line}"
    else:
        files = "The files of a source, such as its code, are read again when it is replaced or reloaded."
        yield f"the configuration was reloaded without changes. {files}"


class _ProblemReporter:
    """Reports each problem of a Toolbox once: sources that are down, and settings without effect."""

    def __init__(self, box: Toolbox, output: Output) -> None:
        self._box = box
        self._output = output
        self._told: list[str] = []
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Report new problems after a change of the configuration."""
        self._changed.set()

    async def run(self) -> None:
        """Report known problems, then those of sources that connect in the background, and again after each change."""
        while True:
            self._tell()
            await self._box.wait_for_sources()
            self._tell()
            await self._changed.wait()
            self._changed.clear()

    def _tell(self) -> None:
        problems = list(describe_problems(self._box))
        for problem in problems:
            if problem not in self._told:
                self._output.note(problem)
        self._told = problems


def _as_gateway(loaded: LoadedSettings, address: str) -> LoadedSettings:
    """Return settings for sign-ins at the gateway and a short wait for slow sources.

    Explicit values of the configuration are kept, including its built-in tools.
    """
    from toolpost.configuration.loading import for_gateway

    loaded = for_gateway(loaded)
    settings, changed = loaded.settings, dict[str, Any]()
    accounts = settings.accounts
    if not (accounts.public_url or accounts.redirect_uri or settings.server.public_url):
        changed["accounts"] = accounts.model_copy(update={"public_url": address})
    if "startup_wait_s" not in settings.model_fields_set:
        changed["startup_wait_s"] = _STARTUP_WAIT_S
    return replace(loaded, settings=settings.model_copy(update=changed))


class UpOptions(NamedTuple):
    """Options of `toolpost up`."""

    config: Path | None
    user: str
    host: str
    port: int
    view: str | None
    limit_s: float | None
    workers: int
    log_format: Literal["text", "json"] | None

    def address(self, listening: ListeningSocket) -> str:
        """Return where it is reached on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{listening.getsockname()[1]}"

    def local_address(self, listening: ListeningSocket) -> str:
        """Return the address for a browser on this machine."""
        hosts = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
        return self._replace(host=hosts.get(self.host, self.host)).address(listening)

    def announce(self, listening: ListeningSocket, loaded: LoadedSettings, output: Output) -> None:
        """Write the addresses that are served."""
        address, reference = self.address(listening), loaded.settings.server.token
        file = str(_data_folder(loaded) / "token") if reference is None else None
        if output.as_json:
            output.line({"mcp": f"{address}/mcp", "rest": f"{address}/api/v1", "token_file": file})
            return
        public = (loaded.settings.server.public_url or address).rstrip("/")
        behind = "" if public == address else f"; it listens at {address}"
        output.note(
            f"MCP at {public}/mcp, REST at {public}/api/v1{behind}; the operator's token is in {file or reference}"
        )

    def worker_arguments(self, worker: str) -> list[str]:
        """Return the command line of one of its workers."""
        options = {
            "--host": self.host,
            "--user": self.user,
            "--worker": worker,
            "--config": self.config,
            "--view": self.view,
            "--shutdown-limit": self.limit_s,
            "--log-format": self.log_format,
        }
        return ["up", *_words(options)]


class WorkerStart(NamedTuple):
    """The start parameters of a worker: its place among the others, and the sockets that it inherits."""

    number: int
    workers: int
    folder: str
    listening: int
    own: int
    again: bool

    def to_option(self) -> str:
        """Return it as the value of `--worker`."""
        return json.dumps(self._asdict())

    @classmethod
    def of_option(cls, text: str) -> WorkerStart:
        """Restore what `to_option` returned."""
        return cls(**json.loads(text))

    def siblings(self, token: str) -> Siblings:
        """Return the other workers; `token` is the operator's."""
        from toolpost.gateway.siblings import Siblings, WorkerPlace

        return Siblings(WorkerPlace(self.number, self.workers, self.folder), token)


async def run_workers(
    options: UpOptions, listening: ListeningSocket, loaded: LoadedSettings, limit_s: float, output: Output
) -> int:
    """Keep the workers alive until this is cancelled; ready once all of them are."""
    import tempfile

    from toolpost.gateway.siblings import WorkerPlace
    from toolpost.processes.worker_pool import WorkerPool
    from toolpost.wire.http_server import notify_service_manager
    from toolpost.wire.unix_http import listen_unix

    if sys.platform == "win32":
        raise ConfigError("--workers is not available on Windows, which cannot share a socket among processes; omit it")
    count = options.workers
    with ExitStack() as closing:
        # Not in the data folder: the path of a socket has at most about a hundred characters.
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-"))
        place = WorkerPlace(0, count, folder)
        own = [closing.enter_context(listen_unix(place.socket_of(number))) for number in range(count)]

        def command(number: int, again: bool) -> list[str]:
            start = WorkerStart(number, count, folder, listening.fileno(), own[number].fileno(), again)
            return [sys.executable, "-m", "toolpost", *options.worker_arguments(start.to_option())]

        sockets = [listening.fileno(), *(one.fileno() for one in own)]
        pool = WorkerPool(command, count, sockets=sockets, report=output.note)
        serving, terminal = asyncio.current_task(), os.isatty(0)

        def hang_up() -> None:
            if terminal and not os.isatty(0) and serving is not None:
                serving.cancel()  # its terminal was closed
            else:
                pool.send(signal.SIGHUP)

        async def tell_when_ready() -> None:
            await pool.all_ready.wait()
            options.announce(listening, loaded, output)
            if shows_console(output):
                async with no_source(loaded) as box:
                    ticket = await operator_ticket(box.store, options.user)
                output.text(f"Console: {sign_in_link(options.local_address(listening), ticket)}")
            notify_service_manager("READY=1")

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        telling = loop.create_task(tell_when_ready())
        try:
            return await pool.run(stop_within_s=limit_s + _LAST_S)
        finally:
            telling.cancel()
