"""The view of a waiting call for an approver: its target, and its arguments with secrets masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.errors import ToolValidationError
from toolpost.policy.secret_shapes import MASK
from toolpost.schema.json_patch import to_pointer
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor
    from toolpost.schema.secrets import SecretPaths

_LONGEST_TEXT = 400
_MOST_CHARACTERS = 4000
_ELLIPSIS = "…"


def target_summary(spec: ToolSpec, mask: Callable[[str], str]) -> dict[str, str]:
    """Return the kind of a tool's target, and one line that describes it."""
    target = spec.target
    return {} if target is None else {"kind": target.kind, "summary": mask(target.summary)}


def arguments_summary(arguments: Mapping[str, Any], redactor: Redactor, secret: SecretPaths) -> dict[str, Any]:
    """Return the arguments with secrets masked and long values cut; each cut states how much is missing."""
    masked = redactor.value(dict(arguments), secret=secret)
    return cast("dict[str, Any]", _Shortening().shortened(masked))


def masked_paths(exact: Any, shown: Any) -> list[str]:
    """Return the JSON Pointers of the values that differ from the exact ones, because a secret in them is masked.

    For a member with a masked name, the path is that of the object that contains it.
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
    """Raise ToolValidationError if a change would send a mask, which represents a secret, as a value."""
    for change in changes:
        if _holds_mask(change.get("value")) or _holds_mask(change.get("path")):
            msg = (
                f"the change at {change.get('path')!r} contains {MASK!r}, which represents a masked secret;"
                " omit the path to keep the secret as it is, or give a new value"
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
