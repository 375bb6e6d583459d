"""The tools that get at large results."""

import base64
from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.builtin.artifacts import artifact_tools
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import Tool, ToolCategory
from toolpost.contracts.storage import ArtifactRef
from toolpost.stores.memory.store import MemoryStore

CHUNK = 1 << 20
REF = ArtifactRef(
    id="",
    sha256="",
    size=0,
    media_type="text/plain; charset=utf-8",
    name="",
    tenant="acme",
    user="ann",
    run_id="run_1",
    call_id="call_1",
    tool_name="make",
    created_at=1.0,
)


class Desk:
    """A store with its artifact tools, asked as a tenant."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.registry = ToolRegistry()
        self.registry.register_many(artifact_tools(self.store.artifacts))

    async def keep(self, data: bytes, **changes: Any) -> str:
        return (await self.store.artifacts.put(data, replace(REF, **changes))).id

    async def ask(
        self, name: str, *, tenant: str | None = "acme", user: str | None = None, **arguments: Any
    ) -> ToolResult:
        entry = self.registry.find(name)
        return await entry.tool.execute(entry.fit(arguments), ToolContext(tenant_id=tenant, user_id=user))

    async def read(self, artifact_id: str, **arguments: Any) -> dict[str, Any]:
        result = await self.ask("artifact_read", artifact_id=artifact_id, **arguments)
        assert result.success, result.error
        return dict(result.result)

    async def search(self, artifact_id: str, query: str, **arguments: Any) -> dict[str, Any]:
        result = await self.ask("artifact_search", artifact_id=artifact_id, query=query, **arguments)
        assert result.success, result.error
        return dict(result.result)

    async def read_whole(self, artifact_id: str, *, limit: int) -> bytes:
        whole, offset = b"", 0
        while True:
            part = await self.read(artifact_id, offset=offset, limit=limit)
            content = part["content"]
            whole += base64.b64decode(content) if part["encoding"] == "base64" else content.encode()
            if part["next_offset"] is None:
                return whole
            assert part["next_offset"] > offset
            offset = part["next_offset"]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.req("GEN-17")
def test_they_are_tools_like_any_other(desk: Desk) -> None:
    found = desk.registry.list()

    assert all(isinstance(tool, Tool) for tool in found)
    assert [tool.spec.name for tool in found] == ["artifact_read", "artifact_search"]
    assert {(tool.spec.side_effects, tool.spec.category) for tool in found} == {("read", ToolCategory.DATA)}
    assert all("ctx" not in tool.spec.input_schema["properties"] for tool in found)


async def test_a_small_artifact_is_read_at_once(desk: Desk) -> None:
    kept = await desk.keep(b"hello")

    assert await desk.read(kept) == {
        "artifact_id": kept,
        "media_type": "text/plain; charset=utf-8",
        "size": 5,
        "offset": 0,
        "next_offset": None,
        "encoding": "utf-8",
        "content": "hello",
    }


async def test_a_part_says_where_to_continue(desk: Desk) -> None:
    kept = await desk.keep(b"0123456789")

    part = await desk.read(kept, offset=2, limit=4)

    assert (part["content"], part["next_offset"]) == ("2345", 6)


@pytest.mark.parametrize("limit", [4, 5, 6, 7])
@pytest.mark.parametrize("text", ["a€b€c€", "ééééééééé", "🙂🙂🙂🙂", "plain"])
async def test_a_text_is_read_whole_wherever_its_characters_are_cut(desk: Desk, text: str, limit: int) -> None:
    kept = await desk.keep(text.encode())

    first = await desk.read(kept, limit=limit)

    assert first["encoding"] == "utf-8"
    assert await desk.read_whole(kept, limit=limit) == text.encode()


@pytest.mark.parametrize(
    "data",
    [b"abc\xe2\x82", b"\xff\xfe\x00abc", b"good \xff bad", b"caf\xe9 in latin-1", b"\x80" * 9],
    ids=["cut-off-at-the-end", "bytes-first", "in-the-middle", "latin-1", "only-bytes"],
)
async def test_a_text_that_is_none_loses_no_byte(desk: Desk, data: bytes) -> None:
    kept = await desk.keep(data)

    assert await desk.read_whole(kept, limit=4) == data


async def test_an_offset_within_a_character_gives_its_bytes(desk: Desk) -> None:
    kept = await desk.keep("€uro".encode())

    part = await desk.read(kept, offset=1)

    assert (part["encoding"], base64.b64decode(part["content"])) == ("base64", "€uro".encode()[1:])


async def test_bytes_are_read_as_base64(desk: Desk) -> None:
    data = bytes(range(256))
    kept = await desk.keep(data, media_type="image/png")

    part = await desk.read(kept, limit=100)

    assert (part["encoding"], base64.b64decode(part["content"]), part["next_offset"]) == ("base64", data[:100], 100)
    assert await desk.read_whole(kept, limit=100) == data


@pytest.mark.parametrize("media_type", ["application/json", "application/ld+json", "text/html", "application/xml"])
async def test_json_xml_and_every_kind_of_text_are_read_as_text(desk: Desk, media_type: str) -> None:
    kept = await desk.keep(b"{}", media_type=media_type)

    assert (await desk.read(kept))["encoding"] == "utf-8"


@pytest.mark.parametrize("offset", [5, 6, 1000])
async def test_beyond_the_end_there_is_nothing(desk: Desk, offset: int) -> None:
    kept = await desk.keep(b"hello")

    part = await desk.read(kept, offset=offset)

    assert (part["content"], part["next_offset"]) == ("", None)


@pytest.mark.parametrize(
    ("tenant", "user"), [("other", None), (None, None), ("acme", "bob"), ("acme", "acme:bob"), ("other", "ann")]
)
@pytest.mark.parametrize("name", ["artifact_read", "artifact_search"])
async def test_an_artifact_of_another_tenant_or_user_is_as_good_as_none(
    desk: Desk, name: str, tenant: str | None, user: str | None
) -> None:
    kept = await desk.keep(b"hello")
    arguments = {"query": "hello"} if name == "artifact_search" else {}

    own = [await desk.ask(name, user=one, artifact_id=kept, **arguments) for one in ("ann", "acme:ann")]
    result = await desk.ask(name, tenant=tenant, user=user, artifact_id=kept, **arguments)

    assert [one.success for one in own] == [True, True]

    assert (result.success, result.error) == (
        False,
        f"no artifact {kept!r} for this user; a completed call names its artifacts",
    )
    assert result.error_info is not None
    assert result.error_info["error_code"] == "artifact_not_found"


async def test_without_a_tenant_one_is_local(desk: Desk) -> None:
    kept = await desk.keep(b"hello", tenant="local")

    assert (await desk.ask("artifact_read", tenant=None, artifact_id=kept)).success


async def test_a_text_is_found_with_its_offset_and_surroundings(desk: Desk) -> None:
    kept = await desk.keep(b"." * 200 + b"needle" + b"," * 200 + b"needle")

    found = await desk.search(kept, "needle")

    assert found == {
        "artifact_id": kept,
        "matches": [
            {"offset": 200, "excerpt": "." * 80 + "needle" + "," * 80},
            {"offset": 406, "excerpt": "," * 80 + "needle"},
        ],
        "truncated": False,
    }


@pytest.mark.parametrize(("query", "count"), [("Ärger", 1), ("ÄRGER", 1), ("ärger", 1), ("nothing", 0)])
async def test_the_case_of_plain_letters_does_not_matter(desk: Desk, query: str, count: int) -> None:
    kept = await desk.keep("Viel Ärger, wenig ärger".encode())

    assert len((await desk.search(kept, query))["matches"]) == count


@pytest.mark.parametrize("before", range(CHUNK - 6, CHUNK + 2))
async def test_a_text_is_found_once_across_the_border_of_two_chunks(desk: Desk, before: int) -> None:
    kept = await desk.keep(b"." * before + b"needle" + b"." * 10)

    assert [match["offset"] for match in (await desk.search(kept, "needle"))["matches"]] == [before]


async def test_matches_beyond_the_limit_are_owned_up_to(desk: Desk) -> None:
    kept = await desk.keep(b"ab" * 5)

    found = [await desk.search(kept, "ab", max_results=most) for most in (4, 5)]

    assert [(len(part["matches"]), part["truncated"]) for part in found] == [(4, True), (5, False)]


async def test_an_empty_artifact_has_nothing_to_find(desk: Desk) -> None:
    kept = await desk.keep(b"")

    assert (await desk.search(kept, "a"))["matches"] == []
    assert (await desk.read(kept))["content"] == ""
