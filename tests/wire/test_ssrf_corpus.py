"""Every URL of the corpus is judged right: no leak, and no false block."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ToolPermissionError
from toolpost.wire.network import resolve
from toolpost.wire.targets import parse_target

CORPUS = tomllib.loads((Path(__file__).parent / "ssrf_corpus.toml").read_text(encoding="utf-8"))

Group = dict[str, Any]


class Row(NamedTuple):
    url: str
    answers: list[str]


def rows(group: Group) -> Iterator[Row]:
    yield from (Row(url, []) for url in group.get("urls", []))
    yield from (Row(url, answers) for url, answers in group.get("lookups", {}).items())


def groups_to(verdict: str) -> list[Any]:
    return [pytest.param(group, id=group["form"]) for group in CORPUS[verdict]]


async def refusal(row: Row) -> ToolPermissionError | None:
    """What the guard said against the URL, if anything."""
    try:
        await resolve(parse_target(row.url), resolver=StubResolver(row.answers))
    except ToolPermissionError as refused:
        return refused
    return None


@pytest.mark.req("TEST-10", "NSSRF-02")
@pytest.mark.parametrize("group", groups_to("refuse"))
async def test_nothing_leaks(group: Group) -> None:
    refusals = {row.url: await refusal(row) for row in rows(group)}

    assert [url for url, refused in refusals.items() if refused is None] == []
    assert {refused.error_code for refused in refusals.values() if refused} == {"address_refused"}
    texts = [str(refused) for refused in refusals.values()]
    assert [text for text in texts if not text.startswith("Permission denied: ")] == []
    assert [text for text in texts if group["because"] not in text] == []


@pytest.mark.req("TEST-10")
@pytest.mark.parametrize("group", groups_to("allow"))
async def test_nothing_is_blocked_by_mistake(group: Group) -> None:
    refusals = {row.url: await refusal(row) for row in rows(group)}

    assert {url: refused for url, refused in refusals.items() if refused} == {}


def test_the_corpus_is_large_and_has_no_url_twice() -> None:
    refused, allowed = ([row.url for group in CORPUS[verdict] for row in rows(group)] for verdict in CORPUS)

    assert len(refused) >= 550
    assert len(allowed) >= 75
    assert len({*refused, *allowed}) == len(refused) + len(allowed)
