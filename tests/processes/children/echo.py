"""A well-behaved server: `echo.py [CODE]` says its pid, echoes lines, and exits with the code when stdin ends."""

import os
import sys

print(os.getpid(), flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
