"""What the client programs of this folder are told, and how they say what they found; standard library only.

A program is told `http ADDRESS TOKEN` or `stdio COMMAND ...`, lists the tools, calls four of them and prints one line
of JSON: the names, and what each call came to as text.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

ORDER = {"lines": [{"product": "nail"}]}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("local__add", {"a": 2, "b": 3}),
    ("local__total", {"order": ORDER}),
    ("local__fail", {}),
]
WAITS: tuple[str, dict[str, Any]] = ("local__drop", {"name": "logs"})


class Told(NamedTuple):
    """Where the gateway is: an address with its token, or the command that starts it."""

    address: str
    token: str
    command: list[str]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def told() -> Told:
    kind, *rest = sys.argv[1:]
    return Told(rest[0], rest[1], []) if kind == "http" else Told("", "", rest)


async def say(
    names: Iterable[str], call: Callable[[str, dict[str, Any]], Awaitable[Any]], *, waits: bool = True
) -> None:
    """Make the calls and print what came of everything; what a client raises for an error is its text, too."""
    came: dict[str, str] = {}
    for name, arguments in [*CALLS, WAITS] if waits else CALLS:
        try:
            came[name] = str(await call(name, arguments))
        except Exception as error:  # noqa: BLE001 - how clients raise the errors of tools is their own matter
            came[name] = str(error)
    print(json.dumps({"names": sorted(names), "came": came}), flush=True)
