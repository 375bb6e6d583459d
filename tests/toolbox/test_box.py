"""What a Toolbox is made of: settings, a file, and what is given beside it."""

import inspect
from pathlib import Path

import pytest
from fastmcp import FastMCP

from toolpost import Completed, ConfigError, Toolbox, tool
from toolpost.contracts.calls import PermittedCall
from toolpost.sources import Credential


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_opening_by_a_file_takes_all_that_a_toolbox_takes() -> None:
    made = inspect.signature(Toolbox).parameters.keys()
    opened = inspect.signature(Toolbox.open).parameters.keys()

    assert made - opened == {"settings"}
    assert opened - made == {"config"}


async def test_servers_and_credentials_are_given_beside_a_file(tmp_path: Path) -> None:
    lent: list[str] = []

    class Lender:
        async def credential(self, call: PermittedCall) -> Credential:
            lent.append(f"{call.validated.tool.spec.name} for {call.validated.request.principal}")
            return Credential(key="of ann")

    server = FastMCP("notes")

    @server.tool
    def read() -> str:
        return "milk"

    file = tmp_path / "toolpost.yaml"
    file.write_text("policy: exploratory\nsources: [{name: notes, transport: mcp, connection: 'memory:notes'}]\n")
    async with Toolbox.open(file, tools=[add], servers={"notes": server}, credentials={"notes": Lender()}) as box:
        outcome = await box.call("notes.read", user="acme:ann")

    assert isinstance(outcome, Completed)
    assert lent == ["notes.read for acme:ann"]


async def test_settings_may_be_a_mapping_with_the_keys_of_the_file() -> None:
    async with Toolbox(tools=[add], settings={"data_dir": None, "tools": {"maxConcurrent": 7}}) as box:
        outcome = await box.call("add", {"a": 1, "b": 2})

    assert isinstance(outcome, Completed)
    assert (box.settings.data_dir, box.settings.tools.max_concurrent) == (None, 7)


def test_a_mapping_that_is_wrong_is_reported_as_a_file_is() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'data_dri' in settings; did you mean 'data_dir'\?"):
        Toolbox(settings={"data_dri": None})
