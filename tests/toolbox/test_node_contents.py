"""What a ToolNode has besides tools, and what becomes of large results and files."""

import json
from typing import Any

from fastmcp import FastMCP
from fastmcp.utilities.types import Image

from toolpost import Completed, ExternalToolConfig, Settings, Toolbox, ToolNode, ToolRegistry

PICTURE = b"\x89PNG\r\n" + bytes(100)
LONG = "line\n" * 20_000


def library() -> ToolNode:
    """A node on a server with tools, resources and a prompt."""
    server: FastMCP[Any] = FastMCP("library")

    @server.resource("book://one", mime_type="text/plain")
    def one() -> str:
        return "Chapter 1"

    @server.resource("book://{title}/cover", mime_type="image/png")
    def cover(title: str) -> bytes:
        return PICTURE

    @server.prompt
    def review(title: str) -> str:
        """Ask for a review."""
        return f"Review {title}."

    @server.tool
    def whole() -> str:
        return LONG

    @server.tool
    def pages() -> list[Any]:
        return ["a page", Image(data=PICTURE, format="png")]

    return _node(server)


def _node(server: FastMCP[Any]) -> ToolNode:
    config = ExternalToolConfig(name="lib", transport="mcp", connection="memory:server")
    return ToolNode(config=config, registry=ToolRegistry(), server=server)


async def test_resources_are_listed_and_read() -> None:
    async with library() as node:
        assert [each["uri"] for each in await node.list_resources()] == ["book://one"]
        assert [each["uriTemplate"] for each in await node.list_resource_templates()] == ["book://{title}/cover"]
        assert [each["text"] for each in await node.read_resource("book://one")] == ["Chapter 1"]


async def test_a_file_is_read_by_the_id_that_its_result_names() -> None:
    async with library() as node:
        [stored] = await node.read_resource("book://one/cover")
        assert await node.read_artifact(stored["artifact_id"]) == PICTURE


async def test_prompts_are_listed_and_filled_in() -> None:
    async with library() as node:
        assert [(each["name"], each["description"]) for each in await node.list_prompts()] == [
            ("review", "Ask for a review.")
        ]
        filled = await node.get_prompt("review", {"title": "Moby-Dick"})
    assert filled["messages"][0]["content"]["text"] == "Review Moby-Dick."


async def test_a_server_that_offers_no_resources_and_prompts_lists_none() -> None:
    async with _node(FastMCP("bare")) as node:
        listed = [await node.list_resources(), await node.list_resource_templates(), await node.list_prompts()]
    assert listed == [[], [], []]


async def test_a_large_result_reaches_the_caller_of_a_node_whole() -> None:
    async with library() as node:
        assert (await node.call("whole", {}))["result"] == LONG


async def test_a_toolbox_stores_the_large_results_and_files_of_a_nodes_tools() -> None:
    settings = Settings(data_dir=None, policy="exploratory")
    async with library() as node, Toolbox(tools=node.get_tools(), settings=settings) as box:
        whole, pages = await box.call("lib.whole"), await box.call("lib.pages")
        assert isinstance(whole, Completed)
        assert isinstance(pages, Completed)
        stored = json.loads(await box.store.artifacts.read(*whole.artifacts, tenant="local"))
        assert stored == {"result": LONG}
        assert pages.content[1]["artifact_id"] == pages.artifacts[0]
        assert await box.store.artifacts.read(*pages.artifacts, tenant="local") == PICTURE
