"""Bringing together the documents that an API consists of: the first one, and all that it refers to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from toolpost.contracts.errors import (
    ConfigError,
    ToolConnectionError,
    ToolError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.schema.jsontypes import is_object
from toolpost.sources.openapi.cache import digest
from toolpost.sources.openapi.definitions import Definitions
from toolpost.sources.openapi.documents import (
    MAX_BYTES,
    TOO_LARGE,
    ParsedDocument,
    decompress,
    parse_document,
    parse_openapi,
    redact_url,
)
from toolpost.sources.openapi.models import ApiDescription
from toolpost.sources.openapi.naming import DefinitionNames
from toolpost.sources.openapi.operations import OperationReader, parse_security_schemes
from toolpost.sources.openapi.references import DocumentRegistry
from toolpost.sources.openapi.schemas import PatternCache, ReadWriteFilter, SchemaReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolpost.sources.openapi.cache import ApiCache, CachedApi
    from toolpost.sources.openapi.references import Reference
    from toolpost.sources.openapi.schemas import AccessFlag


Fetch = Callable[[str], Awaitable[bytes]]

# Published APIs have thousands of files beside the first one; each document on the web is a request to somebody.
MAX_FILES = 20_000
MAX_FETCHED = 1_000
_AT_ONCE = 8
# Whoever reads a hundred lines about documents that are not there knows no more than after some.
_MOST_TOLD = 20


class LoadedDocuments(NamedTuple):
    """All documents of an API, the first one apart, each of the others' bytes, and which of them are missing."""

    first: ParsedDocument
    registry: DocumentRegistry
    others: dict[str, bytes]
    problems: list[str]


def is_remote(address: str) -> bool:
    """Whether an address leaves this machine's files."""
    return urlsplit(address).scheme in ("http", "https")


def document_url(location: str) -> str:
    """The address of a document: that of the web, or the file's own as a URI."""
    return location if is_remote(location) else Path(location).expanduser().absolute().as_uri()


