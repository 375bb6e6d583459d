"""Bodies and outputs that are JSON with so many values that another process checks them."""

from __future__ import annotations

from toolpost.processes.json_documents import cut_document, measure
from toolpost.schema.json_size import SMALL, CheckedJson, JsonLimits
from toolpost.web.content import looks_like_json


async def check_large_json(data: bytes, limits: JsonLimits) -> bytes:
    """Return a JSON document of many values as `CheckedJson`, and any other data as it is.

    ToolClientError (`message_too_large`) where a document has more values than the limits allow.
    """
    if len(data) <= SMALL or not looks_like_json(data[:SMALL]):
        return data
    if await measure(data, limits.max_values) <= limits.inline_values:
        return data
    try:
        await cut_document(data)
    except ValueError:
        return data  # whoever parses it says what is wrong
    return CheckedJson(data)
