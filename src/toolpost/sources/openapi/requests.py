"""One operation with its arguments, as the request to send; nothing here opens a connection."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.contracts.makers import maker
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.openapi.payloads import artifacts_wanted, payload_of
from toolpost.sources.openapi.serialization import (
    cookie_pairs,
    header_text,
    path_text,
    query_pairs,
    with_inner_lists,
)
from toolpost.web.encoding import (
    UnsendableError,
    sendable_header,
)
from toolpost.web.media_types import media_type
from toolpost.web.planned import PlannedRequest
from toolpost.web.presentation import NOTHING
from toolpost.web.targets import target_of
from toolpost.wire.headers import MANAGED_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from toolpost.sources.openapi.operation import Body, Operation, Parameter
    from toolpost.sources.openapi.payloads import Payload
    from toolpost.web.encoding import Pair
    from toolpost.web.files import File
    from toolpost.web.targets import Slot, Target

_new_request = maker(PlannedRequest)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_ACCEPTED = 6
_DEEPEST_REFERENCE = 20
T = TypeVar("T")


class Plan:
    """An operation made ready to be called: what is the same for every call is worked out once."""

    __slots__ = ("_fixed", "_known", "_method", "_sent", "_slots", "_welcome", "operation")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._method = operation.method.upper()
        self._known = frozenset(_arguments_of(operation))
        self._sent = tuple(
            (parameter, *_PLACES[parameter.location])
            for parameter in operation.parameters
            if parameter.location != "path"
        )
        self._slots = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "path"}
        self._fixed = _target(operation, {}, {}) if operation.servers and "{" not in operation.path else None
        self._welcome = ("Accept", _welcome(operation))

    def request(self, arguments: Mapping[str, Any], files: Mapping[str, File] | None = None) -> PlannedRequest:
        """The request that calls the operation; `files` holds the artifacts that `artifact_ids` names."""
        if not self._known.issuperset(arguments):
            _refuse_strangers(self._known, arguments)
        target = self._fixed or _target(self.operation, self._slots, arguments)
        query = [*target.query]
        headers: list[Pair] = []
        cookies: list[Pair] = []
        found = (query, headers, cookies)
        for parameter, place, write in self._sent:
            value = arguments.get(parameter.argument)
            if value is not None:
                found[place].extend(_written(parameter, value, write))
            elif parameter.required:
                raise _unset(parameter)
        body = self.operation.body
        carried = None if body is None else _carried(self.operation, body, arguments, files or {})
        described = tuple(_described(headers, carried, self._welcome))
        data = None if carried is None else carried.data
        return _new_request((self._method, target.address, tuple(query), described, tuple(cookies), data, NOTHING))

    def carries(self, header: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the caller gave this header as an argument."""
        return any(
            parameter.location == "header"
            and parameter.name.lower() == header.lower()
            and arguments.get(parameter.argument) is not None
            for parameter, _, _ in self._sent
        )


def request_of(
    operation: Operation, arguments: Mapping[str, Any], *, files: Mapping[str, File] | None = None
) -> PlannedRequest:
    """The request that calls an operation once."""
    return Plan(operation).request(arguments, files)


def artifact_ids(operation: Operation, arguments: Mapping[str, Any]) -> list[str]:
    """The artifacts that must be read before the request can be made."""
    body = operation.body
    return [] if body is None else artifacts_wanted(body, arguments.get(body.argument))


def _arguments_of(operation: Operation) -> list[str]:
    body = operation.body
    return [*(parameter.argument for parameter in operation.parameters), *([] if body is None else [body.argument])]


def _refuse_strangers(known: frozenset[str], arguments: Mapping[str, Any]) -> NoReturn:
    stranger = min(arguments.keys() - known)
    raise ToolValidationError(f"unknown argument {stranger!r}; known are: {', '.join(sorted(known)) or 'none'}")


def _unset(parameter: Parameter) -> ToolValidationError:
    return ToolValidationError(f"{parameter.argument!r} is required, and null cannot be sent in its place")


def _target(operation: Operation, slots: Mapping[str, Parameter], arguments: Mapping[str, Any]) -> Target:
    if not operation.servers:
        raise ToolSchemaError(f"{operation.method} {operation.path} has no server; give one with base_url.")

    def fill(slot: Slot) -> str:
        parameter = slots.get(slot.written) or slots.get(slot.name)
        if parameter is None:
            raise ToolSchemaError(f"The document does not declare {slot.name!r} in the path {operation.path!r}.")
        value = arguments.get(parameter.argument)
        if value is None:
            raise _unset(parameter)
        return _written(parameter, value, lambda of, value: path_text(of, value, spanning=slot.spanning))

    try:
        return target_of(operation.servers[0], operation.path, fill)
    except UnsendableError as error:
        raise ToolValidationError(f"the path cannot be filled in: {error}") from error


def _written(parameter: Parameter, value: Any, write: Callable[[Parameter, Any], T]) -> T:
    try:
        inner = parameter.item_delimiters
        return write(parameter, with_inner_lists(value, inner) if inner else value)
    except (UnsendableError, UnicodeEncodeError, RecursionError) as error:
        raise _unsendable(parameter.argument, parameter.location, error) from None


def _unsendable(argument: str, place: str, error: Exception) -> ToolValidationError:
    match error:
        case UnicodeEncodeError():
            reason = "it holds half of a surrogate pair, which is no character"
        case RecursionError():
            reason = "it is nested too deeply"
        case _:
            reason = str(error)
    return ToolValidationError(f"{argument!r} cannot be sent in the {place}: {reason}")


def _headers(parameter: Parameter, value: Any) -> list[Pair]:
    if parameter.name.lower() in MANAGED_HEADERS:  # a document that lists them describes what any client does
        return []
    if not _HEADER_NAME.fullmatch(parameter.name):
        raise UnsendableError("the document gives it a name that no header can have")
    return [(parameter.name, header_text(parameter, value))]


def _carried(
    operation: Operation, body: Body, arguments: Mapping[str, Any], files: Mapping[str, File]
) -> Payload | None:
    value = arguments.get(body.argument)
    if value is None and not (body.argument in arguments and _admits_null(body.schema, operation)):
        if body.required:
            raise ToolValidationError(f"{body.argument!r} is required")
        return None
    try:
        return _checked(payload_of(body, value, files))
    except (UnsendableError, UnicodeEncodeError, RecursionError) as error:
        raise _unsendable(body.argument, "body", error) from None


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


def _described(headers: list[Pair], carried: Payload | None, welcome: Pair) -> list[Pair]:
    """The headers with what is carried and what is welcome; a caller who names a type knows better."""
    given = {name.lower() for name, _ in headers} if headers else _NONE
    if carried is not None:
        if media_type(carried.content_type).kind == "multipart":  # only we know the boundary
            headers = [pair for pair in headers if pair[0].lower() != "content-type"]
            given = given - {"content-type"}
        if "content-type" not in given:
            headers.append(("Content-Type", carried.content_type))
    if "accept" not in given:
        headers.append(welcome)
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


_NONE: AbstractSet[str] = frozenset()
_PLACES: dict[str, tuple[int, Callable[[Parameter, Any], list[Pair]]]] = {
    "query": (0, query_pairs),
    "header": (1, _headers),
    "cookie": (2, cookie_pairs),
}
