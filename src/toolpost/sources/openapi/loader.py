"""Load an API: read its document and everything that it references, from URLs, files or the disk cache."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from msgspec.structs import replace

from toolpost.contracts.errors import (
    ConfigError,
    ToolConnectionError,
    ToolError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.schema.json_values import as_object
from toolpost.sources.openapi import models
from toolpost.sources.openapi.cache import ApiCache, CachedApi, digest
from toolpost.sources.openapi.definitions import Definitions
from toolpost.sources.openapi.documents import (
    MAX_BYTES,
    TOO_LARGE,
    ParsedDocument,
    decompress,
    format_size,
    parse_document,
    parse_openapi,
    redact_url,
)
from toolpost.sources.openapi.naming import DefinitionNames
from toolpost.sources.openapi.operations import OperationReader
from toolpost.sources.openapi.references import DocumentReference, DocumentRegistry
from toolpost.sources.openapi.schemas import AccessFlag, PatternCache, ReadWriteFilter, SchemaReader
from toolpost.sources.openapi.security_schemes import parse_security_schemes
from toolpost.wire.targets import is_http_url

Fetch = Callable[[str], Awaitable[bytes]]
# Published APIs have thousands of files; each remote document is a request to a server.
MAX_FILES = 20_000
MAX_FETCHED = 1_000
_AT_ONCE = 8
_UNREACHABLE = (ToolConnectionError, ToolTimeoutError, ToolServerError, ToolRateLimitError)
# More lines about missing documents do not help the reader.
_MAX_PROBLEMS = 20


async def read_api(
    location: str, *, fetch: Fetch, cache: ApiCache | None = None, base_url: str | None = None
) -> models.ApiDescription:
    """Read an API from the URL or file of its document; `fetch` downloads remote documents.

    Relative servers resolve against `base_url`, or else the document's own URL. With a cache,
    an unchanged document is not parsed again, and the last copy is used while its URL is
    unreachable.
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


def _origin(address: str, base_url: str | None) -> str:
    """Return the cache key of an API; the base URL is part of it because relative servers depend on it."""
    return f"{address}\n{base_url or ''}"


async def _read_bytes(address: str, fetch: Fetch) -> bytes:
    if is_http_url(address):
        return await fetch(address)
    return await asyncio.to_thread(_read_path, _file(address), MAX_BYTES)


def _read_path(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"the OpenAPI document {str(path)!r} cannot be read: {reason}") from error


def _file(address: str) -> Path:
    path = file_path(address)
    if path is None:
        raise ConfigError(f"{redact_url(address)!r} is neither http nor https nor a file; nothing else is read")
    return path


def load_cached_api(location: str, cache: ApiCache, *, base_url: str | None = None) -> models.ApiDescription | None:
    """Return the API last cached for a location, without checking for changes."""
    cached = cache.last(_origin(document_url(location), base_url))
    return None if cached is None else cached.api


async def parse_api(
    raw: bytes, address: str, *, fetch: Fetch, cache: ApiCache | None = None, base_url: str | None = None
) -> models.ApiDescription:
    """Read an API from the bytes of its document at `address`, or from the cache if nothing changed."""
    origin = _origin(address, base_url)
    cached = None if cache is None else await asyncio.to_thread(cache.load, raw, origin)
    if cached is not None and await _is_current(cached, fetch):
        return cached.api
    loaded = await load_documents(raw, address, fetch)
    api = await asyncio.to_thread(build_api, loaded, base_url or address)
    if cache is not None:
        await asyncio.to_thread(cache.save, raw, origin, api, loaded.others)
    return api


async def _is_current(cached: CachedApi, fetch: Fetch) -> bool:
    """Return whether the referenced documents are unchanged; unreachable remote ones count as unchanged."""
    for address, old_digest in cached.others.items():
        try:
            if digest(await _read_bytes(address, fetch)) != old_digest:
                return False
        except ToolError:
            if not is_http_url(address):
                return False
    return True


def build_api(loaded: LoadedDocuments, address: str) -> models.ApiDescription:
    """Build the API from its loaded documents; relative servers resolve against `address`."""
    first, registry = loaded.first, loaded.registry
    problems = list(loaded.problems)
    names, patterns = DefinitionNames(), PatternCache(problems)

    def reader(flag: AccessFlag) -> SchemaReader:
        access_filter = ReadWriteFilter(registry, flag) if registry.has_access_flags else None
        siblings = first.dialect in ("3.1", "3.2")
        return SchemaReader(registry, names, patterns, problems, siblings=siblings, access_filter=access_filter)

    inputs = reader("readOnly")
    outputs = reader("writeOnly") if registry.has_access_flags else inputs
    definitions = Definitions(inputs.definitions)
    response_definitions = Definitions(outputs.definitions) if registry.has_access_flags else definitions
    operations = OperationReader(
        first, registry, inputs=inputs, outputs=outputs, address=address, problems=problems
    ).read(definitions, response_definitions)
    inputs.finish()
    outputs.finish()
    if without_server := sum(not operation.servers for operation in operations):
        problems.append(f"{without_server} operations have no valid server; set base_url")
    texts = as_object(first.data.get("info"))
    return models.ApiDescription(
        title=str(texts.get("title", "")),
        version=str(texts.get("version", "")),
        operations=tuple(operations),
        schemes=parse_security_schemes(first.data, registry, address),
        problems=tuple(dict.fromkeys(problems)),
        files=tuple(str(path) for path in map(file_path, loaded.others) if path is not None),
    )


