"""Connections that notice a server that has stopped answering."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


class WatchedConnection(psycopg.Connection[Row]):
    """A connection that is closed if the server sends nothing for `silence_s` while a statement waits for it.

    The server ends a statement that takes too long, and the system notices a network that is down. Neither helps
    against a server that is frozen, because its system still confirms what it receives.
    """

    silence_s: float = math.inf

    def wait(self, gen: PQGen[T], *options: Any, **more: Any) -> T:
        """Wait for the server; OperationalError after `silence_s`."""
        return super().wait(self._watch(gen), *options, **more)

    def _watch(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        """Run a generator of psycopg, which is sent 0 if the server was silent for a moment."""
        silent_since, send = None, gen.send
        try:
            state = next(gen)
            while True:  # a dozen times for each call with effects
                ready = yield state
                if ready:
                    silent_since = None
                elif silent_since is None:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since > self.silence_s:
                    self.close()
                    raise psycopg.OperationalError(f"the server did not answer within {self.silence_s:g} s")
                state = send(ready)
        except StopIteration as ended:
            result: T = ended.value
            return result
