"""Run background work: `toolpost worker`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolpost.cli.commands import CommonOptions
from toolpost.cli.output import Output
from toolpost.cli.runner import collect_garbage, run_command
from toolpost.contracts.jobs import QUEUES, RECORDED_S, QueueName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.toolbox.box import Toolbox


def worker(
    common: CommonOptions,
    queues: Annotated[
        str, typer.Option("--queues", metavar="NAMES", help="Queues to take jobs from, separated by commas.")
    ] = ",".join(QUEUES),
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", min=1, metavar="N", help="Jobs that run concurrently. [default: background.concurrency]"
        ),
    ] = None,
    shutdown_limit: Annotated[
        float | None,
        typer.Option(
            "--shutdown-limit",
            min=0,
            metavar="SECONDS",
            help="Time for running jobs to finish at shutdown. [default: server.shutdown_limit_s]",
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"] | None,
        typer.Option("--log-format", help="Write one line per call to stderr."),
    ] = None,
) -> None:
    """Run jobs of the queues: background calls, tasks, continuations after answers, and schedules.

    Listens on no port. On SIGTERM or Ctrl-C, begins no more jobs and stops after the running ones have finished. Those
    that exceed the limit are suspended if they are safe to repeat, and resume in another process.
    """
    names = _read_queues(queues)
    run_command(partial(_work, common, names, concurrency, shutdown_limit, log_format), common)


def _read_queues(text: str) -> list[QueueName]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known: list[QueueName] = [queue for queue in QUEUES if queue in names]
    unknown = [name for name in names if name not in QUEUES]
    if unknown or not known:
        problem = f"{unknown[0]!r} is not a queue" if unknown else "no queue is named"
        raise typer.BadParameter(f"{problem}; the queues are {', '.join(QUEUES)}", param_hint="--queues")
    return known


async def _work(
    common: CommonOptions,
    queues: Sequence[QueueName],
    concurrency: int | None,
    limit_s: float | None,
    log_format: Literal["text", "json"] | None,
    output: Output,
) -> int:
    from toolpost.configuration.loading import load_settings
    from toolpost.gateway.observation import CallLog, logging_to_stderr
    from toolpost.toolbox.box import Toolbox

    collect_garbage()
    loaded = load_settings(common.config)
    with logging_to_stderr(log_format or loaded.settings.server.log_format):
        async with (
            Toolbox.open(loaded, sinks=[CallLog()]) as box,
            box.engine.run(box.jobs, queues=queues, concurrency=concurrency) as stop,
        ):
            output.note(f"worker is running; queues: {', '.join(queues)}. Press Ctrl-C to stop.")
            await _until_stopped()
            stop()
            await _finish(box, limit_s, output)
    return 0


async def _until_stopped() -> None:
    """Wait for SIGTERM or SIGINT."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    with suppress(NotImplementedError):  # Windows: Ctrl-C cancels the task
        for each in signals:
            loop.add_signal_handler(each, stopping.set)
    try:
        await stopping.wait()
    finally:
        with suppress(NotImplementedError):
            for each in signals:
                loop.remove_signal_handler(each)


async def _finish(box: Toolbox, limit_s: float | None, output: Output) -> None:
    running = len(box.jobs.running)
    if running:
        output.note(f"worker is stopping; {running} running jobs have {_limit(box, limit_s):g} s to finish")
    await box.router.park(within_s=_limit(box, limit_s))
    await box.jobs.leave(within_s=RECORDED_S)


def _limit(box: Toolbox, limit_s: float | None) -> float:
    return box.settings.server.shutdown_limit_s if limit_s is None else limit_s