async def load_documents(raw: bytes, address: str, fetch: Fetch, *, limit: int = MAX_BYTES) -> LoadedDocuments:
    """Parse the first document and everything that it refers to, directly or not.

    Unreadable documents are recorded as problems, and references to them stay unresolved. Files
    are read below the folder of the first document only, and never for a remote one.
    """
    first = await asyncio.to_thread(parse_openapi, raw, redact_url(address), limit=limit)
    home = first.data.get("$self")
    root = urljoin(address, home) if isinstance(home, str) and is_http_url(urljoin(address, home)) else address
    loaded = LoadedDocuments(first, DocumentRegistry(root), {}, [])
    loader = _Loader(loaded, address, fetch, limit)
    waiting = deque(await asyncio.to_thread(loader.begin))
    while waiting:
        batch = [waiting.popleft() for _ in range(min(_AT_ONCE, len(waiting)))]
        for document in await asyncio.gather(*map(loader.read, batch)):
            if document is not None:
                waiting.extend(await asyncio.to_thread(loader.add, document))
    loaded.problems.extend(loader.unread())
    return loaded


class _Loader:
    """Add referenced documents to the registry within limits on number and total size."""

    def __init__(self, loaded: LoadedDocuments, address: str, fetch: Fetch, limit: int) -> None:
        self._loaded = loaded
        self._seen = {loaded.registry.root, address}
        self._fetch = fetch
        self._limit = self._left = limit
        path = None if is_http_url(address) else file_path(address)
        self._folder = None if path is None else path.parent.resolve()
        self._files = _Quota(MAX_FILES)
        self._fetched = _Quota(MAX_FETCHED)
        self._oversized = 0
        self._missing = 0

    def begin(self) -> list[str]:
        """Add the first document; return the URLs that it references."""
        registry = self._loaded.registry
        return self._to_read(registry.add(registry.root, self._loaded.first.data))

    async def read(self, address: str) -> _ReadDocument | None:
        """Read one document; return None and record the problem if that fails."""
        try:
            if is_http_url(address):
                return await asyncio.to_thread(_parse, address, await self._fetch(address), max(self._left, 0))
            return await asyncio.to_thread(self._read_file, address)
        except ToolError as error:
            if error.error_code == TOO_LARGE:
                self._oversized += 1
            else:
                self._add_problem(error)
        return None

    def add(self, document: _ReadDocument) -> list[str]:
        """Add a document; return the URLs that it references."""
        if document.size > self._left:
            self._oversized += 1
            return []
        try:
            references = self._loaded.registry.add(document.address, document.data)
        except ToolError as error:
            self._add_problem(error)
            return []
        self._left -= document.size
        self._loaded.others[document.address] = document.raw
        return self._to_read(references)

    def _to_read(self, references: Iterable[DocumentReference]) -> list[str]:
        addresses = dict.fromkeys(urldefrag(urljoin(base, text)).url for text, base in references if "[" not in text)
        fresh = [address for address in addresses if address not in self._seen]
        self._seen.update(fresh)
        return [address for address in fresh if (self._fetched if is_http_url(address) else self._files).take()]

    def unread(self) -> Iterator[str]:
        """Yield a problem for each limit that left documents unread."""
        if self._missing > _MAX_PROBLEMS:
            yield f"{self._missing - _MAX_PROBLEMS:,} more referenced documents are skipped"
        if self._files.refused:
            yield _not_read(self._files.refused, f"at most {MAX_FILES:,} files are read")
        if self._fetched.refused:
            yield _not_read(self._fetched.refused, f"at most {MAX_FETCHED:,} are fetched from the web")
        if self._oversized:
            yield _not_read(self._oversized, f"their total size is limited to {format_size(self._limit)}")

    def _add_problem(self, error: ToolError) -> None:
        self._missing += 1
        if self._missing <= _MAX_PROBLEMS:
            self._loaded.problems.append(f"a referenced document is skipped: {error}")

    def _read_file(self, address: str) -> _ReadDocument:
        path, limit = _file(address), max(self._left, 0)
        if self._folder is None or not path.resolve().is_relative_to(self._folder):
            raise ConfigError(f"{path.name!r} is outside the folder of the first document; move it there")
        return _parse(address, _read_path(path, limit), limit)


class _ReadDocument(NamedTuple):
    """Parsed document with its bytes; `size` is the decompressed size."""

    address: str
    raw: bytes
    size: int
    data: Any


def _parse(address: str, raw: bytes, limit: int) -> _ReadDocument:
    shown = redact_url(address)
    plain = decompress(raw, shown, limit=limit)
    return _ReadDocument(address, raw, len(plain), parse_document(plain, shown))


class _Quota:
    """Limit on the number of documents of one kind; counts refusals."""

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
    return f"{count:,} of the referenced documents were not read: {why}; bundle the API into fewer"


class LoadedDocuments(NamedTuple):
    """Parsed first document, registry of all documents, bytes of the others by URL, and problems."""

    first: ParsedDocument
    registry: DocumentRegistry
    others: dict[str, bytes]
    problems: list[str]


def document_url(location: str) -> str:
    """Return the URL of a location; file paths become file URIs."""
    return location if is_http_url(location) else Path(location).expanduser().absolute().as_uri()


def file_path(address: str) -> Path | None:
    """Return the path of a file URI, None for other addresses."""
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in unquote(parts.path):
        return None
    return Path(unquote(parts.path))
