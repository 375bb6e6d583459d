"""The runtime and the stores take time, random numbers and threads from their Clock, their loop and StoreThreads."""

import ast
from collections.abc import Iterator
from pathlib import Path

import toolpost

ROOT = Path(toolpost.__file__).parent
DIRECT = {
    "datetime.now",
    "os.urandom",
    "random.random",
    "random.randbytes",
    "secrets.token_bytes",
    "secrets.token_hex",
    "secrets.token_urlsafe",
    "threading.Thread",
    "time.monotonic",
    "time.perf_counter",
    "time.sleep",
    "time.time",
    "uuid.uuid4",
}
# `asyncio.to_thread` and `loop.time` are methods of the loop, which a simulation replaces.
ALLOWED = {
    ("runtime/event_webhooks.py", "time.monotonic"): "webhooks go over a real network, which no simulation has",
    ("runtime/event_webhooks.py", "time.time"): "the same",
    ("runtime/executor.py", "time.time"): "the events of a host's own bus, in the format of the host",
    ("runtime/resilience.py", "random.random"): "the default of a parameter that the router sets",
    ("runtime/resilience.py", "time.monotonic"): "the same",
    ("runtime/results.py", "time.monotonic"): "the same",
    ("stores/agent_records/sessions.py", "datetime.now"): "files of agents, on no path of a call",
    ("stores/agent_records/sessions.py", "time.time"): "the same",
    ("stores/agent_records/task_logs.py", "datetime.now"): "the same",
    ("stores/agent_records/task_logs.py", "time.time"): "the same",
    ("stores/durable_files.py", "secrets.token_hex"): "the name of a temporary file, which decides nothing",
    ("stores/pauses.py", "secrets.token_hex"): "the pauses of other people's planners",
    ("stores/content_files.py", "os.urandom"): "the name of a temporary file, which decides nothing",
    ("stores/pauses.py", "secrets.token_urlsafe"): "the same",
    ("stores/pauses.py", "time.time"): "the same",
    ("stores/postgres/checks.py", "time.time"): "a check of `toolpost doctor`",
    ("stores/postgres/connections.py", "time.monotonic"): "the wait for a server that has stopped answering",
    ("stores/postgres/event_appender.py", "secrets.token_bytes"): "the key of a log, which decides nothing",
    ("stores/postgres/event_log.py", "time.monotonic"): "the wait for open transactions of the server",
    ("stores/postgres/event_log.py", "time.sleep"): "the same",
    ("stores/postgres/transactions.py", "time.sleep"): "the wait for a server that restarts",
    ("stores/sqlite/database.py", "time.monotonic"): "the wait for another program's lock while a database is opened",
    ("stores/sqlite/database.py", "time.sleep"): "the same",
    ("stores/sqlite/event_appender.py", "secrets.token_bytes"): "the key of a log, which decides nothing",
    ("stores/sqlite/transfer.py", "time.time"): "the time of a backup",
    ("stores/threads.py", "threading.Thread"): "the threads that a simulation replaces",
}


def test_only_known_places_use_the_clocks_of_the_system_directly() -> None:
    found = {(place, name) for package in ("runtime", "stores") for place, name in direct_uses(ROOT / package)}

    assert sorted(found - ALLOWED.keys()) == []
    assert sorted(ALLOWED.keys() - found) == []


def direct_uses(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if name in DIRECT:
                yield path.relative_to(ROOT).as_posix(), name
