"""Files as arguments: they travel beside the JSON, to a server that knows the multipart specification."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import strawberry
from aiohttp import web
from strawberry.aiohttp.views import GraphQLView
from strawberry.file_uploads import Upload

from tests.sources.graphql.serving import source, toolbox

TEXT = {"text": "hello"}


def content(file: Any) -> str:
    return str(file.read().decode())


@strawberry.input
class Photo:
    text: str | None = None
    file: Upload | None = None
    others: list[Upload] | None = None
    behind: "Photo | None" = None


@strawberry.type
class Query:
    @strawberry.field
    def poem(self) -> str:
        return "roses " * 10_000


@strawberry.type
class Mutation:
    @strawberry.mutation
    def one(self, file: Upload) -> str:
        return content(file)[:20]

    @strawberry.mutation
    def many(self, files: list[Upload]) -> list[str]:
        return [content(file) for file in files]

    @strawberry.mutation
    def hang(self, photo: Photo) -> list[str | None]:
        behind = photo.behind or Photo()
        files = [photo.file, *(photo.others or ()), behind.file]
        return [photo.text, behind.text, *(None if file is None else content(file) for file in files)]


@asynccontextmanager
async def gallery(seen: list[web.Request]) -> AsyncGenerator[str]:
    view = GraphQLView(schema=strawberry.Schema(Query, Mutation), multipart_uploads_enabled=True)

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return await view(request)

    app = web.Application()
    app.router.add_post("/graphql", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/graphql"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("tool", "arguments", "gives"),
    [
        ("one", {"file": {"text": "hello", "filename": 'a "b".txt'}}, "hello"),
        ("many", {"files": [TEXT, {"base64": "Yg=="}]}, ["hello", "b"]),
        ("many", {"files": []}, []),
        ("hang", {"photo": {"text": "no file", "others": [TEXT]}}, ["no file", None, None, "hello", None]),
        ("hang", {"photo": {"file": TEXT, "behind": {"file": {"text": "x"}}}}, [None, None, "hello", "x"]),
    ],
    ids=["one", "a list", "an empty list", "in a list of an input", "in an input of an input"],
)
async def test_a_file_is_sent_wherever_the_schema_has_one(tool: str, arguments: dict[str, Any], gives: Any) -> None:
    async with gallery([]) as address, toolbox(source(address)) as box:
        outcome = await box.call(f"lib.{tool}", arguments)
    assert outcome.content == gives


async def test_a_file_can_be_an_artifact_of_the_one_who_calls() -> None:
    seen: list[web.Request] = []
    async with gallery(seen) as address, toolbox(source(address)) as box:
        [artifact] = (await box.call("lib.poem", {})).artifacts
        sent = await box.call("lib.one", {"file": {"artifact_id": artifact}})
        foreign = [
            await box.call("lib.one", {"file": {"artifact_id": artifact}}, user=who)
            for who in ("other:eve", "local:eve")
        ]
    assert sent.content == "roses roses roses ro"
    assert all(f"the artifact {artifact!r} does not exist" in str(one.error) for one in foreign)
    # Without it Apollo takes a form for one that a web page sent.
    assert seen[-1].headers["Apollo-Require-Preflight"] == "true"


async def test_what_is_no_file_is_refused_before_anything_is_sent() -> None:
    seen: list[web.Request] = []
    async with gallery(seen) as address, toolbox(source(address)) as box:
        before = len(seen)
        empty = await box.call("lib.one", {"file": {}})
        broken = await box.call("lib.many", {"files": [TEXT, {"base64": "%"}]})
        assert len(seen) == before
    assert '$.file: needs one of "artifact_id", "base64", "text"' in str(empty.error)
    assert "$.files.1: its base64 cannot be read" in str(broken.error)
