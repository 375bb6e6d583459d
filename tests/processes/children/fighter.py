"""A program that fights its supervisors: `fighter.py stop|kill`; it writes its own pid, and those that it starts."""

import os
import signal
import subprocess
import sys
import time

ENDLESS = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - quick to import
        return int(stat.read().rpartition(b")")[2].split()[1])


for name in ("SIGTERM", "SIGHUP", "SIGINT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
worker = os.getppid()
supervisor = parent(worker)
daemon = subprocess.Popen([sys.executable, "-c", ENDLESS], start_new_session=True, stdout=subprocess.DEVNULL)
print("self", os.getpid(), flush=True)
print("daemon", daemon.pid, flush=True)
if sys.argv[1] == "kill":
    if os.fork() == 0:  # a child is not killed with the worker
        os.setsid()
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
        while True:
            time.sleep(1)
    while True:
        time.sleep(1)
while True:
    for pid in (supervisor, worker):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.001)
