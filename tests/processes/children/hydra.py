"""A program that never ends and is never the same process for long: `hydra.py KIND MARK`; it ignores SIGTERM.

group: every head grows the next one and dies. session: each does so in a session of its own. many: heads stay.
"""

import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
for _ in range(2000 if sys.argv[1] != "many" else 50):
    if os.fork():
        if sys.argv[1] == "many":
            continue
        os._exit(0)
    if sys.argv[1] == "session":
        os.setsid()
    if sys.argv[1] == "many":
        break
    time.sleep(0.002)
time.sleep(60)
