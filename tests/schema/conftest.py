"""A place that no schema may lead to."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def unvisited() -> Iterator[str]:
    """An address where somebody listens, and to which nobody connects."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        place.setblocking(False)
        yield f"127.0.0.1:{place.getsockname()[1]}"
        with pytest.raises(BlockingIOError):
            place.accept()
