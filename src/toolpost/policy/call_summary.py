"""What a person is shown of a waiting call: its arguments without secrets and in short, and where it goes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.policy.rules import tool_hash
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.secrets import ANY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor
    from toolpost.schema.secrets import SecretPaths

_LONGEST_TEXT = 400
_MOST_CHARACTERS = 4000
_ELLIPSIS = "…"


def target_summary(spec: ToolSpec, mask: Callable[[str], str]) -> dict[str, str]:
    """Where the calls of a tool go: the kind of target, and one line about it."""
    target = spec.target
    return {} if target is None else {"kind": target.kind, "summary": mask(target.summary)}


class CalledTool(NamedTuple):
    """What has to be known of a tool to ask about a call of it where the tool itself is not: kept with an intent.

    `digest` is the tool's hash, `secret` lists the secret paths of its arguments. `target` is as the source gave it,
    and may hold what only its configuration does.
    """

    digest: str = ""
    target: Mapping[str, str] = MappingProxyType({})
    secret: Sequence[Sequence[str]] | None = None

    @classmethod
    def of(cls, spec: ToolSpec, secret: SecretPaths) -> CalledTool:
        """What is known of a tool now."""
        return cls(tool_hash(spec), target_summary(spec, str), sorted(secret))

    @property
    def secret_paths(self) -> SecretPaths:
        """Where the arguments hold secrets; everywhere, if nothing is known of them."""
        return frozenset({(ANY,)} if self.secret is None else map(tuple, self.secret))


def arguments_summary(arguments: Mapping[str, Any], redactor: Redactor, secret: SecretPaths) -> dict[str, Any]:
    """The arguments with secrets masked; what is long is cut, and says how much is missing."""
    masked = redactor.value(dict(arguments), secret=secret)
    return cast("dict[str, Any]", _Shortening().shortened(masked))


class _Shortening:
    """Cuts a JSON value to a number of characters, spent from its first member to its last."""

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
        kept: dict[str, Any] = {}
        for count, (name, value) in enumerate(members.items()):
            if self._left <= 0:
                return {**kept, _ELLIPSIS: f"{len(members) - count} more"}
            self._left -= len(name)
            kept[name] = self.shortened(value)
        return kept

    def _items(self, items: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for count, value in enumerate(items):
            if self._left <= 0:
                return [*kept, f"{_ELLIPSIS} {len(items) - count} more"]
            kept.append(self.shortened(value))
        return kept
