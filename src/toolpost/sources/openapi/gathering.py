"""Bringing together the documents that an API consists of: the first one, and all that it refers to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.sources.openapi.documents import (
    MAX_BYTES,
    TOO_LARGE,
    Parsed,
    parse_document,
    parse_openapi,
    shown_address,
    unpacked,
)
from toolpost.sources.openapi.references import Library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolpost.sources.openapi.references import Reference

Fetch = Callable[[str], Awaitable[bytes]]

# Published APIs have thousands of files beside the first one; each document on the web is a request to somebody.
MAX_FILES = 20_000
MAX_FETCHED = 1_000
_AT_ONCE = 8
# Whoever reads a hundred lines about documents that are not there knows no more than after some.
_MOST_TOLD = 20


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
    return await asyncio.to_thread(_read, _file(address), limit)


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
    loader = _Loader(gathered, address, fetch, limit)
    waiting = deque(await asyncio.to_thread(loader.begin))
    while waiting:
        batch = [waiting.popleft() for _ in range(min(_AT_ONCE, len(waiting)))]
        for read in await asyncio.gather(*map(loader.read, batch)):
            if read is not None:
                waiting.extend(await asyncio.to_thread(loader.add, read))
    gathered.problems.extend(loader.unread())
    return gathered


class _Loader:
    """Brings documents into the library one by one, within how many and how large all together may be."""

    def __init__(self, gathered: Gathered, address: str, fetch: Fetch, limit: int) -> None:
        self._gathered = gathered
        self._seen = {gathered.library.root, address}
        self._fetch = fetch
        self._limit = self._left = limit
        self._folder = None if is_remote(address) else _folder_of(address)
        self._files = _Tally(MAX_FILES)
        self._fetched = _Tally(MAX_FETCHED)
        self._oversized = 0
        self._missing = 0

    def begin(self) -> list[str]:
        """Take the first document into the library; return which others it refers to."""
        library = self._gathered.library
        return self._to_read(library.add(library.root, self._gathered.first.data))

    async def read(self, address: str) -> _Read | None:
        """Read one document; None where it cannot be had."""
        try:
            if is_remote(address):
                return await asyncio.to_thread(_parsed, address, await self._fetch(address), max(self._left, 0))
            return await asyncio.to_thread(self._read_file, address)
        except ToolError as error:
            if error.error_code == TOO_LARGE:
                self._oversized += 1
            else:
                self._tell(error)
        return None

    def add(self, read: _Read) -> list[str]:
        """Take a document into the library; return which others it refers to."""
        if read.size > self._left:
            self._oversized += 1
            return []
        try:
            references = self._gathered.library.add(read.address, read.data)
        except ToolError as error:
            self._tell(error)
            return []
        self._left -= read.size
        self._gathered.others[read.address] = read.raw
        return self._to_read(references)

    def _to_read(self, references: Iterable[Reference]) -> list[str]:
        """The documents that references lead to, that were not met yet and that are not too many."""
        found = dict.fromkeys(urldefrag(urljoin(base, text)).url for text, base in references if "[" not in text)
        fresh = [address for address in found if address not in self._seen]
        self._seen.update(fresh)
        return [address for address in fresh if (self._fetched if is_remote(address) else self._files).take()]

    def unread(self) -> Iterator[str]:
        """What was left unread, and why."""
        if self._missing > _MOST_TOLD:
            yield f"{self._missing - _MOST_TOLD:,} more documents that are referred to are left out"
        if self._files.refused:
            yield _not_read(self._files.refused, f"at most {MAX_FILES:,} files are read")
        if self._fetched.refused:
            yield _not_read(self._fetched.refused, f"at most {MAX_FETCHED:,} are fetched from the web")
        if self._oversized:
            yield _not_read(self._oversized, f"all together may hold {_size(self._limit)}")

    def _tell(self, error: ToolError) -> None:
        self._missing += 1
        if self._missing <= _MOST_TOLD:
            self._gathered.problems.append(f"a document that is referred to is left out: {error}")

    def _read_file(self, address: str) -> _Read:
        path, limit = _file(address), max(self._left, 0)
        if self._folder is None or not path.resolve().is_relative_to(self._folder):
            raise ConfigError(f"{path.name!r} lies outside of the folder of the first document; move it there")
        return _parsed(address, _read(path, limit), limit)


class _Read(NamedTuple):
    """A document that was read and parsed; `size` counts it unpacked."""

    address: str
    raw: bytes
    size: int
    data: Any


def _parsed(address: str, raw: bytes, limit: int) -> _Read:
    shown = shown_address(address)
    plain = unpacked(raw, shown, limit=limit)
    return _Read(address, raw, len(plain), parse_document(plain, shown))


class _Tally:
    """Counts documents of one kind: those that may be read, and those beyond."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.refused = 0

    def take(self) -> bool:
        if self._left == 0:
            self.refused += 1
            return False
        self._left -= 1
        return True


def _not_read(count: int, why: str) -> str:
    return f"{count:,} of the documents that are referred to were not read: {why}; bundle the API into fewer"


def _size(limit: int) -> str:
    return f"{limit / (1024 * 1024):,.0f} MiB" if limit >= 1024 * 1024 else f"{limit:,} bytes"


def _file(address: str) -> Path:
    path = path_of(address)
    if path is None:
        raise ConfigError(f"{shown_address(address)!r} is neither http nor https nor a file; nothing else is read")
    return path


def path_of(address: str) -> Path | None:
    """The file that an address is of; None for what lies elsewhere."""
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in unquote(parts.path):
        return None
    return Path(unquote(parts.path))


def _folder_of(address: str) -> Path | None:
    path = path_of(address)
    return None if path is None else path.parent.resolve()
