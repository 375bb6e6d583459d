"""Results that go on: what a model and a program are told of the next page."""

from typing import Any

import pytest

from tests.sources.graphql.serving import Canned, rough, source, toolbox

SDL = """
type Query { users(first: Int, after: String, last: Int, before: String): Users, all: Users }
type Users { nodes: [User!]!, pageInfo: Page! }
type User { id: ID! }
type Page { hasNextPage: Boolean!, endCursor: String, hasPreviousPage: Boolean!, startCursor: String }
"""


async def listed(tool: str, page: dict[str, Any], arguments: dict[str, Any]) -> Any:
    data = {"nodes": [{"id": "1"}], "pageInfo": {"hasNextPage": False, "hasPreviousPage": False, **page}}
    answer = Canned({"data": {tool: data}})
    async with rough(SDL, answer) as server, toolbox(source(server.address)) as box:
        return await box.call(f"lib.{tool}", arguments)


@pytest.mark.parametrize(
    ("page", "arguments", "more"),
    [
        ({"hasNextPage": True, "endCursor": 'c"1'}, {"first": 1}, {"after": 'c"1'}),
        ({"hasNextPage": True, "endCursor": "c"}, {}, {"after": "c"}),
        ({"hasPreviousPage": True, "startCursor": "c", "hasNextPage": True}, {"last": 1}, {"before": "c"}),
    ],
    ids=str,
)
async def test_a_list_that_continues_tells_how(page: Any, arguments: Any, more: Any) -> None:
    outcome = await listed("users", page, arguments)
    assert outcome.meta["next"] == {"arguments": more}
    assert "There is more: call again with {" in outcome.text
    assert outcome.content["nodes"] == [{"id": "1"}]


@pytest.mark.parametrize(
    ("tool", "page"),
    [
        ("users", {"endCursor": "c"}),
        ("users", {"hasNextPage": True, "endCursor": None}),
        ("users", {"hasPreviousPage": True, "startCursor": "c"}),
        ("all", {"hasNextPage": True, "endCursor": "c"}),
    ],
    ids=str,
)
async def test_a_list_that_ends_or_cannot_continue_tells_nothing(tool: str, page: Any) -> None:
    outcome = await listed(tool, page, {})
    assert outcome.status == "completed"
    assert "There is more" not in (outcome.text or "")
