"""A host to be killed: `host.py HOW KIND...` starts a family of each kind, says every pid, and waits.

HOW is `plain`, `forked` (a fork of the host lives on, with all its descriptors) or `torn` (no wait: the loop ends).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from toolpost.wire.environment import child_environment
from toolpost.wire.processes import Launch, start

FAMILY = str(Path(__file__).with_name("family.py"))


async def main(how: str, kinds: list[str]) -> None:
    env = child_environment({})
    servers = [await start(Launch(argv=(sys.executable, FAMILY, kind), env=env)) for kind in kinds]
    for server in servers:
        print("keeper", server.keeper_pid, flush=True)
        for _ in range(2):
            print((await server.stdout.readline()).decode(), end="", flush=True)
    if how == "forked":
        fork = os.fork()
        if fork == 0:
            signal.pause()
        print("fork", fork, flush=True)
    print("ready", os.getpid(), flush=True)
    if how != "torn":
        await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
