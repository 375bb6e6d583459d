"""Kill a gateway between a question and its answer, or during the answer, and count how often the call ran.

Each round is one process on the same data folder: it settles what the round before left behind, asks again, and is
killed. A person who is asked whether an interrupted call has happened says what is true of it.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
import urllib.error
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bench.rest.gateways import Gateway, preloaded, start

if TYPE_CHECKING:
    from collections.abc import Callable

Moment = Literal["before the answer", "during the answer"]
_CONFIG = "builtins: none\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
_TOOLS = '''
import asyncio
from pathlib import Path

from toolpost import tool


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table, and say so in a file."""
    await asyncio.sleep(0.003)
    with Path(__file__).with_name("dropped").open("a") as file:
        file.write(f"{name}\\n")
    await asyncio.sleep(0.003)
    return name
'''
_REHEARSALS = 7
_PATIENCE_S = 60.0


@dataclass(slots=True)
class Kill:
    """One kill: when it came, what the next process found, and how often the call ran in the end.

    `found` is what a person was asked then: `approval` again, `unknown` about a call that had or had not happened;
    `ended` where nobody was asked. `replied` says that the answer of the gateway came before the kill.
    """

    moment: Moment
    name: str
    run_id: str = ""
    replied: bool = False
    found: str = "ended"
    prompt: str = ""
    ran: int = 0


def kill_gateways(kills: int, *, stores: int = 1, fork: bool = True, seed: int = 0) -> list[Kill]:
    """Kill so many gateways, on some stores side by side; each one a forked process, or the real command."""
    shares = [kills // stores + (number < kills % stores) for number in range(stores)]
    with ThreadPoolExecutor(stores) as pool:
        found = pool.map(partial(_kill_on_one_store, fork=fork), shares, range(seed, seed + stores))
        return [kill for kills_of_one in found for kill in kills_of_one]


def _kill_on_one_store(kills: int, seed: int, *, fork: bool) -> list[Kill]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="toolpost-kills-") as folder:
        home = Path(folder)
        (home / "toolpost.yaml").write_text(_CONFIG)
        (home / "tools.py").write_text(_TOOLS)
        done: list[Kill] = []
        with preloaded(home) if fork else nullcontext(partial(start, home)) as start_next:
            answer_s = _rehearse(start_next)
            spread = [(number + chance.random()) / max(1, kills // 2) * answer_s for number in range(kills // 2 + 1)]
            chance.shuffle(spread)
            for number in range(kills):
                gateway = start_next()
                if done:
                    _settle(gateway, done[-1], home)
                done.append(_ask_and_kill(gateway, number, spread[number // 2]))
            gateway = start_next()
            _settle(gateway, done[-1], home)
            _verify(gateway)
            gateway.kill()
        ran = Counter(_dropped(home))
    for kill in done:
        kill.ran = ran[kill.name]
    return done


def _rehearse(start_next: Callable[[], Gateway]) -> float:
    """Return how long an answer takes that nobody disturbs."""
    gateway = start_next()
    taken: list[float] = []
    for number in range(_REHEARSALS):
        asked = gateway.ask("/calls", {"tool": "local.drop", "arguments": {"name": f"rehearsal{number}"}})
        began = time.perf_counter()
        gateway.ask(f"/pending/{asked['pending']['id']}/answer", {"decision": "approve"})
        taken.append(time.perf_counter() - began)
    gateway.kill()
    return statistics.median(taken)


def _ask_and_kill(gateway: Gateway, number: int, after_s: float) -> Kill:
    """Let a call be asked about, and kill the gateway; every other time while it is told the answer."""
    kill = Kill("during the answer" if number % 2 else "before the answer", f"n{number}")
    asked = gateway.ask("/calls", {"tool": "local.drop", "arguments": {"name": kill.name}})
    kill.run_id = asked["run_id"]
    if kill.moment == "before the answer":
        gateway.kill()
        return kill

    def approve() -> None:
        try:
            gateway.ask(f"/pending/{asked['pending']['id']}/answer", {"decision": "approve"})
            kill.replied = True
        except (OSError, ValueError):
            return  # it was killed before it could answer

    answering = threading.Thread(target=approve)
    answering.start()
    time.sleep(after_s)
    gateway.kill()
    answering.join()
    return kill


def _settle(gateway: Gateway, kill: Kill, home: Path) -> None:
    """Answer whatever is still asked about a call until it has ended."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if gateway.ask(f"/runs/{kill.run_id}")["status"] not in ("running", "paused"):
            return
        for card in gateway.ask("/pending")["items"]:
            _decide(gateway, card, kill, happened=kill.name in _dropped(home))
        time.sleep(0.005)
    raise TimeoutError(f"{kill.run_id} did not end")


def _decide(gateway: Gateway, card: dict[str, Any], kill: Kill, *, happened: bool) -> None:
    """Approve, or say of an interrupted call what is true of it."""
    decision = "approve"
    if card["kind"] == "unknown":
        decision = "happened" if happened else "rerun"
    try:
        gateway.ask(f"/pending/{card['id']}/answer", {"decision": decision})
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it goes on by itself meanwhile
            raise
        return
    kill.prompt = card["prompt"]
    kill.found = card["kind"] if decision == "approve" else f"unknown, it had {'' if happened else 'not '}happened"


def _dropped(home: Path) -> list[str]:
    return (home / "dropped").read_text().split() if (home / "dropped").exists() else []


def _verify(gateway: Gateway) -> None:
    """Check that the record of all processes is whole."""
    problems = gateway.ask("/audit?verify=yes&after=9223372036854775807")["problems"]
    assert problems == [], problems
