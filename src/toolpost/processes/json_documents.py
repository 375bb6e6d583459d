"""Large JSON documents: measured in a thread, checked and cut in another process.

JSON libraries hold the interpreter's lock for as long as they decode, also in a thread. A document with many values is
therefore decoded in a process that is started for it, which sends back bytes: to unpickle the values here would block
as long as to decode them.
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
from toolpost.schema.json_size import SMALL, measure_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM = str(Path(__file__).with_name("json_program.py"))
_TIMEOUT_S = 60.0
_MOST_PROCESSES = 1  # it takes a core, and up to a gigabyte for the largest document
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class CutDocument(NamedTuple):
    """A document with null in place of a part, and the part as it was written; None where there is no such part."""

    rest: bytes
    part: bytes | None


async def measure(data: bytes, max_values: int) -> int:
    """Return about how many values a document has; ToolClientError (`message_too_large`) where it has too many."""
    if len(data) <= SMALL:
        return measure_json(data, max_values)
    return await asyncio.to_thread(measure_json, data, max_values)


async def cut_document(data: bytes, path: Sequence[str] = ()) -> CutDocument:
    """Check in another process that a document is JSON, and cut out the part at a path; ValueError if it is not."""
    slots = _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MOST_PROCESSES))
    async with slots:
        done = await run_command(
            [sys.executable, "-I", "-S", _PROGRAM],
            env=supervisor_environment(),
            stdin=json.dumps({"path": list(path)}).encode() + b"\n" + data,
            timeout_s=_TIMEOUT_S,
            max_output_bytes=4 * len(data) + SMALL,  # a rest is encoded in ASCII
        )
    if done.exit_code != 0:
        raise ToolExecutionError(f"the process that checks a large JSON document failed with code {done.exit_code}")
    head, _, body = done.stdout.partition(b"\n")
    facts = json.loads(head)
    if "fault" in facts:
        raise ValueError(facts["fault"])
    rest, part = body[: facts["rest_bytes"]], body[facts["rest_bytes"] :]
    return CutDocument(rest, part if facts["found"] else None)
