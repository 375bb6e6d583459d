"""Connections that go on: how the next page of a result is asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import ToolOutput
    from toolpost.contracts.spec import JsonSchema

_FORWARD = ("hasNextPage", "endCursor", "after")
_BACKWARD = ("hasPreviousPage", "startCursor", "before")


def going_on(output: ToolOutput, takes: JsonSchema, variables: Mapping[str, Any]) -> ToolOutput:
    """The output with the way to the next page, if it says that there is one: in words and as arguments."""
    content = output.content
    page = content.get("pageInfo") if is_object(content) else None
    if not is_object(page):
        return output
    has_more, cursor, argument = _FORWARD if variables.get("last") is None else _BACKWARD
    there = page.get(cursor)
    if page.get(has_more) is not True or not isinstance(there, str) or argument not in takes["properties"]:
        return output
    more = {argument: there}
    meta = {**output.meta, "next": {"arguments": more}}
    return output._replace(meta=meta).noted(f"There is more: call again with {json.dumps(more)}.")
