"""Tell the service manager that started this process how it is, as `sd_notify` does."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify_service_manager(state: str) -> None:
    """Send a state such as `READY=1` to systemd; nothing happens where no one asked for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.connect(address)
        manager.sendall(state.encode())
