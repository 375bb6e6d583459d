"""A Toolbox in a temporary folder, on each of the stores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stores.out_of_order_store import NAME, OutOfOrderBackend
from toolpost import Settings, Tool, Toolbox
from toolpost.stores import registry

MakeBox = Callable[..., Any]  # outcomes are a union; a test knows which it expects


@pytest.fixture(autouse=True)
def _third_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the slow store; with `--third-store` it takes the place of SQLite in every Toolbox of this process."""
    place = f"{OutOfOrderBackend.__module__}:{OutOfOrderBackend.__name__}"
    for name in (NAME, "sqlite") if request.config.getoption("third_store") else (NAME,):
        monkeypatch.setitem(registry.BUILT_IN, name, place)


@pytest.fixture(params=["memory", "sqlite", NAME])
def make_box(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBox:
    data_dir = None if request.param == "memory" else tmp_path / "data"

    def make(*tools: Tool, on_pending: Any = None, sinks: Any = (), **settings: Any) -> Toolbox:
        chosen = Settings(data_dir=data_dir, database=request.param, **settings)
        return Toolbox(tools=tools, settings=chosen, on_pending=on_pending, sinks=sinks)

    return make


@pytest.fixture
def disk_box(tmp_path: Path) -> MakeBox:
    """A Toolbox on SQLite; made twice, the second finds what the first has left."""

    def make(*tools: Tool, **settings: Any) -> Toolbox:
        return Toolbox(tools=tools, settings=Settings(data_dir=tmp_path / "data", **settings))

    return make
