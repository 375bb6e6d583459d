"""Approvals: who may answer a question, what a person is shown of a waiting call, and what a grant is bound to."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct

from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.policy.secret_shapes import MASK
from toolpost.schema.hidden_text import strip_invisible
from toolpost.schema.json_patch import to_pointer
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import ANY, SecretPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.questions import Decision, PendingAction
    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor


class Approvals(Struct, frozen=True, kw_only=True):
    """Who may answer questions about a tool; None leaves it to the general setting.

    `answerers` are patterns of `tenant:user`. With `four_eyes` whoever asked may not answer. With `person` what a tool
    or a server asks is never put to the MCP client that made the call.
    """

    four_eyes: bool | None = None
    answerers: tuple[str, ...] | None = None
    person: bool | None = None

    def over(self, general: Approvals) -> Approvals:
        """Return these approvals with the general ones for every field that is None."""
        return Approvals(
            four_eyes=general.four_eyes if self.four_eyes is None else self.four_eyes,
            answerers=general.answerers if self.answerers is None else self.answerers,
            person=general.person if self.person is None else self.person,
        )


ANYBODY = Approvals()


def answer_refusal(action: PendingAction, by: str, decision: Decision) -> str:
    """Return why a person may not give this answer; empty when the person may.

    The asker may always deny, which withdraws the call.
    """
    who, question = Principal.parse(by), action.question
    if question.kind == "consent":  # the account is the asker's own, and a user name is not a pattern
        return "" if who == action.asked_by else f"only {action.asked_by} may"
    if action.answerers is not None and not any(_fits(who, pattern) for pattern in action.answerers):
        return f"only {' or '.join(action.answerers)} may"
    if question.four_eyes and decision != "deny" and is_same_person(who, action.asked_by):
        return "whoever asked may not answer (four_eyes); another person has to"
    return ""


def _fits(who: Principal, pattern: str) -> bool:
    """Return whether a principal matches a pattern of `tenant:user`; the tenant defaults to the local one."""
    return fnmatchcase(str(who), pattern if ":" in pattern else f"{LOCAL_TENANT}:{pattern}")


def is_same_person(one: Principal, other: Principal) -> bool:
    """Return whether two principals are one person, regardless of case, blanks and Unicode forms."""
    return _plain(str(one)) == _plain(str(other))


def _plain(name: str) -> str:
    return "".join(strip_invisible(unicodedata.normalize("NFKC", name)).casefold().split())


_LONGEST_TEXT = 400
_MOST_CHARACTERS = 4000
_ELLIPSIS = "…"


def target_summary(spec: ToolSpec, mask: Callable[[str], str]) -> dict[str, str]:
    """Return where the calls of a tool go: the kind of target, and one line about it."""
    target = spec.target
    return {} if target is None else {"kind": target.kind, "summary": mask(target.summary)}


class CalledTool(NamedTuple):
    """Facts of a tool, kept with a journaled intent, that suffice to ask about a call where the tool is missing.

    `digest` is the tool's hash, `secret` lists the secret paths of its arguments. `target` is as the source gave it
    and may hold secrets of the configuration.
    """

    digest: str = ""
    target: Mapping[str, str] = MappingProxyType({})
    secret: Sequence[Sequence[str]] | None = None

    @classmethod
    def of(cls, spec: ToolSpec, secret: SecretPaths) -> CalledTool:
        """Build the facts from a tool's spec and the secret paths of its arguments."""
        return cls(tool_hash(spec), target_summary(spec, str), sorted(secret))

    @property
    def secret_paths(self) -> SecretPaths:
        """The secret paths of the arguments; all paths where they are unknown."""
        return frozenset({(ANY,)} if self.secret is None else map(tuple, self.secret))


def arguments_summary(arguments: Mapping[str, Any], redactor: Redactor, secret: SecretPaths) -> dict[str, Any]:
    """Return the arguments with secrets masked and long values cut; a cut says how much is missing."""
    masked = redactor.value(dict(arguments), secret=secret)
    return cast("dict[str, Any]", _Shortening().shortened(masked))


