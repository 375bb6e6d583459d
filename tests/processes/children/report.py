"""A server that says, as one line of JSON, how it was started; then it waits for the end of stdin."""

import json
import os
import stat
import sys
from pathlib import Path


def is_open(descriptor: int) -> bool:
    try:
        return stat.S_IFMT(os.fstat(descriptor).st_mode) != 0
    except OSError:
        return False


def ignored_signals() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)


facts = {
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "environ": Path("/proc/self/environ").read_text(),
    "descriptors": [descriptor for descriptor in range(64) if is_open(descriptor)],
    "folder": str(Path.cwd()),
    "ignored": ignored_signals(),
    "session": os.getsid(0) == os.getpid(),
}
print(json.dumps(facts), flush=True)
sys.stdin.read()
