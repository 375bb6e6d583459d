"""A Toolbox in a temporary folder, on each of the stores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolpost import Settings, Tool, Toolbox

MakeBox = Callable[..., Any]  # outcomes are a union; a test knows which it expects


@pytest.fixture(params=["memory", "sqlite"])
def make_box(request: pytest.FixtureRequest, tmp_path: Path) -> MakeBox:
    data_dir = tmp_path / "data" if request.param == "sqlite" else None

    def make(*tools: Tool, on_pending: Any = None, sinks: Any = (), **settings: Any) -> Toolbox:
        return Toolbox(
            tools=tools, settings=Settings(data_dir=data_dir, **settings), on_pending=on_pending, sinks=sinks
        )

    return make


@pytest.fixture
def disk_box(tmp_path: Path) -> MakeBox:
    """A Toolbox on SQLite; made twice, the second finds what the first has left."""

    def make(*tools: Tool, **settings: Any) -> Toolbox:
        return Toolbox(tools=tools, settings=Settings(data_dir=tmp_path / "data", **settings))

    return make
