"""What stands in for the network in tests of the guard."""

from typing import Any


class StubResolver:
    """Answers like `loop.getaddrinfo`, one list of addresses a look-up; the last one stays."""

    def __init__(self, *lookups: list[str]) -> None:
        self.lookups = list(lookups)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int, /, *, type: int) -> list[tuple[Any, ...]]:
        self.asked.append((host, port))
        addresses = self.lookups.pop(0) if len(self.lookups) > 1 else self.lookups[0]
        return [(0, type, 6, "", (address, port)) for address in addresses]
