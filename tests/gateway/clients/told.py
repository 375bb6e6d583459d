"""What the client programs of this folder are told, and how they say what they found; standard library only.

A program is told a NAME of its own, then `http ADDRESS TOKEN` or `stdio COMMAND ...`. It lists the tools, calls some
and prints one line of JSON: the names, and the outcome of each call as text. A call that waits for a person is told
so, or waits; the test approves it meanwhile.
"""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

ORDER = {"lines": [{"product": "nail"}]}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("local__add", {"a": 2, "b": 3}),
    ("local__total", {"order": ORDER}),
    ("local__large", {}),
    ("local__fail", {}),
]
WAITS, STATUS, COLLECT = "local__drop", "pending_status", "pending_wait"
_ROUNDS = count(1)


class Told(NamedTuple):
    """Where the gateway is: an address with its token, or the command that starts it; and whose trial it is."""

    trial: str
    address: str
    token: str
    command: list[str]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def told() -> Told:
    trial, kind, *rest = sys.argv[1:]
    return Told(trial, rest[0], rest[1], []) if kind == "http" else Told(trial, "", "", rest)


async def say(names: Iterable[str], call: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> None:
    """Make the calls and print the outcomes; what a client raises for an error is its text, too."""
    came = {name: await _outcome(call, name, arguments) for name, arguments in CALLS}
    dropped = f"{told().trial}-{next(_ROUNDS)}"
    came[WAITS] = await _outcome(call, WAITS, {"name": dropped})
    if f"{dropped} is gone" not in came[WAITS]:
        pending_id = re.search(r"pending_id: (ask_\w+)", came[WAITS])
        if pending_id is None:  # a client that does not say that it waits: its model can ask which calls do
            came[STATUS] = await _outcome(call, STATUS, {})
            pending_id = re.search(rf"(ask_\w+) \S+ [^\n]*{dropped}", came[STATUS])
        if pending_id is not None:
            came[COLLECT] = await _outcome(call, COLLECT, {"pending_id": pending_id[1]})
    print(json.dumps({"names": sorted(names), "came": came}), flush=True)


async def _outcome(call: Callable[[str, dict[str, Any]], Awaitable[Any]], name: str, arguments: dict[str, Any]) -> str:
    try:
        return str(await call(name, arguments))
    except Exception as error:  # noqa: BLE001 - how clients raise the errors of tools is their own matter
        return _text(error)


def _text(error: BaseException) -> str:
    inner = [_text(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return "; ".join([f"{type(error).__name__}: {error}", *inner])
