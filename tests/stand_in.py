"""Stands for a program that runs in a fork of a warm process: `python stand_in.py PLACE PROGRAM [ARGUMENT...]`.

The program gets the streams, the variables and the folder of this process. Its end is the end of this one, and the
other way round. Standard library only and no neighbours: an interpreter without site-packages starts in a tenth of the
time.
"""

import array
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any


def ask(place: str, order: dict[str, Any], streams: Sequence[int]) -> socket.socket:
    """Have a program run as long as somebody holds this socket; its pid and its exit code are told there, by line."""
    asking = socket.socket(socket.AF_UNIX)
    asking.connect(f"\0{place}")
    text = json.dumps(order).encode()
    rights = array.array("i", streams)
    asking.sendmsg([len(text).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    asking.sendall(text)
    return asking


def main(place: str, *arguments: str) -> int:
    """Be there until the program has ended."""
    order = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109
        "at_terminal": False,
    }
    with ask(place, order, (0, 1, 2)) as asking, asking.makefile() as told:
        os.close(0)
        os.close(1)
        told.readline()
        return int(told.readline() or 1)


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]) % 256)