def masked_paths(exact: Any, shown: Any) -> list[str]:
    """Return the JSON Pointers of the values that differ from the exact ones, because a secret in them is masked.

    A member with a masked name is not named itself: the path is that of the object around it.
    """
    return [to_pointer(path) for path in dict.fromkeys(_masked(exact, shown, ()))]


def _masked(exact: Any, shown: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(exact, Mapping) and is_object(shown):
        for name, value in cast("Mapping[object, Any]", exact).items():
            if str(name) not in shown:
                yield path
            else:
                yield from _masked(value, shown[str(name)], (*path, str(name)))
    elif isinstance(exact, (list, tuple)) and is_array(shown):
        for at, (value, shown_value) in enumerate(zip(cast("Sequence[Any]", exact), shown, strict=False)):
            yield from _masked(value, shown_value, (*path, at))
    elif isinstance(shown, str) and MASK in shown and shown != exact:
        yield path


def refuse_masks(changes: Sequence[Mapping[str, Any]], tool_name: str) -> None:
    """Raise ToolValidationError where a change would send a mask, which stands for a secret, as a value."""
    for change in changes:
        if _holds_mask(change.get("value")) or _holds_mask(change.get("path")):
            msg = (
                f"the change at {change.get('path')!r} has {MASK!r}, which stands for a masked secret;"
                " leave the path out to keep the secret as it is, or give a new value"
            )
            raise ToolValidationError(msg, tool_name=tool_name)


def _holds_mask(value: Any) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            if MASK in one:
                return True
        elif isinstance(one, Mapping):
            left += (part for member in cast("Mapping[object, Any]", one).items() for part in member)
        elif isinstance(one, (list, tuple)):
            left += cast("Sequence[Any]", one)
    return False


class _Shortening:
    """Cut a JSON value to a number of characters, spent from its first member to its last."""

    def __init__(self) -> None:
        self._left = _MOST_CHARACTERS

    def shortened(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if is_object(value):
            return self._members(value)
        if is_array(value):
            return self._items(value)
        self._left -= len(str(value))
        return value

    def _text(self, text: str) -> str:
        room = max(0, min(_LONGEST_TEXT, self._left))
        self._left -= min(len(text), room)
        if len(text) <= room:
            return text
        return f"{text[:room]}{_ELLIPSIS} ({len(text) - room} more characters)"

    def _members(self, members: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for count, (name, value) in enumerate(members.items()):
            if self._left <= 0:
                return {**shown, _ELLIPSIS: f"{len(members) - count} more"}
            self._left -= len(name)
            shown[name] = self.shortened(value)
        return shown

    def _items(self, items: list[Any]) -> list[Any]:
        shown: list[Any] = []
        for count, value in enumerate(items):
            if self._left <= 0:
                return [*shown, f"{_ELLIPSIS} {len(items) - count} more"]
            shown.append(self.shortened(value))
        return shown


def call_hash(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return the hash that a grant is bound to: of the tool, and of the exact arguments."""
    return digest([tool_hash(spec), arguments])


def same_call_hash(
    tool: CalledTool, arguments: Mapping[str, Any], who: Principal, session: str, context: Sequence[Any] = ()
) -> str:
    """Return the hash by which a repeated call is the same as one that waits; empty where it cannot be made.

    `context` is what a tool is given beside its arguments. Of values in it that are not JSON, the type counts.
    """
    whole = [tool.digest, arguments, str(who), session, context]
    try:
        encoded = json.dumps(whole, sort_keys=True, default=lambda value: type(value).__name__)
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(encoded.encode()).hexdigest()


def tool_hash(spec: ToolSpec) -> str:
    """Return the hash of a tool's description, schemas, effects and target."""
    effects = [spec.side_effects, spec.replay, *spec.safety]
    target = None if spec.target is None else spec.target.digest
    described = [spec.name, spec.version, spec.description, spec.input_schema, spec.output_schema, effects]
    return digest([*described, target])


def digest(value: Any) -> str:
    """Return the SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
