"""A process that is stopped for longer than its lease, and continued: it must do nothing twice."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from bench.core.figures import Target
from bench.replicas.crew import Member
from bench.replicas.effects import Ledger


def measure(database: str, folder: Path, *, stopped_s: float, running: int) -> list[Target]:
    """Stop one of two processes while its calls run; print what came of the calls of both."""
    with ExitStack() as stack:
        members = [stack.enter_context(Member("work", database, folder, duration_s=0.5)) for _ in range(2)]
        for member in members:
            member.await_ready()
        for number, member in enumerate(members):
            member.go(name=f"r{number}", running=running)
        time.sleep(3)
        os.kill(members[0].process.pid, signal.SIGSTOP)
        time.sleep(stopped_s)
        os.kill(members[0].process.pid, signal.SIGCONT)
        time.sleep(3)
        (folder / "stop").touch()
        results = {call: result for member in members for call, result in member.result()["results"].items()}
    effects = Ledger(folder / "effects").count()
    sent = {key: count for (name, key), count in effects.items() if name == "send"}
    charged = Counter(key.split(" ")[0] for (name, key) in effects if name == "charge")
    print(f"stopped for {stopped_s:.0f} s; {len(results)} calls: {dict(Counter(results.values()))}")
    # A call whose deadline passed while its process was stopped has failed, and says that it may have taken effect.
    unfinished = [call for call, result in results.items() if result not in ("completed", "unknown", "failed")]
    return [
        Target("unsafe calls that ran twice", sum(count > 1 for count in sent.values()), "at most", 0),
        Target("charges under two keys", sum(count > 1 for count in charged.values()), "at most", 0),
        Target("calls without an outcome", len(unfinished), "at most", 0),
    ]
