"""Build requests from arguments and send them: URLs, encodings, files, credentials, and errors of responses."""

from __future__ import annotations

import base64
import binascii
import html
import json
import math
import mimetypes
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from toolpost.catalog.specs import SAFE_METHODS
from toolpost.contracts import errors
from toolpost.contracts.spec import JsonSchema
from toolpost.contracts.storage import ArtifactStore
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_size import SMALL
from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.web.content import OCTETS, decode_text, looks_like_json, parse_json, parse_media_type
from toolpost.web.large_json import check_large_json
from toolpost.wire.messages import Follow, Headers, Request, Response, parse_retry_after

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
    from toolpost.contracts.principal import Principal
    from toolpost.schema.json_size import JsonLimits
    from toolpost.wire.client import HttpClient


Pair: TypeAlias = tuple[str, str]

# RFC 6265's cookie-octets, without `%`: servers that decode cookies and servers that do not read the same value.
_COOKIE_OCTETS = "!#$&'()*+/:<=>?@[]^`{|}"
_COOKIE_NAME = "!#$&'*+^`|"
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")
_PERCENT = [quote(bytes([octet]), safe="") for octet in range(256)]  # looked up three times faster than quoted
_UNQUOTABLE = re.compile(r'[\x00-\x1f"\x7f]')
_UNFIT_FOR_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
Send: TypeAlias = Callable[["PlannedRequest"], Awaitable["Response"]]
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_DOT_SEGMENTS = frozenset({".", ".."})
_LITERAL = "/:@!$&'()*+,;=%?"
_STREAM_TIME_SHARE = 0.9  # a stream is cut before the call's own timeout, so that what came is returned
_STREAM_ENDS = {"events": b"\n\n", "lines": b"\n"}
FILE: JsonSchema = {
    "type": "object",
    "description": "A file: an artifact, its bytes in base64, or its text; a local one is read into one of these.",
    "properties": {
        "artifact_id": {"type": "string"},
        "base64": {"type": "string", "contentEncoding": "base64"},
        "text": {"type": "string"},
        "filename": {"type": "string"},
        "content_type": {"type": "string"},
    },
    "oneOf": [{"required": ["artifact_id"]}, {"required": ["base64"]}, {"required": ["text"]}],
    "additionalProperties": False,
}
_CONTENTS = ("artifact_id", "base64", "text")
_KEYS = frozenset({*_CONTENTS, "filename", "content_type"})
_SAYS = (
    'write {"artifact_id": ...}, {"base64": ...} or {"text": ...}, with "filename" and "content_type" if they matter'
)
_LONGEST = 500
_LONGEST_LOOK = 20_000
_LONGEST_QUOTED = 4096
_LONGEST_QUOTE = 120
_DEEPEST = 4
_MOST_COMPLAINTS = 3
_MARKUP = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)?[^<>]*>|([^<]+|<)")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CHALLENGE = re.compile(r'\b(error_description|error|scope)="([^"]*)"')
# Where to look after a request was carried out; the other redirects say where to send it instead.
_AFTERWARDS = frozenset({302, 303})
_DONE = "What was asked for may be done all the same."
_MESSAGE_KEYS = ("detail", "error_description", "message", "error_message", "error", "msg", "reason")
# RFC 9457's own example, and what validators beside it say of each field.
_DETAIL_KEYS = ("errors", "invalid-params", "validation", "violations")
_PLACES = ("loc", "location")  # where a field is wrong, as FastAPI and Prism tell it


class UnsendableError(ValueError):
    """Raised for a value that its place cannot carry; the text is the reason and never quotes the value."""


def compact_json(value: Any) -> str:
    """Encode a value as JSON in ASCII, which is valid in every charset."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsendableError(f"it is not JSON: {error}") from error


def format_value(value: Any) -> str:
    """Format one value as text, not yet percent-encoded; objects and arrays become JSON."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return _integer_text(value)
        case float() | Decimal():
            return _number_text(value)
        case dict() | list():
            return compact_json(value)
        case _:
            raise UnsendableError(f"it is {json_type(value)}, which has no text")


def percent_encode(text: str) -> str:
    """Percent-encode everything but RFC 3986's unreserved characters."""
    return text if _UNRESERVED.fullmatch(text) else "".join(map(_PERCENT.__getitem__, text.encode()))


def encode_cookie_name(text: str) -> str:
    """Encode the name of a cookie."""
    return quote(text, safe=_COOKIE_NAME)


def encode_cookie_value(text: str) -> str:
    """Encode the value of a cookie."""
    return quote(text, safe=_COOKIE_OCTETS)


def check_header_value(text: str) -> str:
    """Return a text that a header can carry, sent as UTF-8; raise UnsendableError otherwise."""
    if _UNFIT_FOR_HEADER.search(text):
        raise UnsendableError("it holds a line break or another control character, which a header cannot carry")
    if text != text.strip(" \t"):
        raise UnsendableError("it begins or ends with white space, which a header cannot carry")
    text.encode()  # half of a surrogate pair has no bytes
    return text


def _integer_text(value: int) -> str:
    try:
        return str(int(value))  # `int` also for members of an enum
    except ValueError as error:
        raise UnsendableError("it is a number of thousands of digits") from error


def _number_text(value: float | Decimal) -> str:
    """Format a number without exponent; a whole one without fraction, because `3.0` is an integer to JSON Schema."""
    if not math.isfinite(value):
        raise UnsendableError("it is not a finite number")
    if value == int(value):
        return str(int(value))
    return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")


class FormPart(NamedTuple):
    """One part of a multipart body; with a `filename` it is a file."""

    name: str
    data: bytes
    content_type: str | None = None
    filename: str | None = None
    headers: tuple[Pair, ...] = ()


def encode_multipart(parts: Iterable[FormPart]) -> tuple[bytes, str]:
    """Encode a multipart body (RFC 7578); return it with the boundary for its Content-Type."""
    boundary = secrets.token_hex(16)
    opening = b"--" + boundary.encode()
    pieces = [piece for part in parts for piece in (opening, _part_head(part), part.data)]
    return b"\r\n".join([*pieces, opening + b"--", b""]), boundary


def _part_head(part: FormPart) -> bytes:
    disposition = f'form-data; name="{_quote(part.name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quote(part.filename)}"'
    lines = [f"Content-Disposition: {disposition}"]
    if part.content_type:
        lines.append(f"Content-Type: {check_header_value(part.content_type)}")
    lines += [f"{check_header_value(name)}: {check_header_value(value)}" for name, value in part.headers]
    return "\r\n".join([*lines, ""]).encode()


def _quote(text: str) -> str:
    """Escape a name for quotes: browsers and RFC 7578 write UTF-8, and percent-encode what would end the quotes."""
    return _UNQUOTABLE.sub(lambda match: f"%{ord(match[0]):02X}", text)


class PathParameter(NamedTuple):
    """A placeholder in a URL template, as `written` and by its `name`.

    `spanning` stands for `{+name}` or `{name+}`: its value may hold slashes.
    """

    written: str
    name: str
    spanning: bool


class UrlTemplate(NamedTuple):
    """The parsed URL of an operation: literals and path parameters in turn."""

    server: str
    pieces: tuple[str | PathParameter, ...]
    query: tuple[Pair, ...]


class BuiltUrl(NamedTuple):
    """A URL without its query, and the query that the template itself has."""

    address: str
    query: tuple[Pair, ...]


def build_url(server: str, path: str, fill: Callable[[PathParameter], str]) -> BuiltUrl:
    """Build a URL from its template; refuse values that would change the structure of the path."""
    template = parse_url_template(server, path)
    filled = "".join(piece if isinstance(piece, str) else fill(piece) for piece in template.pieces)
    path, _, fixed = filled.partition("?")
    if "." in path and not _DOT_SEGMENTS.isdisjoint(path.split("/")):
        raise UnsendableError("the values make a step '.' or '..', which would lead to another path")
    return BuiltUrl(template.server + path, (*template.query, *split_query(fixed)))


@lru_cache(maxsize=4096)
def parse_url_template(server: str, path: str) -> UrlTemplate:
    """Parse the server and the path of a document; a fragment only tells operations apart and is never sent."""
    try:
        base = urlsplit(server)
        usable = base.scheme in ("http", "https") and bool(base.hostname)
    except ValueError:
        usable = False
        base = urlsplit("")
    if not usable:
        raise errors.ToolSchemaError(f"The server {server!r} is not an http or https URL; give one with base_url.")
    pieces = _PLACEHOLDER.split(path.partition("#")[0])
    parts = [_path_parameter(piece) if at % 2 else quote(piece, safe=_LITERAL) for at, piece in enumerate(pieces)]
    below = quote(base.path, safe=_LITERAL).rstrip("/")
    gap = "" if path.startswith("/") else "/"
    return UrlTemplate(f"{base.scheme}://{base.netloc}{below}{gap}", tuple(parts), split_query(base.query))


def split_query(query: str) -> tuple[Pair, ...]:
    """Split a query that is already encoded into its pairs."""
    return tuple((name, value) for part in query.split("&") if part for name, _, value in [part.partition("=")])


def _path_parameter(text: str) -> PathParameter:
    name = text.strip("+*")
    return PathParameter(text, name, text != name)


class Presentation(NamedTuple):
    """Credential parts of one request by place, not yet encoded; `tokens` can be renewed when they are refused."""

    headers: tuple[Pair, ...] = ()
    query: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    tokens: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Presentation({len(self.secrets)} secrets)"

    def joined(self, other: Presentation) -> Presentation:
        """Return the parts of both."""
        return Presentation(
            headers=self.headers + other.headers,
            query=self.query + other.query,
            cookies=self.cookies + other.cookies,
            tokens=self.tokens + other.tokens,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value, also a token without the scheme before it."""
        if self is NOTHING:
            return ()
        values = [value for place in (self.headers, self.query, self.cookies) for _, value in place]
        inner = [_inside(value) for value in values if " " in value]
        return tuple(dict.fromkeys([*values, *(secret for pair in inner for secret in pair)]))


def _inside(header: str) -> tuple[str, ...]:
    """Return the value behind an auth scheme; for `Basic` also the decoded password."""
    word, _, value = header.partition(" ")
    if word.lower() != "basic":
        return (value,)
    try:
        return value, base64.b64decode(value).decode().partition(":")[2]
    except ValueError:
        return (value,)


NOTHING = Presentation()


def present_headers(credential: Credential) -> Presentation:
    """Return the headers of a credential as they are; its cookies join those of the request."""
    if not credential.headers:
        return NOTHING
    cookies = [value.partition("=") for name, value in credential.headers.items() if name.lower() == "cookie"]
    return Presentation(
        headers=tuple((name, value) for name, value in credential.headers.items() if name.lower() != "cookie"),
        cookies=tuple((name, value) for name, _, value in cookies),
    )


def present_key(location: Literal["header", "query", "cookie"], name: str, key: str) -> Presentation:
    """Return an API key at its place in the request."""
    pair = ((name, key),)
    match location:
        case "query":
            return Presentation(query=pair)
        case "cookie":
            return Presentation(cookies=pair)
        case "header":
            return Presentation(headers=pair)


class PlannedRequest(Struct, frozen=True):
    """A request before it is sent; its credential is apart in `presented` and shows only in `wire_url` and the like.

    Names and values are encoded as they are sent; header values are sent as UTF-8.
    """

    method: str
    address: str
    query: tuple[Pair, ...] = ()
    headers: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    body: bytes | None = None
    presented: Presentation = NOTHING

    def __repr__(self) -> str:
        return f"PlannedRequest({self.method!r}, {self.address!r})"

    @property
    def url(self) -> str:
        """The URL without secrets, for messages."""
        return _with_query(self.address, self.query)

    @property
    def wire_url(self) -> str:
        """The URL with the credential, only for sending."""
        if not self.presented.query:
            return self.url
        secret = [(percent_encode(name), percent_encode(value)) for name, value in self.presented.query]
        return _with_query(self.address, _overlaid(self.query, secret))

    @property
    def wire_headers(self) -> tuple[Pair, ...]:
        """The headers with the credential and the cookies, only for sending."""
        if self.presented is NOTHING and not self.cookies:
            return self.headers
        baked = [(encode_cookie_name(name), encode_cookie_value(value)) for name, value in self.presented.cookies]
        cookies = _overlaid(self.cookies, baked)
        # RFC 6265 section 5.4: a request has at most one Cookie header.
        jar = [("Cookie", "; ".join(f"{name}={value}" for name, value in cookies))] if cookies else []
        return (*_overlaid(self.headers, self.presented.headers, key=str.lower), *jar)

    def to_wire(self, timeout_s: float | None, max_bytes: int | None, follow: Follow = "safe") -> Request:
        """Build the request that the HTTP client sends, with the credential and these limits."""
        return Request(self.method, self.wire_url, self.wire_headers, self.body, timeout_s, max_bytes, follow)

    def with_headers(self, headers: Sequence[Pair]) -> PlannedRequest:
        """Return the request with the operator's headers, which replace arguments of the same names."""
        return replace(self, headers=tuple(_overlaid(self.headers, headers, key=str.lower))) if headers else self

    def presenting(self, presentation: Presentation) -> PlannedRequest:
        """Return the request with a credential, which replaces arguments of the same names."""
        return self if presentation is self.presented else replace(self, presented=presentation)


def _overlaid(pairs: Sequence[Pair], over: Sequence[Pair], *, key: Callable[[str], str] = str) -> list[Pair]:
    if not over:
        return [*pairs]
    names = {key(name) for name, _ in over}
    return [*(pair for pair in pairs if key(pair[0]) not in names), *over]


def _with_query(address: str, pairs: Sequence[Pair]) -> str:
    return f"{address}?{'&'.join(f'{name}={value}' for name, value in pairs)}" if pairs else address


def make_sender(
    client: HttpClient,
    *,
    timeout_s: float | None = None,
    max_bytes: int | None = None,
    reads: bool = False,
    limits: JsonLimits | None = None,
) -> Send:
    """Return a function that sends requests through a client; the client's limits apply where none are given.

    `reads` says that the requests change nothing, whatever their method. With `limits`, a JSON body of many values is
    checked in another process.
    """

    async def send(planned: PlannedRequest) -> Response:
        try:
            response = await client.send(planned.to_wire(timeout_s, max_bytes))
            end = _STREAM_ENDS.get(parse_media_type(response.headers.get("content-type") or "").kind)
            if end is None:
                body = await response.read()
                if limits is not None and len(body) > SMALL:
                    response.body = await check_large_json(body, limits)
            else:
                await _read_stream(response, end)
            return response
        except (errors.ToolConnectionError, errors.ToolTimeoutError, errors.ToolClientError) as failed:
            if not reads and planned.method not in SAFE_METHODS:
                _add_doubt(failed)
            raise

    return send


def _add_doubt(failed: errors.ToolNodeError) -> None:
    """Add to an error that a request without a readable response may have taken effect."""
    if not isinstance(failed, errors.ToolConnectionError) or failed.sent:
        failed.message = f"{failed.message}; it may have taken effect all the same"
        failed.args = (failed.message,)


async def _read_stream(response: Response, end: bytes) -> None:
    """Read a stream; when its time or size limit is up, keep the items that are complete."""
    body = bytearray()
    try:
        async for piece in response.stream(share_of_time=_STREAM_TIME_SHARE):
            body += piece
    except (errors.ToolTimeoutError, errors.ToolClientError):
        whole, separator, _ = bytes(body).replace(b"\r\n", b"\n").rpartition(end)
        if not separator:
            raise
        response.body, response.is_cut = whole + end, True
    else:
        response.body = bytes(body)


"""The schema of a file argument."""


class File(NamedTuple):
    """Bytes with their media type and file name; empty where unknown."""

    data: bytes
    media_type: str = ""
    name: str = ""


def is_file(value: object) -> bool:
    """Return whether a value is a file argument: exactly one content, and nothing beside it but name and type."""
    return is_object(value) and value.keys() <= _KEYS and sum(key in value for key in _CONTENTS) == 1


def find_artifact_id(value: object) -> str | None:
    """Return the artifact id of a file argument, if it has one."""
    return str(value["artifact_id"]) if is_object(value) and is_file(value) and "artifact_id" in value else None


def parse_file(value: object, artifacts: Mapping[str, File]) -> File:
    """Parse a file argument; `artifacts` holds those that the call refers to. A plain text is its own content."""
    if isinstance(value, str):
        return File(value.encode())
    if not (is_object(value) and is_file(value)):
        raise UnsendableError(f"it is not a file; {_SAYS}")
    content = _content(value, artifacts)
    name, content_type = str(value.get("filename") or content.name), str(value.get("content_type") or "")
    if content_type and not parse_media_type(check_header_value(content_type)).essence:
        raise UnsendableError("its content_type is not a media type such as image/png")
    stored_type = "" if content.media_type == OCTETS else content.media_type  # whoever kept it did not know either
    return File(content.data, content_type or stored_type, name)


async def load_artifacts(artifact_ids: Iterable[str], store: ArtifactStore | None, owner: Principal) -> dict[str, File]:
    """Load artifacts by id; each must be one of the owner's."""
    tenant, user = owner
    files: dict[str, File] = {}
    for artifact_id in artifact_ids:
        info = None if store is None else await store.info(artifact_id, tenant=tenant, user=user)
        if store is None or info is None:
            raise errors.ToolClientError(f"there is no artifact {artifact_id!r}", code="artifact_not_found")
        files[artifact_id] = File(await store.read(artifact_id, tenant=tenant), info.media_type, info.name)
    return files


def file_media_type(file: File, offered: str = "") -> str:
    """Choose the media type of a file: its own, else the one the API asks for, else a guess by its name."""
    media_types = [part for part in re.split(r"\s*,\s*", offered) if part and not parse_media_type(part).is_range]
    guessed = mimetypes.guess_type(file.name)[0] if file.name else None
    return (
        file.media_type
        or (media_types[0] if len(media_types) == 1 else "")
        or guessed
        or next(iter(media_types), OCTETS)
    )


def _content(value: dict[str, Any], artifacts: Mapping[str, File]) -> File:
    if "text" in value:
        return File(str(value["text"]).encode())
    if "base64" in value:
        return File(_decode_base64(value["base64"]))
    artifact_id = str(value["artifact_id"])
    if artifact_id not in artifacts:
        raise UnsendableError(f"there is no artifact {artifact_id!r} for this user")
    return artifacts[artifact_id]


def _decode_base64(text: Any) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error) as error:
        raise UnsendableError(f"its base64 cannot be read: {error}") from error


def response_error(
    subject: str,
    status: int,
    headers: Headers,
    body: bytes,
    *,
    remedy: str = "",
    secrets: Iterable[str] = (),
    writes: bool = False,
    now: float | None = None,
) -> errors.ToolNodeError:
    """Build the error of a response; secrets are redacted.

    `subject` names what was called; `writes` says that the call was to change something; `remedy` says what to do
    about a 401.
    """
    parts = (
        [_redirection(headers), _DONE if writes and status in _AFTERWARDS else ""]
        if 300 <= status < 400
        else [extract_reason(headers, body), _challenge(headers)]
    )
    text = " ".join(part for part in parts if part)
    head = f"{subject} answered {status} {status_phrase(status)}".rstrip()
    message = f"{head}: {sanitize(text, secrets)}" if text else head
    if status == 401:
        message = f"{message.rstrip('.')}. {remedy}".rstrip()
    error = _build_rate_limit_error(status, headers, message) or errors.from_status(status, message)
    error.retry_after_s = parse_retry_after(headers, now=now)
    error.challenges = headers.get_all("www-authenticate")
    return error


def unusable_error(
    subject: str, status: int, body: bytes, reason: object, secrets: Iterable[str]
) -> errors.ToolOutputError:
    """Build the error of a successful response whose body cannot be used; it quotes how the body begins."""
    begins = sanitize(decode_text(body[:_LONGEST_QUOTED]), secrets)[:_LONGEST_QUOTE]
    return errors.ToolOutputError(
        f"{subject} answered {status}, but the answer is unusable: {reason}. It begins: {begins!r}"
    )


def extract_reason(headers: Headers, body: bytes) -> str:
    """Extract the reason that a server gives for a failure; title and detail of RFC 9457 come first."""
    kind = parse_media_type(headers.get("content-type") or "")
    if kind.kind == "json" or looks_like_json(body):
        try:
            return _message_of(parse_json(body, kind.charset))
        except ValueError:
            pass
    if kind.kind == "binary" and kind.essence:
        return ""
    return _readable(decode_text(body, kind.charset))


def sanitize(text: str, secrets: Iterable[str]) -> str:
    """Return one line without secrets, control characters and terminal escapes."""
    cleaned = _TERMINAL.sub(" ", Redactor(secrets).text(text)[:_LONGEST_LOOK])
    safe = " ".join("".join(char if char.isprintable() else " " for char in cleaned).split())
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}…"


def status_phrase(status: int) -> str:
    """Return the reason phrase of a status; empty for an unknown one."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _build_rate_limit_error(status: int, headers: Headers, message: str) -> errors.ToolRateLimitError | None:
    """Build a rate-limit error for a 403 whose header fields say that there were too many calls."""
    if status != 403 or not ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"):
        return None
    return errors.ToolRateLimitError(message, status_code=status, category=errors.ErrorCategory.RETRYABLE_RATE_LIMIT)


def _redirection(headers: Headers) -> str:
    location = headers.get("location")
    if not location:
        return "it redirects without saying where to."
    try:
        there = urlsplit(location)
    except ValueError:
        return "it redirects to something that is no address."
    where = f"{there.scheme}://{there.netloc}{there.path}" if there.netloc else there.path
    return f"it redirects to {where!r}, which was not followed."


def _challenge(headers: Headers) -> str:
    """Extract error and scope of a WWW-Authenticate challenge."""
    parameters = dict(_CHALLENGE.findall(headers.get("www-authenticate") or ""))
    return ", ".join(f"{name}: {value}" for name, value in parameters.items())


def _message_of(value: Any, depth: int = 0) -> str:
    if isinstance(value, str):
        return value
    if depth > _DEEPEST or value is None:
        return ""
    if is_array(value):
        return "; ".join(text for item in value[:_MOST_COMPLAINTS] if (text := _message_of(item, depth + 1)))
    if is_object(value):
        return _message_of_object(value, depth) or ("" if depth else _as_json(value))
    return str(value)


def _message_of_object(value: dict[str, Any], depth: int) -> str:
    title = value.get("title")
    message = next((text for key in _MESSAGE_KEYS if (text := _message_of(value.get(key), depth + 1))), "")
    parts = [title if isinstance(title, str) else "", message]
    parts += [_message_of(value.get(key), depth + 1) for key in _DETAIL_KEYS]
    text = ": ".join(dict.fromkeys(part for part in parts if part)).replace(".: ", ": ")
    place = next((value[key] for key in _PLACES if is_array(value.get(key))), None)
    return f"{'.'.join(map(str, place))}: {text}" if text and place else text


def _as_json(value: Any) -> str:
    try:
        return compact_json(value)
    except UnsendableError:
        return ""


def _readable(text: str) -> str:
    """Convert an HTML page to text, its title first; other text is returned unchanged."""
    if "<" not in text:
        return text
    title, words, inside = list[str](), list[str](), ""
    for closing, tag, run in _MARKUP.findall(text):
        if run and inside not in ("script", "style"):
            (title if inside == "title" else words).append(run)
        elif tag and (closing or inside not in ("script", "style")):
            inside = "" if closing else tag.lower()
    return html.unescape(": ".join(part for part in (" ".join(title), " ".join(words)) if part.strip()))