async def _read_bytes(address: str, fetch: Fetch, *, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a document, from the web or from a file."""
    if is_remote(address):
        return await fetch(address)
    return await asyncio.to_thread(_read_path, _file(address), limit)


def _read_path(path: Path, limit: int) -> bytes:
    """The bytes of a file, at most one more than are allowed."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"the OpenAPI document {str(path)!r} cannot be read: {reason}") from error


async def load_documents(raw: bytes, address: str, fetch: Fetch, *, limit: int = MAX_BYTES) -> LoadedDocuments:
    """Parse the first document and everything that it refers to, directly or not.

    What cannot be had is told as a problem; what points there stays open. Files are
    read below the folder of the first document only, and never for a remote one.
    """
    first = await asyncio.to_thread(parse_openapi, raw, redact_url(address), limit=limit)
    home = first.data.get("$self")
    root = urljoin(address, home) if isinstance(home, str) and is_remote(urljoin(address, home)) else address
    loaded = LoadedDocuments(first, DocumentRegistry(root), {}, [])
    loader = _Loader(loaded, address, fetch, limit)
    waiting = deque(await asyncio.to_thread(loader.begin))
    while waiting:
        batch = [waiting.popleft() for _ in range(min(_AT_ONCE, len(waiting)))]
        for read in await asyncio.gather(*map(loader.read, batch)):
            if read is not None:
                waiting.extend(await asyncio.to_thread(loader.add, read))
    loaded.problems.extend(loader.unread())
    return loaded


class _Loader:
    """Brings documents into the registry one by one, within how many and how large all together may be."""

    def __init__(self, loaded: LoadedDocuments, address: str, fetch: Fetch, limit: int) -> None:
        self._loaded = loaded
        self._seen = {loaded.registry.root, address}
        self._fetch = fetch
        self._limit = self._left = limit
        self._folder = None if is_remote(address) else _folder_of(address)
        self._files = _Quota(MAX_FILES)
        self._fetched = _Quota(MAX_FETCHED)
        self._oversized = 0
        self._missing = 0

    def begin(self) -> list[str]:
        """Take the first document into the registry; return which others it refers to."""
        registry = self._loaded.registry
        return self._to_read(registry.add(registry.root, self._loaded.first.data))

    async def read(self, address: str) -> _ReadDocument | None:
        """Read one document; None where it cannot be had."""
        try:
            if is_remote(address):
                return await asyncio.to_thread(_parse, address, await self._fetch(address), max(self._left, 0))
            return await asyncio.to_thread(self._read_file, address)
        except ToolError as error:
            if error.error_code == TOO_LARGE:
                self._oversized += 1
            else:
                self._tell(error)
        return None

    def add(self, read: _ReadDocument) -> list[str]:
        """Take a document into the registry; return which others it refers to."""
        if read.size > self._left:
            self._oversized += 1
            return []
        try:
            references = self._loaded.registry.add(read.address, read.data)
        except ToolError as error:
            self._tell(error)
            return []
        self._left -= read.size
        self._loaded.others[read.address] = read.raw
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
            self._loaded.problems.append(f"a document that is referred to is left out: {error}")

    def _read_file(self, address: str) -> _ReadDocument:
        path, limit = _file(address), max(self._left, 0)
        if self._folder is None or not path.resolve().is_relative_to(self._folder):
            raise ConfigError(f"{path.name!r} lies outside of the folder of the first document; move it there")
        return _parse(address, _read_path(path, limit), limit)


class _ReadDocument(NamedTuple):
    """A document that was read and parsed; `size` counts it unpacked."""

    address: str
    raw: bytes
    size: int
    data: Any


def _parse(address: str, raw: bytes, limit: int) -> _ReadDocument:
    shown = redact_url(address)
    plain = decompress(raw, shown, limit=limit)
    return _ReadDocument(address, raw, len(plain), parse_document(plain, shown))


class _Quota:
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
    path = file_path(address)
    if path is None:
        raise ConfigError(f"{redact_url(address)!r} is neither http nor https nor a file; nothing else is read")
    return path


def file_path(address: str) -> Path | None:
    """The file that an address is of; None for what lies elsewhere."""
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in unquote(parts.path):
        return None
    return Path(unquote(parts.path))


def _folder_of(address: str) -> Path | None:
    path = file_path(address)
    return None if path is None else path.parent.resolve()


_UNREACHABLE = (ToolConnectionError, ToolTimeoutError, ToolServerError, ToolRateLimitError)


async def read_api(
    location: str, *, fetch: Fetch, cache: ApiCache | None = None, base_url: str | None = None
) -> ApiDescription:
    """Read the API whose document is at a URL or in a file; `fetch` gets whatever is remote.

    Relative servers are resolved against `base_url`, else against the document's own
    address. With a cache, a document that was read before is not read again, and where
    its address does not answer, the last copy serves.
    """
    address = document_url(location)
    try:
        raw = await _read_bytes(address, fetch)
    except _UNREACHABLE as error:
        cached = cache.last(_origin(address, base_url)) if cache is not None else None
        if cached is None:
            raise
        note = f"{redact_url(address)} could not be fetched, so its last copy is used: {error}"
        return replace(cached.api, problems=(note, *cached.api.problems))
    return await parse_api(raw, address, fetch=fetch, cache=cache, base_url=base_url)


def load_cached_api(location: str, cache: ApiCache, *, base_url: str | None = None) -> ApiDescription | None:
    """Return the last copy of an API, without asking whether it is still like that."""
    cached = cache.last(_origin(document_url(location), base_url))
    return None if cached is None else cached.api


async def parse_api(
    raw: bytes, address: str, *, fetch: Fetch, cache: ApiCache | None = None, base_url: str | None = None
) -> ApiDescription:
    """Read an API from the bytes of its document, which came from `address`."""
    origin = _origin(address, base_url)
    cached = None if cache is None else await asyncio.to_thread(cache.load, raw, origin)
    if cached is not None and await _is_current(cached, fetch):
        return cached.api
    loaded = await load_documents(raw, address, fetch)
    api = await asyncio.to_thread(build_api, loaded, base_url or address)
    if cache is not None:
        await asyncio.to_thread(cache.save, raw, origin, api, loaded.others)
    return api


def _origin(address: str, base_url: str | None) -> str:
    """What an API is kept under: the same document has other servers where it is read for another base."""
    return f"{address}\n{base_url or ''}"


async def _is_current(cached: CachedApi, fetch: Fetch) -> bool:
    """Whether the other documents of an API are what they were; those that cannot be had now count as unchanged."""
    for address, known in cached.others.items():
        try:
            if digest(await _read_bytes(address, fetch)) != known:
                return False
        except ToolError:
            if not is_remote(address):
                return False
    return True


def build_api(loaded: LoadedDocuments, address: str) -> ApiDescription:
    """The record of an API whose documents are all there; relative servers are resolved against `address`."""
    first, registry = loaded.first, loaded.registry
    problems = list(loaded.problems)
    names, patterns = DefinitionNames(), PatternCache(problems)

    def reader(flag: AccessFlag) -> SchemaReader:
        access_filter = ReadWriteFilter(registry, flag) if registry.has_access_flags else None
        siblings = first.dialect in ("3.1", "3.2")
        return SchemaReader(registry, names, patterns, problems, siblings=siblings, access_filter=access_filter)

    inputs = reader("readOnly")
    outputs = reader("writeOnly") if registry.has_access_flags else inputs
    sent = Definitions(inputs.definitions)
    answered = Definitions(outputs.definitions) if registry.has_access_flags else sent
    operations = OperationReader(
        first, registry, inputs=inputs, outputs=outputs, address=address, problems=problems
    ).read(sent, answered)
    inputs.finish()
    outputs.finish()
    if homeless := sum(not operation.servers for operation in operations):
        problems.append(f"{homeless} operations have no server that can be called; give one with base_url")
    info = first.data.get("info")
    told: dict[str, Any] = info if is_object(info) else {}
    return ApiDescription(
        title=str(told.get("title", "")),
        version=str(told.get("version", "")),
        operations=tuple(operations),
        schemes=parse_security_schemes(first.data, registry, address),
        problems=tuple(dict.fromkeys(problems)),
        files=tuple(str(path) for path in map(file_path, loaded.others) if path is not None),
    )
