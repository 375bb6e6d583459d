"""From the address of an API's document to the record of the API."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import (
    ToolConnectionError,
    ToolError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.schema.jsontypes import is_object
from toolpost.sources.openapi.cache import digest
from toolpost.sources.openapi.definitions import Definitions
from toolpost.sources.openapi.directions import Direction
from toolpost.sources.openapi.documents import shown_address
from toolpost.sources.openapi.gathering import address_of, gather, is_remote, path_of, read_address
from toolpost.sources.openapi.naming import DefinitionNames
from toolpost.sources.openapi.operation import Api
from toolpost.sources.openapi.operations import OperationReader
from toolpost.sources.openapi.schemas import Patterns, SchemaReader
from toolpost.sources.openapi.security_schemes import schemes_of

if TYPE_CHECKING:
    from toolpost.sources.openapi.cache import ApiCache, Kept
    from toolpost.sources.openapi.directions import Flag
    from toolpost.sources.openapi.gathering import Fetch, Gathered

_UNREACHABLE = (ToolConnectionError, ToolTimeoutError, ToolServerError, ToolRateLimitError)


async def read_api(location: str, *, fetch: Fetch, cache: ApiCache | None = None, base_url: str | None = None) -> Api:
    """Read the API whose document is at a URL or in a file; `fetch` gets whatever is remote.

    Relative servers are resolved against `base_url`, else against the document's own
    address. With a cache, a document that was read before is not read again, and where
    its address does not answer, the last copy serves.
    """
    address = address_of(location)
    try:
        raw = await read_address(address, fetch)
    except _UNREACHABLE as error:
        kept = cache.last(_origin(address, base_url)) if cache is not None else None
        if kept is None:
            raise
        note = f"{shown_address(address)} could not be fetched, so its last copy is used: {error}"
        return replace(kept.api, problems=(note, *kept.api.problems))
    return await api_from(raw, address, fetch=fetch, cache=cache, base_url=base_url)


def kept_api(location: str, cache: ApiCache, *, base_url: str | None = None) -> Api | None:
    """Return the last copy of an API, without asking whether it is still like that."""
    kept = cache.last(_origin(address_of(location), base_url))
    return None if kept is None else kept.api


async def api_from(
    raw: bytes, address: str, *, fetch: Fetch, cache: ApiCache | None = None, base_url: str | None = None
) -> Api:
    """Read an API from the bytes of its document, which came from `address`."""
    origin = _origin(address, base_url)
    kept = None if cache is None else await asyncio.to_thread(cache.load, raw, origin)
    if kept is not None and await _is_current(kept, fetch):
        return kept.api
    gathered = await gather(raw, address, fetch)
    api = await asyncio.to_thread(api_of, gathered, base_url or address)
    if cache is not None:
        await asyncio.to_thread(cache.save, raw, origin, api, gathered.others)
    return api


def _origin(address: str, base_url: str | None) -> str:
    """What an API is kept under: the same document has other servers where it is read for another base."""
    return f"{address}\n{base_url or ''}"


async def _is_current(kept: Kept, fetch: Fetch) -> bool:
    """Whether the other documents of an API are what they were; those that cannot be had now count as unchanged."""
    for address, known in kept.others.items():
        try:
            if digest(await read_address(address, fetch)) != known:
                return False
        except ToolError:
            if not is_remote(address):
                return False
    return True


def api_of(gathered: Gathered, address: str) -> Api:
    """The record of an API whose documents are all there; relative servers are resolved against `address`."""
    first, library = gathered.first, gathered.library
    problems = list(gathered.problems)
    names, patterns = DefinitionNames(), Patterns(problems)

    def reader(flag: Flag) -> SchemaReader:
        direction = Direction(library, flag) if library.has_flags else None
        siblings = first.dialect in ("3.1", "3.2")
        return SchemaReader(library, names, patterns, problems, siblings=siblings, direction=direction)

    inputs = reader("readOnly")
    outputs = reader("writeOnly") if library.has_flags else inputs
    sent = Definitions(inputs.definitions)
    answered = Definitions(outputs.definitions) if library.has_flags else sent
    operations = OperationReader(
        first, library, inputs=inputs, outputs=outputs, address=address, problems=problems
    ).read(sent, answered)
    inputs.finish()
    outputs.finish()
    if homeless := sum(not operation.servers for operation in operations):
        problems.append(f"{homeless} operations have no server that can be called; give one with base_url")
    info = first.data.get("info")
    told: dict[str, Any] = info if is_object(info) else {}
    return Api(
        title=str(told.get("title", "")),
        version=str(told.get("version", "")),
        operations=tuple(operations),
        schemes=schemes_of(first.data, library, address),
        problems=tuple(dict.fromkeys(problems)),
        files=tuple(str(path) for path in map(path_of, gathered.others) if path is not None),
    )
