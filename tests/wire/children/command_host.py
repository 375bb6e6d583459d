"""A host of commands to be killed: `command_host.py HOW KIND...` runs a family of each kind, says every pid, and waits.

HOW is `plain`, `forked` (a fork of the host lives on, with all its descriptors) or `torn` (no wait: the loop ends).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from toolpost.wire.commands import Commands, run_command
from toolpost.wire.environment import child_environment

FAMILY = str(Path(__file__).with_name("family.py"))


async def main(how: str, kinds: list[str]) -> None:
    commands, heard = Commands(), asyncio.Queue[str]()
    runs = [
        asyncio.create_task(
            run_command(
                (sys.executable, FAMILY, kind),
                env=child_environment({}),
                timeout_s=60,
                max_output_bytes=1000,
                on_line=lambda line, _: heard.put_nowait(line),
                commands=commands,
            )
        )
        for kind in kinds
    ]
    for _ in range(2 * len(runs)):
        print(await heard.get(), flush=True)
    print("steward", commands.steward_pid, flush=True)
    if how == "forked":
        fork = os.fork()
        if fork == 0:
            signal.pause()
        print("fork", fork, flush=True)
    print("ready", os.getpid(), flush=True)
    if how == "torn":
        os._exit(0)
    await asyncio.wait(runs)


asyncio.run(main(sys.argv[1], sys.argv[2:]))
