"""Large JSON documents: measured in a thread, checked and cut in another process.

JSON libraries hold the interpreter's lock while they decode, also in a thread. A document with many values is therefore
decoded in a separate process, which sends back bytes: unpickling the values here would block as long as decoding them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from toolpost.contracts.errors import ToolExecutionError
from toolpost.processes.commands import run_command
from toolpost.processes.launch import supervisor_environment
from toolpost.schema.json_size import SMALL, CheckedJson, measure_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.schema.json_size import JsonLimits

_PROGRAM = str(Path(__file__).with_name("json_program.py"))
_TIMEOUT_S = 60.0
_MOST_PROCESSES = 1  # each uses a core, and up to a gigabyte for the largest document
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class CutDocument(NamedTuple):
    """A document with null in place of a part, and the part unchanged; None without such a part."""

    rest: bytes
    part: bytes | None


async def check_large_json(data: bytes, limits: JsonLimits) -> bytes:
    """Return a JSON document of many values as `CheckedJson`, and any other data unchanged.

    Raise ToolClientError (`message_too_large`) if a document has more values than the limits allow.
    """
    if len(data) <= SMALL or data[:SMALL].lstrip()[:1] not in (b"{", b"["):
        return data
    if await measure(data, limits.max_values) <= limits.inline_values:
        return data
    try:
        await cut_document(data)
    except ValueError:
        return data  # the parser reports the error
    return CheckedJson(data)


async def measure(data: bytes, max_values: int) -> int:
    """Return about how many values a document has; ToolClientError (`message_too_large`) if there are too many."""
    if len(data) <= SMALL:
        return measure_json(data, max_values)
    return await asyncio.to_thread(measure_json, data, max_values)


async def cut_document(data: bytes, path: Sequence[str] = ()) -> CutDocument:
    """Check in another process that a document is JSON, and cut out the part at a path; ValueError if it is invalid."""
    slots = _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MOST_PROCESSES))
    async with slots:
        done = await run_command(
            [sys.executable, "-I", "-S", _PROGRAM],
            env=supervisor_environment(),
            stdin=json.dumps({"path": list(path)}).encode() + b"\n" + data,
            timeout_s=_TIMEOUT_S,
            max_output_bytes=4 * len(data) + SMALL,  # the rest is encoded in ASCII
        )
    if done.exit_code != 0:
        raise ToolExecutionError(f"the process that checks a large JSON document failed with code {done.exit_code}")
    head, _, body = done.stdout.partition(b"\n")
    facts = json.loads(head)
    if "fault" in facts:
        raise ValueError(facts["fault"])
    rest, part = body[: facts["rest_bytes"]], body[facts["rest_bytes"] :]
    return CutDocument(rest, part if facts["found"] else None)
