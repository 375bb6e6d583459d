"""A host to be killed: `host.py AS HOW KIND...` starts a family of each kind, says every pid, and waits.

AS is `server` or `command`. HOW is `plain`, `forked` (a fork of the host lives on, with all its descriptors) or `torn`
(no wait: the loop ends).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.processes.subjects import SUBJECTS, Subject
from toolpost.processes.launch import Launch, child_environment

FAMILY = str(Path(__file__).with_name("family.py"))


async def main(subject: type[Subject], how: str, kinds: list[str]) -> None:
    env = child_environment({})
    started = [await subject.begin(Launch(argv=(sys.executable, FAMILY, kind), env=env)) for kind in kinds]
    for one in started:
        for _ in range(2):
            print(await one.line(), flush=True)
        for pid in one.supervisors():
            print("supervisor", pid, flush=True)
    if how == "forked":
        fork = os.fork()
        if fork == 0:
            signal.pause()
        print("fork", fork, flush=True)
    print("ready", os.getpid(), flush=True)
    if how != "torn":
        await asyncio.Event().wait()


asyncio.run(main(SUBJECTS[sys.argv[1]], sys.argv[2], sys.argv[3:]))
