"""Requests of many made-up templates: they are what the packages of UTCP make of them, where those are right.

Left out are the places where they differ on purpose: booleans, null, nested values, and names that are given twice.
"""

import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.sources.utcp.serving import App, manual, tool
from tests.sources.utcp.test_utcp_itself import both, by_text

pytestmark = pytest.mark.programs

WORDS = ["x", "a b/c?d&e=f#g%h", "a+b%20c", "grüße €", "{a}x", "7", 7, -3, 2.5]
PATHS = ["", "/{id}", "/{id}/{part}", "/a%20b/pre{id}post", "/a+b", "/ü/{a b}"]
QUERIES = ["", "?f=1", "?f=1&g=a%20b", "?f={q}", "?f=a+b#part", "?f="]
PLACES = {"{id}": "id", "{part}": "part", "{a b}": "a b", "{q}": "q"}
BODIES: dict[str, list[Any]] = {
    "application/json": [{"a": [1, None, "ü"]}, [1, 2], "text", 0],
    "application/json; charset=utf-8": [{"a": {"b": "€"}}],
    "application/x-www-form-urlencoded": [{"a": "1", "b": "x y&z"}],
    "text/plain": ["as it is", "ü"],
}
KEY = {"auth_type": "api_key", "api_key": "k&1", "var_name": "key"}
AUTHS = [
    {"auth_type": "basic", "username": "ann", "password": "p:w"},
    {**KEY, "location": "header"},
    {**KEY, "location": "query"},
    {**KEY, "location": "cookie"},
]


def made(chance: random.Random, app: App) -> tuple[dict[str, Any], dict[str, Any]]:
    """A template, and arguments for it."""
    url = f"/echo{chance.choice(PATHS)}{chance.choice(QUERIES)}"
    fields: dict[str, Any] = {"http_method": chance.choice(["GET", "POST", "PUT", "PATCH", "DELETE"])}
    arguments = {name: chance.choice(WORDS) for place, name in PLACES.items() if place in url}
    arguments |= {name: chance.choice([*WORDS, ["1", "ü"]]) for name in chance.sample(["n", "m[]", "X-Y", "ä"], 2)}
    if chance.random() < 0.5:
        fields |= {"header_fields": ["X-Given"], "headers": {"X-Given": "fixed", "X-Fixed": "f"}}
        arguments |= {"X-Given": chance.choice(["g", 7])} if chance.random() < 0.7 else {}
    if chance.random() < 0.6:
        fields |= {"body_field": chance.choice(["body", "data"]), "content_type": chance.choice([*BODIES])}
        arguments[fields["body_field"]] = chance.choice(BODIES[fields["content_type"]])
    elif fields["http_method"] != "GET":
        fields["headers"] = {"Content-Type": "application/json"}  # else their client writes one for no body at all
    if chance.random() < 0.5:
        fields["auth"] = chance.choice(AUTHS)
    return app.http(url, **fields), arguments


def meant(request: dict[str, Any]) -> dict[str, Any]:
    """A request without the ways to write the same."""
    body = request["body"]
    if isinstance(body, str) and body and "json" in request["headers"].get("content-type", ""):
        body = json.loads(body)
    return {**request, "path": [unquote(step) for step in request["path"].split("/")], "body": body}


async def test_the_same_request_goes_out(app: App, tmp_path: Path) -> None:
    chance = random.Random(20)
    calls = [made(chance, app) for _ in range(150)]
    document = manual(*(tool(f"t{at}", template) for at, (template, _) in enumerate(calls)))

    found = await both(tmp_path, by_text(document), *((f"t{at}", given) for at, (_, given) in enumerate(calls)))

    for (theirs, ours), call in zip(found, calls, strict=True):
        assert meant(ours) == meant(theirs), call
