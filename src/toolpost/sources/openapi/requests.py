"""One operation with its arguments, as the request to send; nothing here opens a connection."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.openapi.payloads import artifacts_wanted, payload_of
from toolpost.sources.openapi.serialization import (
    cookie_pairs,
    header_text,
    path_text,
    query_pairs,
)
from toolpost.web.encoding import (
    UnsendableError,
    sendable_header,
)
from toolpost.web.media_types import media_type
from toolpost.web.planned import PlannedRequest
from toolpost.web.targets import target_of
from toolpost.wire.headers import MANAGED_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.sources.openapi.operation import Operation, Parameter
    from toolpost.sources.openapi.payloads import Payload
    from toolpost.web.encoding import Pair
    from toolpost.web.files import File
    from toolpost.web.targets import Slot, Target

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_ACCEPTED = 6
_DEEPEST_REFERENCE = 20
T = TypeVar("T")


def request_of(
    operation: Operation, arguments: Mapping[str, Any], *, files: Mapping[str, File] | None = None
) -> PlannedRequest:
    """The request that calls an operation; `files` holds the artifacts that `artifact_ids` names."""
    _refuse_strangers(operation, arguments)
    target = _target(operation, arguments)
    query = [*target.query]
    headers: list[Pair] = []
    cookies: list[Pair] = []
    for parameter in operation.parameters:
        if parameter.location == "path" or not _is_set(parameter, arguments):
            continue
        match parameter.location:
            case "query":
                query += _written(parameter, arguments, query_pairs)
            case "cookie":
                cookies += _written(parameter, arguments, cookie_pairs)
            case "header":
                headers += _written(parameter, arguments, _headers)
    carried = _carried(operation, arguments, files or {})
    return PlannedRequest(
        method=operation.method.upper(),
        address=target.address,
        query=tuple(query),
        headers=tuple(_described(operation, headers, carried)),
        cookies=tuple(cookies),
        body=None if carried is None else carried.data,
    )


def artifact_ids(operation: Operation, arguments: Mapping[str, Any]) -> list[str]:
    """The artifacts that must be read before the request can be made."""
    body = operation.body
    return [] if body is None else artifacts_wanted(body, arguments.get(body.argument))


def _refuse_strangers(operation: Operation, arguments: Mapping[str, Any]) -> None:
    known = {parameter.argument for parameter in operation.parameters}
    if operation.body is not None:
        known.add(operation.body.argument)
    if strangers := sorted(arguments.keys() - known):
        raise ToolValidationError(f"unknown argument {strangers[0]!r}; known are: {', '.join(sorted(known)) or 'none'}")


def _is_set(parameter: Parameter, arguments: Mapping[str, Any]) -> bool:
    if arguments.get(parameter.argument) is not None:
        return True
    if parameter.required or parameter.location == "path":
        raise ToolValidationError(f"{parameter.argument!r} is required, and null cannot be sent in its place")
    return False


def _target(operation: Operation, arguments: Mapping[str, Any]) -> Target:
    if not operation.servers:
        raise ToolSchemaError(f"{operation.method} {operation.path} has no server; give one with base_url.")
    slots = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "path"}

    def fill(slot: Slot) -> str:
        parameter = slots.get(slot.written) or slots.get(slot.name)
        if parameter is None:
            raise ToolSchemaError(f"The document does not declare {slot.name!r} in the path {operation.path!r}.")
        _is_set(parameter, arguments)
        return _written(parameter, arguments, lambda of, value: path_text(of, value, spanning=slot.spanning))

    try:
        return target_of(operation.servers[0], operation.path, fill)
    except UnsendableError as error:
        raise ToolValidationError(f"the path cannot be filled in: {error}") from error


def _written(parameter: Parameter, arguments: Mapping[str, Any], write: Callable[[Parameter, Any], T]) -> T:
    return _sendable(parameter.argument, parameter.location, lambda: write(parameter, arguments[parameter.argument]))


def _sendable(argument: str, place: str, write: Callable[[], T]) -> T:
    try:
        return write()
    except UnsendableError as error:
        reason = str(error)
    except UnicodeEncodeError:
        reason = "it holds half of a surrogate pair, which is no character"
    except RecursionError:
        reason = "it is nested too deeply"
    raise ToolValidationError(f"{argument!r} cannot be sent in the {place}: {reason}")


def _headers(parameter: Parameter, value: Any) -> list[Pair]:
    if parameter.name.lower() in MANAGED_HEADERS:  # a document that lists them describes what any client does
        return []
    if not _HEADER_NAME.fullmatch(parameter.name):
        raise UnsendableError("the document gives it a name that no header can have")
    return [(parameter.name, header_text(parameter, value))]


def _carried(operation: Operation, arguments: Mapping[str, Any], files: Mapping[str, File]) -> Payload | None:
    body = operation.body
    if body is None:
        return None
    value = arguments.get(body.argument)
    if value is None and not (body.argument in arguments and _admits_null(body.schema, operation)):
        if body.required:
            raise ToolValidationError(f"{body.argument!r} is required")
        return None
    return _sendable(body.argument, "body", lambda: _checked(payload_of(body, value, files)))


def _checked(carried: Payload) -> Payload:
    sendable_header(carried.content_type)  # a document may name any text as a type
    return carried


def _admits_null(schema: object, operation: Operation, depth: int = 0) -> bool:
    """Whether a schema says of null that it may be; one that says nothing does not mean it."""
    if not is_object(schema) or depth > _DEEPEST_REFERENCE:
        return False
    kinds = schema.get("type")
    if kinds == "null" or (is_array(kinds) and "null" in kinds) or schema.get("nullable") is True:
        return True
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    reference = str(schema.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        inner.append(operation.definitions.get(reference.removeprefix("#/$defs/"), {}))
    return any(_admits_null(part, operation, depth + 1) for part in inner)


def _described(operation: Operation, headers: list[Pair], carried: Payload | None) -> list[Pair]:
    """The headers with what is carried and what is welcome; a caller who names a type knows better."""
    given = {name.lower() for name, _ in headers}
    if carried is not None:
        if media_type(carried.content_type).kind == "multipart":  # only we know the boundary
            headers = [pair for pair in headers if pair[0].lower() != "content-type"]
            given.discard("content-type")
        if "content-type" not in given:
            headers.append(("Content-Type", carried.content_type))
    if "accept" not in given:
        headers.append(("Accept", _welcome(operation)))
    return headers


def _welcome(operation: Operation) -> str:
    """What the caller can read, JSON first; anything is better than a refusal."""
    offered = [kind for answer in operation.answers if answer.status[:1] in ("2", "d") for kind in answer.content]
    told = [kind for kind in dict.fromkeys(offered) if _can_be_named(kind)]
    told.sort(key=lambda kind: media_type(kind).kind != "json")
    graded = [kind if at == 0 else f"{kind};q=0.9" for at, kind in enumerate(told[:_MOST_ACCEPTED])]
    return ", ".join([*graded, "*/*;q=0.1"] if graded else ["application/json", "*/*;q=0.9"])


def _can_be_named(kind: str) -> bool:
    return bool(media_type(kind).essence) and not media_type(kind).is_range and kind.isprintable()
