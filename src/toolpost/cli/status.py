"""`toolpost status`: the status of the running gateway, or without one that of its store."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost import __version__
from toolpost.cli.commands import CommonOptions
from toolpost.cli.console import NO_GATEWAY, OTHER_GATEWAY, check_gateway
from toolpost.cli.output import Output, count, count_tools, format_time
from toolpost.cli.runner import FAILED, INCOMPLETE, run_command
from toolpost.contracts.errors import ToolError
from toolpost.schema.json_values import is_object
from toolpost.wire.local_http import get_local

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.configuration.settings import Settings
    from toolpost.contracts.store_status import StoreInspection

_ANSWER_S = 15.0
_PATH = "/api/v1/status"
_GB = 1_000_000_000


def status(
    common: CommonOptions,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the gateway listens.")] = 7300,
) -> None:
    """Show the status of the running gateway: sources, processes, queues, pending actions, event lag and disk.

    Starts nothing and changes nothing. Exits with 0 if the gateway is ready, with 1 if it has a problem, and with 4 if
    no gateway answers; the status is then that of the store.
    """

    async def work(output: Output) -> int:
        from toolpost.configuration.loading import load_settings

        document = await read_status(load_settings(common.config).settings, port)
        if output.as_json:
            output.document(document)
        else:
            _print(document, output)
        codes = {"ready": 0, NO_GATEWAY: INCOMPLETE}
        return codes.get(document["status"], FAILED)

    run_command(work, common)


async def read_status(settings: Settings, port: int) -> dict[str, Any]:
    """Return the status that the gateway on a port of this machine reports, or that of the store if none answers."""
    inspection = await asyncio.to_thread(inspect_store, settings)
    if inspection is None:
        return _without_gateway(settings, None, "the store has no data yet: `toolpost up` starts a gateway")
    address = f"http://127.0.0.1:{port}"
    try:
        await check_gateway(inspection.mac, address, port)
    except ToolError as error:
        if error.error_code not in (NO_GATEWAY, OTHER_GATEWAY):
            raise
        return _without_gateway(settings, inspection, error.message)
    return {**await _ask(settings, address), "gateway": address}


def inspect_store(settings: Settings) -> StoreInspection | None:
    """Read the status of the store without opening it; None without a store."""
    from toolpost.stores.registry import find_backend
    from toolpost.toolbox.wiring import store_options

    options = store_options(settings)
    if options.data_dir is None:
        raise ToolError(
            "without a data folder (`data_dir: null`), no gateway of this configuration can run", code=NO_GATEWAY
        )
    return find_backend(options.database).inspect(options)


async def _ask(settings: Settings, address: str) -> dict[str, Any]:
    from toolpost.gateway.caller_keys import find_local_token

    assert settings.data_dir is not None  # noqa: S101 - `inspect_store` has checked
    token = find_local_token(settings.data_dir, settings.server.token)
    if token is None:
        raise ToolError(f"the operator's token is missing in {settings.data_dir}; restart the gateway", code="no_token")
    try:
        code, answer = await get_local(f"{address}{_PATH}", timeout_s=_ANSWER_S, bearer=token)
    except OSError as error:
        raise ToolError(f"the gateway at {address} did not answer: {error}", code=NO_GATEWAY) from None
    if code == 200 and is_object(answer):
        return dict(answer)
    detail = answer.get("detail") if is_object(answer) else None
    raise ToolError(f"the gateway at {address} refused the request (HTTP {code}): {detail}", code="status_refused")


def _without_gateway(settings: Settings, inspection: StoreInspection | None, reason: str) -> dict[str, Any]:
    """Return the status of a store, with the keys of that of a gateway."""
    from toolpost.contracts.store_status import StoreStatus, status_problems
    from toolpost.gateway.storage_health import space_of

    known = StoreStatus(at=time.time()) if inspection is None else inspection.status
    space = None if settings.data_dir is None else space_of(settings.data_dir)
    return {
        "status": NO_GATEWAY,
        "problems": [reason, *status_problems(known)],
        "version": __version__,
        "at": known.at,
        "started_at": None,
        "workers": 0,
        "store": {"writable": None, "reason": None, "write_failures": None, "event_lag_s": None},
        "disk": None if space is None else {"free_bytes": space.free, "total_bytes": space.total},
        "sources": [],
        **known.to_dict(),
        "gateway": None,
    }


def _print(document: dict[str, Any], output: Output) -> None:
    output.table(["", "status"], _summary(document))
    tables = (
        (["Source", "State", "Tools"], map(_source_row, document["sources"])),
        (["Process", "Machine", "State", "Since", "Unfinished"], map(_owner_row, document["owners"])),
        (["Queue", "Waiting", "Running", "Oldest"], map(_queue_row, document["queues"])),
    )
    for columns, rows in tables:
        if listed := list(rows):
            output.table(columns, listed)
    for problem in document["problems"]:
        output.note(f"- {problem}")


def _summary(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    store, disk, runs, pending = document["store"], document["disk"], document["runs"], document["pending"]
    state: str = document["status"]
    yield "status", "no gateway answers; this is the status of the store" if state == NO_GATEWAY else state
    if document["gateway"] is not None:
        workers = count(document["workers"], "worker")
        since = format_time(document["started_at"])
        yield "gateway", f"{document['gateway']}, version {document['version']}, {workers}, since {since}"
    if store["writable"] is not None:
        yield "store", "writable" if store["writable"] else f"not writable: {store['reason']}"
        lag = store["event_lag_s"]
        yield "event lag", "unknown" if lag is None else format_age(lag)
    if disk is not None:
        yield "disk", f"{disk['free_bytes'] / _GB:.1f} of {disk['total_bytes'] / _GB:.1f} GB free"
    yield "runs", f"{runs['running']} running, {runs['paused']} paused"
    oldest = f", the oldest for {format_age(pending['oldest_s'])}" if pending["open"] else ""
    yield "pending actions", f"{pending['open']}{oldest}"


def _source_row(source: dict[str, Any]) -> tuple[str, str, str]:
    return source["name"], source["state"], count_tools(source["tools"])


def _owner_row(owner: dict[str, Any]) -> tuple[str, ...]:
    machine = "" if owner["host"] is None else f"{owner['host']}, process {owner['pid']}"
    state = "running" if owner["alive"] else "ended"
    return owner["id"], machine, state, format_time(owner["started_at"]), str(owner["unfinished"])


def _queue_row(queue: dict[str, Any]) -> tuple[str, ...]:
    oldest = "" if queue["oldest_s"] is None else format_age(queue["oldest_s"])
    return queue["name"], str(queue["waiting"]), str(queue["running"]), oldest


def format_age(seconds: float) -> str:
    """Return a duration in its largest unit, such as `5 min`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
