"""A server that will not end by itself, and its grandchild: `family.py KIND`; both say their pid and ignore SIGTERM.

group: the grandchild stays in the server's process group. session: it makes a session of its own.
daemon: it does so with its parent gone. left: like session, but the server exits with code 3 at a line on stdin.
"""

import os
import signal
import subprocess
import sys
import time


def grandchild() -> None:
    print("grandchild", os.getpid(), flush=True)
    while True:
        time.sleep(60)


def start_grandchild(kind: str) -> None:
    if kind == "daemon":
        command = [sys.executable, __file__, "parent"]
        subprocess.run(command, start_new_session=True, check=True)
        return
    subprocess.Popen([sys.executable, __file__, "grandchild"], start_new_session=kind != "group")


def server(kind: str) -> None:
    start_grandchild(kind)
    print("server", os.getpid(), flush=True)
    if kind == "left" and sys.stdin.readline():
        os._exit(3)
    while True:
        time.sleep(60)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
match sys.argv[1]:
    case "grandchild":
        grandchild()
    case "parent":
        subprocess.Popen([sys.executable, __file__, "grandchild"], start_new_session=True)
        os._exit(0)
    case kind:
        server(kind)
