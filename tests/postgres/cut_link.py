"""A link to a server that a test can cut during a commit."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Literal

Moment = Literal["before", "after"]


class Link:
    """Forwards connections; the next COMMIT ends its connection, before or after the server has seen it."""

    def __init__(self, server: tuple[str, int], listening: socket.socket) -> None:
        self._server = server
        self._listening = listening
        self.port: int = listening.getsockname()[1]
        self.cut_at: Moment | None = None
        self.cuts = 0

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                upstream = socket.create_connection(self._server)
                answers = threading.Event()  # is cleared to keep answers from the client
                answers.set()
                for work in (self._requests, self._answers):
                    threading.Thread(target=work, args=(client, upstream, answers), daemon=True).start()

    def _requests(self, client: socket.socket, upstream: socket.socket, answers: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut_at is not None and b"COMMIT" in data:
                    moment, self.cut_at = self.cut_at, None
                    self.cuts += 1
                    if moment == "after":
                        answers.clear()
                        upstream.sendall(data)
                        return  # the answer ends the connection
                    break
                upstream.sendall(data)
        _close(client, upstream)

    def _answers(self, client: socket.socket, upstream: socket.socket, answers: threading.Event) -> None:
        with suppress(OSError):
            while (data := upstream.recv(65536)) and answers.is_set():
                client.sendall(data)
        _close(client, upstream)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def linked(server: tuple[str, int]) -> Generator[Link]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        link = Link(server, listening)
        threading.Thread(target=link.run, daemon=True).start()
        yield link
        listening.shutdown(socket.SHUT_RDWR)
