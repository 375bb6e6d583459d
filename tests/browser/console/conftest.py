"""A gateway with the built console, and people who visit it; whatever a page complains about fails the test."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor

FIGURES: list[str] = []
BUSY = 1.5  # processes per processor; a gateway and its browser keep one busy
Guest = Callable[..., Any]


@pytest_asyncio.fixture(loop_scope="session")
async def closing() -> AsyncIterator[AsyncExitStack]:
    """What a test opens for its visitors; it is closed after they have left, so that no page sees it end."""
    async with AsyncExitStack() as closing:
        yield closing


@pytest_asyncio.fixture(loop_scope="session")
async def desk(tmp_path: Path, closing: AsyncExitStack) -> Desk:
    return await closing.enter_async_context(open_desk(tmp_path))


@pytest_asyncio.fixture(loop_scope="session")
async def guest(chromium: Browser, closing: AsyncExitStack) -> AsyncIterator[Guest]:
    """Makes visitors, each with a browser of their own; in the end none of them may have a complaint."""
    visitors: list[ConsoleVisitor] = []
    async with AsyncExitStack() as leaving:

        async def come(home: str, **settings: Any) -> ConsoleVisitor:
            context = await chromium.new_context(**{"reduced_motion": "reduce", **settings})
            leaving.push_async_callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            visitors.append(visitor := ConsoleVisitor(context, home))
            await visitor.watch()
            return visitor

        expect.set_options(timeout=PATIENCE_MS)
        yield come
        expect.set_options(timeout=5_000)
        complaints = [text for visitor in visitors for text in visitor.complaints]
    assert complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def ann(desk: Desk, guest: Guest) -> ConsoleVisitor:
    """The operator at a desk."""
    visitor: ConsoleVisitor = await guest(desk.url, viewport={"width": 1440, "height": 900})
    return visitor


class Figure(Protocol):
    """Keeps a measurement, which is printed below the tests."""

    def __call__(self, what: str, measured: float, goal: float, unit: str = "ms") -> None: ...


@pytest.fixture
def figure() -> Figure:
    """Keeps measurements; on a machine that does nothing else, each must reach its goal."""

    def keep(what: str, measured: float, goal: float, unit: str = "ms") -> None:
        is_busy = os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)
        verdict = "reached" if measured <= goal else "not judged, the machine is busy" if is_busy else "MISSED"
        FIGURES.append(text := f"{what}: {measured:.4g} {unit} (goal {goal:g}: {verdict})")
        assert verdict != "MISSED", text

    return keep


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for text in FIGURES:
        terminalreporter.write_line(f"console: {text}")
