"""Tools in the console: search, calls with arguments in every form, and results of every kind."""

import struct
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.console.conftest import Figure, Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor, axe, longest_task, menu, overflowing, scrolls
from toolpost import ToolContext, tool

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]


LARGE = 65_000_000  # bytes; more than a page keeps in memory


async def calls(tab: Page) -> None:
    """Call the tool on the screen, and wait for its result."""
    await tab.get_by_role("button", name="Call Ctrl").click()
    await expect(tab.get_by_text("Completed", exact=True).first).to_be_visible()


async def test_a_tool_is_called_with_a_list_and_a_choice(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.order")
    await tab.get_by_role("button", name="Add an item").click()
    await tab.get_by_label("product").fill("lamp")
    await tab.get_by_text("Transfer", exact=True).click()
    await tab.get_by_label("iban").fill("DE00")
    await calls(tab)

    await expect(tab.get_by_text("DE00").last).to_be_visible()


async def test_an_invalid_value_is_reported_at_its_field_and_nothing_is_called(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/bank.transfer")
    await tab.get_by_role("button", name="Call Ctrl").click()
    await expect(tab.get_by_text("Check the marked fields.")).to_be_visible()
    await expect(tab.locator("[aria-invalid=true]")).to_have_count(1)
    await ann.settles(tab)
    found = [await axe(tab), await overflowing(tab)]

    assert found == [[], []]
    assert (await desk.gate.http.get("/api/v1/runs")).json()["items"] == []


async def test_results_are_shown_as_a_table_and_as_markdown_without_foreign_images(
    desk: Desk, ann: ConsoleVisitor
) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.products")
    await calls(tab)
    await expect(tab.get_by_role("columnheader", name="price")).to_be_visible()
    await expect(tab.get_by_role("cell", name="Product 3", exact=True)).to_be_visible()
    await tab.goto(f"{desk.url}/tools/shop.report")
    await calls(tab)
    await expect(tab.get_by_role("heading", name="Sales")).to_be_visible()
    await expect(tab.get_by_text("example.com").first).to_be_visible()
    images = await tab.locator("aside img").count()
    await ann.settles(tab)

    assert images == 0
    assert [await axe(tab), await overflowing(tab)] == [[], []]


def png(width: int = 8) -> bytes:
    """A small image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" + b"\x17\x68\x4a" * width for _ in range(width)))
    head = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


async def test_an_image_is_shown_and_a_drawing_with_a_script_is_shown_as_its_source(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack
) -> None:
    @tool(name="shop.photo", side_effects="pure")
    async def photo(ctx: ToolContext) -> str:
        """Store a photo."""
        return await ctx.save_artifact(png(), media_type="image/png", name="lamp.png")

    @tool(name="shop.drawing", side_effects="pure")
    async def drawing(ctx: ToolContext) -> str:
        """Store a drawing."""
        return await ctx.save_artifact(SVG, media_type="image/svg+xml", name="drawing.svg")

    desk = await closing.enter_async_context(open_desk(tmp_path, photo, drawing))
    ann: ConsoleVisitor = await guest(desk.url)
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.photo")
    await calls(tab)
    width = await tab.get_by_role("img", name="lamp.png").evaluate(
        "async (img) => (await img.decode(), img.naturalWidth)"
    )
    await tab.goto(f"{desk.url}/tools/shop.drawing")
    await calls(tab)
    await expect(tab.get_by_text("alert(1)").first).to_be_visible()

    assert width == 8
    await expect(tab.get_by_role("img", name="drawing.svg")).to_have_count(0)


async def test_a_large_file_is_saved_without_passing_through_the_page(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack
) -> None:
    @tool(name="shop.archive", side_effects="pure")
    async def archive(ctx: ToolContext) -> str:
        """Store a large file."""
        return await ctx.save_artifact(b"0" * LARGE, media_type="application/octet-stream", name="archive.bin")

    desk = await closing.enter_async_context(open_desk(tmp_path, archive))
    ann: ConsoleVisitor = await guest(desk.url)
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.archive")
    await calls(tab)
    async with tab.expect_download() as saving:
        await tab.get_by_role("button", name="Download").click()
    saved = await saving.value

    assert "/api/v1/downloads?token=" in saved.url
    assert (saved.suggested_filename, (await saved.path()).stat().st_size) == ("archive.bin", LARGE)


async def test_a_file_is_given_to_a_tool(tmp_path: Path, guest: Guest, closing: AsyncExitStack) -> None:
    @tool(name="shop.read_file", side_effects="read", input_schema=FILE)
    async def read_file(file: dict[str, str]) -> str:
        """Read a file that a person gives."""
        return file["filename"]

    desk = await closing.enter_async_context(open_desk(tmp_path, read_file))
    ann: ConsoleVisitor = await guest(desk.url)
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.read_file")
    await tab.locator("input[type=file]").set_input_files(
        {"name": "prices.csv", "mimeType": "text/csv", "buffer": b"lamp,49.5"}
    )
    await expect(tab.get_by_text("stored as an artifact")).to_be_visible()
    await calls(tab)

    await expect(tab.get_by_text("prices.csv").last).to_be_visible()


FILE = {
    "type": "object",
    "properties": {
        "file": {
            "type": "object",
            "properties": {"artifact_id": {"type": "string"}, "filename": {"type": "string"}},
            "required": ["artifact_id"],
        }
    },
    "required": ["file"],
}
# What no form can show: conditions, tuples, names by a pattern, and a schema inside itself.
STRANGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "condition": {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "number"}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": False},
        "named": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]+$"},
            "additionalProperties": {"type": "integer"},
        },
        "tree": {"$ref": "#/$defs/tree"},
        "not_text": {"not": {"type": "string"}},
    },
    "required": ["condition", "pair"],
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inside": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        }
    },
}


async def test_a_schema_that_no_form_can_show_is_filled_in_as_json_and_checked(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack
) -> None:
    @tool(name="shop.strange", side_effects="pure", input_schema=STRANGE)
    async def strange(**arguments: Any) -> Any:
        """Take what no form can show."""
        return arguments

    desk = await closing.enter_async_context(open_desk(tmp_path, strange))
    ann: ConsoleVisitor = await guest(desk.url)
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.strange")
    await ann.settles(tab)
    found = [await axe(tab), await overflowing(tab)]
    await tab.get_by_role("textbox", name="condition").fill('"x"')
    await tab.get_by_role("textbox", name="pair").fill('["a", 1')
    await tab.get_by_role("button", name="Call Ctrl").click()
    await expect(tab.get_by_text("Line 1, column", exact=False).first).to_be_visible()
    await tab.get_by_role("textbox", name="pair").fill('["a", 1]')
    await tab.get_by_role("button", name="Call Ctrl").click()
    await expect(tab.get_by_text("Check the marked fields.")).to_be_visible()
    await tab.get_by_role("textbox", name="condition").fill('"xy"')
    await calls(tab)

    assert found == [[], []]


async def test_a_tool_that_fails_says_why_and_whether_trying_again_helps(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.stock")
    await tab.get_by_label("product").fill("lamp")
    await tab.get_by_role("button", name="Call Ctrl").click()

    await expect(tab.get_by_text("no product lamp")).to_be_visible()
    await expect(tab.get_by_text("tool_raised")).to_be_visible()
    await expect(
        tab.get_by_text("Trying again does not help.").or_(tab.get_by_text("Trying again can help."))
    ).to_be_visible()


async def test_a_tool_among_ten_thousand_is_found_and_the_list_scrolls(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack, figure: Figure
) -> None:
    async def look(number: int = 0) -> int:
        return number

    many = [
        tool(name=f"shelf.read_{number}", side_effects="pure", desc=f"Read shelf {number}.")(look)
        for number in range(10_000)
    ]
    desk = await closing.enter_async_context(open_desk(tmp_path, *many))
    ann: ConsoleVisitor = await guest(desk.url, viewport={"width": 1280, "height": 800})
    tab = await ann.signs_in(await desk.ticket())
    await menu(tab, "Tools").click()
    await expect(tab.get_by_role("link", name="shelf.read_1", exact=False).first).to_be_visible()
    scrolled = await scrolls(tab, "Tools", 10_000)
    await tab.get_by_role("searchbox", name="Search tools").fill("shelf 7321")
    await tab.get_by_role("link", name="shelf.read_7321").click()
    await expect(tab.get_by_role("heading", name="shelf.read_7321")).to_be_visible()
    figure(f"10,000 tools, {scrolled:,} rows scrolled: longest task", await longest_task(tab), 100)

    assert scrolled >= 10_000
