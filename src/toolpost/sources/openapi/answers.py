"""What came back from an operation, as output: the body by its media type, or the error that its status stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolOutputError
from toolpost.contracts.makers import maker
from toolpost.policy.redaction import Redactor
from toolpost.sources.openapi.paging_links import may_go_on, next_page
from toolpost.web.contents import UnreadableError, content_of, decoded
from toolpost.web.failures import failure_of, phrase_of, presentable
from toolpost.web.planned import READS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.sources.openapi.operation import Answer, Operation
    from toolpost.sources.openapi.paging_links import NextPage
    from toolpost.web.contents import Content
    from toolpost.web.planned import PlannedRequest
    from toolpost.wire.headers import Headers

_new_output = maker(ToolOutput)
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120
_NO_BODY = frozenset({204, 205})
_NOT_TOLD = frozenset({"authorization", "proxy-authenticate", "set-cookie", "set-cookie2", "www-authenticate"})


def output_of(
    operation: Operation,
    status: int,
    headers: Headers,
    body: bytes,
    *,
    request: PlannedRequest | None = None,
    arguments: Mapping[str, Any] | None = None,
    secrets: Sequence[str] = (),
    now: float | None = None,
) -> ToolOutput:
    """The output of an operation, or a ToolError raised.

    `request` and its `arguments` are for telling what the next page takes; `secrets` are what was presented,
    which is taken out of every message.
    """
    if 200 <= status < 300:
        return _success(operation, status, headers, body, request, arguments or {}, secrets)
    if status == 304:
        return ToolOutput(None, "304 Not Modified: what you have is still good.", meta={"status": status})
    if 300 <= status < 400 and "location" in headers and _declared(operation, status, exactly=True):
        meta = _meta(status, headers, secrets)
        return ToolOutput({**meta}, meta=meta)  # the address is the result
    method = operation.method.upper()
    remedy = _which_credential(operation) if status == 401 else ""
    subject, writes = f"{method} {operation.path}", method not in READS
    raise failure_of(subject, status, headers, body, remedy=remedy, secrets=secrets, writes=writes, now=now)


def _success(
    operation: Operation,
    status: int,
    headers: Headers,
    body: bytes,
    request: PlannedRequest | None,
    arguments: Mapping[str, Any],
    secrets: Sequence[str],
) -> ToolOutput:
    meta = _meta(status, headers, secrets)
    if operation.method.upper() == "HEAD":  # the headers are what was asked for
        return ToolOutput({"status": status, "headers": _tellable(headers, secrets)}, meta=meta)
    if status in _NO_BODY:
        return ToolOutput(None, _created(meta), meta=meta)
    content = _content(operation, status, headers, body, secrets)
    if isinstance(content.value, bytes):
        return ToolOutput(content.value, None, content.media_type, meta)
    if content.value is None:
        return ToolOutput(None, _created(meta), meta=meta)
    output = _new_output((content.value, None, content.media_type, meta))
    if content.note:
        output = output.noted(content.note)
    if not may_go_on(headers, content.value):
        return output
    url = "" if request is None else request.url
    page = next_page(operation, headers, content.value, url=url, arguments=arguments)
    return output if page is None else _going_on(output, page, Redactor(secrets))


def _meta(status: int, headers: Headers, secrets: Sequence[str]) -> dict[str, Any]:
    """What a program may want to know beside the content."""
    location = headers.get("location")
    return {"status": status} if location is None else {"status": status, "location": _shown(location, secrets)}


def _shown(value: str, secrets: Sequence[str]) -> str:
    """A header as it may be told: without secrets, and as text that can be written down."""
    return Redactor(secrets).text(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _going_on(output: ToolOutput, page: NextPage, redactor: Redactor) -> ToolOutput:
    """The output with the way to the next page: in words for a model, as arguments for a program."""
    meta = {**output.meta, "next": {"arguments": page.arguments, "url": page.url and redactor.text(page.url)}}
    return output._replace(meta=meta).noted(redactor.text(page.in_words))


def _content(operation: Operation, status: int, headers: Headers, body: bytes, secrets: Sequence[str]) -> Content:
    answer = _declared(operation, status)
    declared = () if answer is None else answer.content.keys()
    try:
        return content_of(body, headers.get("content-type") or "", declared=declared)
    except UnreadableError as error:
        begins = presentable(decoded(body[:_LONGEST_LOOK]), secrets)[:_LONGEST_QUOTE]
        head = f"{operation.method.upper()} {operation.path} answered {status}, but the answer is unusable"
        raise ToolOutputError(f"{head}: {error}. It begins: {begins!r}") from error


def _declared(operation: Operation, status: int, *, exactly: bool = False) -> Answer | None:
    """What the document says of a status: by number, by class, or by default."""
    written = str(status)
    for answer in operation.answers:
        if answer.status == written:
            return answer
    by_status = {answer.status.upper(): answer for answer in operation.answers}
    keys = [written] if exactly else [written, f"{status // 100}XX", "DEFAULT"]
    return next((by_status[key] for key in keys if key in by_status), None)


def _tellable(headers: Headers, secrets: Sequence[str]) -> dict[str, str]:
    return {name.lower(): _shown(value, secrets) for name, value in headers if name.lower() not in _NOT_TOLD}


def _created(meta: Mapping[str, Any]) -> str | None:
    """What there is to say of an answer without a body."""
    status, location = meta["status"], meta.get("location")
    return f"{status} {phrase_of(status)}: {location}" if location else None


def _which_credential(operation: Operation) -> str:
    names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
    return f"Check the credential for {' or '.join(map(repr, names))}." if names else ""
