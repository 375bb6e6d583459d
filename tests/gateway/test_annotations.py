"""Annotations that the gateway publishes: never looser than what is known, whatever an untrusted server claims."""

from itertools import product
from typing import Any

import pytest
from fastmcp import FastMCP
from mcp.client.client import Client

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Toolbox, tool
from toolpost.configuration.settings import ViewSettings
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.mcp.server import McpServer
from toolpost.gateway.views import View

HINTS: tuple[str, ...] = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
STRICTEST = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
CLAIMS: list[dict[str, bool | None]] = [
    dict(zip(HINTS, values, strict=True)) for values in product((None, True, False), repeat=4)
]


def server_with(claims: list[dict[str, bool | None]]) -> FastMCP[Any]:
    """A server with a tool for each of these annotations."""
    made: FastMCP[Any] = FastMCP("srv")
    for number, hints in enumerate(claims):
        given = {name: hint for name, hint in hints.items() if hint is not None}
        made.tool(lambda: "done", name=f"t{number}", annotations={"title": f"T{number}", **given})
    return made


async def published(claims: list[dict[str, bool | None]], tools: Any = (), **options: Any) -> dict[str, dict[str, Any]]:
    """The annotations that a client of the gateway sees, by tool."""
    source = ExternalToolConfig(name="srv", transport="mcp", connection="memory:server", **options)
    settings = PatientSettings(data_dir=None, builtins="none", sources=[source])
    async with Toolbox(tools=tools, settings=settings, servers={"srv": server_with(claims)}) as box:
        relay = ProgressRelay()
        server = McpServer(box, principal=lambda _: "acme:ann", relay=relay, view=View(box, "view", ViewSettings()))
        async with server.publishing(), Client(server.server) as client:
            listed = (await client.list_tools()).tools
    shown = {one.name: one.annotations for one in listed if one.annotations is not None}
    return {name: one.model_dump(by_alias=True, exclude_none=True) for name, one in shown.items()}


async def test_no_claim_of_an_untrusted_server_is_published_as_a_looser_annotation() -> None:
    seen = await published(CLAIMS)

    shown = [{hint: seen[f"srv__t{number}"].get(hint) for hint in HINTS} for number in range(len(CLAIMS))]
    assert shown == [STRICTEST] * len(CLAIMS)
    assert seen["srv__t3"]["title"] == "T3"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"readOnlyHint": True}, {"readOnlyHint": True, "openWorldHint": False}),
        ({"readOnlyHint": True, "openWorldHint": True}, {"readOnlyHint": True, "openWorldHint": True}),
        (
            {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
            {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        ),
        ({}, STRICTEST),
        ({"readOnlyHint": True, "destructiveHint": True}, STRICTEST),
    ],
)
async def test_the_claims_of_a_trusted_server_are_published(claims: Any, expected: dict[str, bool]) -> None:
    seen = await published([claims], trust=True)

    assert seen["srv__t0"] == {"title": "T0", **expected}


async def test_an_override_of_the_operator_is_what_is_known() -> None:
    claims: dict[str, bool | None] = {"readOnlyHint": True}
    stricter = await published(
        [claims], trust=True, overrides={"t0": {"side_effects": "external", "destructive": True}}
    )
    looser = await published([{}], overrides={"t0": {"side_effects": "read", "destructive": False}})

    assert (stricter["srv__t0"]["readOnlyHint"], stricter["srv__t0"]["destructiveHint"]) == (False, True)
    assert looser["srv__t0"]["readOnlyHint"] is True


async def test_the_effects_of_a_python_tool_are_published_as_they_are_declared() -> None:
    @tool(side_effects="read", open_world=True)
    def look() -> str:
        """Look."""
        return ""

    assert (await published([], tools=[look]))["look"] == {"readOnlyHint": True, "openWorldHint": True}
