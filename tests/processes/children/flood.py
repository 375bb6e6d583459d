"""A server that floods stderr: `flood.py MEGABYTES`, with a last word on either stream."""

import sys

for _ in range(int(sys.argv[1])):
    sys.stderr.write("x" * 2**20)
sys.stderr.buffer.write("\xff last word".encode("latin-1"))
sys.stderr.flush()
print("done", flush=True)
