"""Bringing together the documents that an API consists of: the first one, and all that it refers to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.sources.openapi.documents import MAX_BYTES, Parsed, parse_document, parse_openapi, shown_address, unpacked
from toolpost.sources.openapi.references import Library

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.sources.openapi.references import Reference

Fetch = Callable[[str], Awaitable[bytes]]

MAX_DOCUMENTS = 500
_AT_ONCE = 8


class Gathered(NamedTuple):
    """All documents of an API, the first one apart, each of the others' bytes, and which of them are missing."""

    first: Parsed
    library: Library
    others: dict[str, bytes]
    problems: list[str]


def is_remote(address: str) -> bool:
    """Whether an address leaves this machine's files."""
    return urlsplit(address).scheme in ("http", "https")


def address_of(location: str) -> str:
    """The address of a document: that of the web, or the file's own as a URI."""
    return location if is_remote(location) else Path(location).expanduser().absolute().as_uri()


async def read_address(address: str, fetch: Fetch, *, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a document, from the web or from a file."""
    if is_remote(address):
        return await fetch(address)
    path = _path_of(address)
    if path is None:
        raise ConfigError(f"{shown_address(address)!r} is neither http nor https nor a file; nothing else is read")
    return await asyncio.to_thread(_read, path, limit)


def _read(path: Path, limit: int) -> bytes:
    """The bytes of a file, at most one more than are allowed."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"the OpenAPI document {str(path)!r} cannot be read: {reason}") from error


async def gather(raw: bytes, address: str, fetch: Fetch, *, limit: int = MAX_BYTES) -> Gathered:
    """Parse the first document and everything that it refers to, directly or not.

    What cannot be had is told as a problem; what points there stays open. Files are
    read below the folder of the first document only, and never for a remote one.
    """
    first = await asyncio.to_thread(parse_openapi, raw, shown_address(address), limit=limit)
    home = first.data.get("$self")
    root = urljoin(address, home) if isinstance(home, str) and is_remote(urljoin(address, home)) else address
    gathered = Gathered(first, Library(root), {}, [])
    seen = {root, address}
    wave = _addresses(gathered.library.add(root, first.data), seen)
    loader = _Loader(gathered, address, fetch, limit)
    while wave and len(seen) <= MAX_DOCUMENTS:
        found: list[Reference] = []
        for start in range(0, len(wave), _AT_ONCE):
            for references in await asyncio.gather(*(loader.load(url) for url in wave[start : start + _AT_ONCE])):
                found += references
        wave = _addresses(found, seen)
    if wave:
        gathered.problems.append(f"only {MAX_DOCUMENTS} of the documents that are referred to were read")
    return gathered


def _addresses(references: Iterable[Reference], seen: set[str]) -> list[str]:
    """The documents that references lead to and that were not met yet."""
    fresh = dict.fromkeys(urldefrag(urljoin(base, text)).url for text, base in references if "[" not in text)
    addresses = [address for address in fresh if address not in seen]
    seen.update(addresses)
    return addresses


class _Loader:
    """Brings documents into the library one by one, within what all together may weigh."""

    def __init__(self, gathered: Gathered, address: str, fetch: Fetch, limit: int) -> None:
        self._gathered = gathered
        self._fetch = fetch
        self._left = limit
        self._folder = None if is_remote(address) else _folder_of(address)

    async def load(self, address: str) -> list[Reference]:
        shown = shown_address(address)
        try:
            raw = await self._bytes(address)
            plain = unpacked(raw, shown, limit=max(self._left, 0))
            data = await asyncio.to_thread(parse_document, plain, shown)
            references = self._gathered.library.add(address, data)
        except ToolError as error:
            self._gathered.problems.append(f"a document that is referred to is left out: {error}")
            return []
        self._left -= len(plain)
        self._gathered.others[address] = raw
        return references

    async def _bytes(self, address: str) -> bytes:
        path = _path_of(address)
        if path is not None and (self._folder is None or not path.resolve().is_relative_to(self._folder)):
            raise ConfigError(f"{path.name!r} lies outside of the folder of the first document; move it there")
        return await read_address(address, self._fetch, limit=max(self._left, 0))


def _path_of(address: str) -> Path | None:
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in unquote(parts.path):
        return None
    return Path(unquote(parts.path))


def _folder_of(address: str) -> Path | None:
    path = _path_of(address)
    return None if path is None else path.parent.resolve()
