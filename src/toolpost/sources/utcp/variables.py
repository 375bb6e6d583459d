"""Variables in call templates: `${NAME}` or `$NAME`, filled from what the operator set for this source.

Only `${NAME}`, and `$NAME` in capitals where an address or a secret stands, is asked for by name when it is not set;
anything else with a dollar sign is text: a price, a reference, a shell's or a query's own variable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", re.ASCII)
_OURS = re.compile(r"CMD_\d+_OUTPUT", re.ASCII)
# What a shell or a GraphQL server reads has variables of its own; a text is the answer itself.
_AS_WRITTEN = {"cli": frozenset({"commands"}), "graphql": frozenset({"query"}), "text": frozenset({"content"})}
_MESSAGES = frozenset({"message", "request_data_template"})
_NEVER = frozenset({"call_template_type", "name"})


class Filled(NamedTuple):
    """A template with its variables filled in: the values that went in, and the names that nobody set."""

    template: dict[str, Any]
    values: tuple[str, ...]
    missing: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Filled({len(self.values)} values, missing={self.missing})"


class Variables:
    """The variables of one manual; `own` are the operator's for this source, by name or by the manual's own key.

    The environment is asked by that key alone: a manual must not read whatever else is in there.
    """

    def __init__(self, manual: str, own: Sequence[Mapping[str, Any]], environ: Mapping[str, str]) -> None:
        self.secrets: set[str] = set()  # what went into templates, and what stood in them, under a name that says so
        self._prefix = f"{manual.replace('_', '__')}_"
        self._own = own
        self._environ = environ

    def key(self, name: str) -> str:
        """What the format calls a variable of this manual."""
        return f"{self._prefix}{name}"

    def find(self, name: str) -> str | None:
        """The value of a variable; None when nobody set it."""
        key = self.key(name)
        for values in self._own:
            value = values.get(key, values.get(name))
            if isinstance(value, str):
                return value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return str(value)
        return self._environ.get(key)

    def filled(self, template: Mapping[str, Any]) -> Filled:
        """A template with its variables filled in, wherever they may stand."""
        kind = str(template.get("call_template_type"))
        filling = _Filling(self)
        found = {
            key: value
            if key in _NEVER or key in _AS_WRITTEN.get(kind, ())
            else filling.of(value, is_message=key in _MESSAGES)
            for key, value in template.items()
        }
        if kind == "cli":
            lent = self._lent(template.get("commands"))
            filling.values += lent.values()
            given: Any = found.get("env_vars") or {}
            found["env_vars"] = {**lent, **given} if is_object(given) else given
            self.secrets |= self._inherited(template)
        self.secrets |= {*filling.secrets, *_secrets_in(found)}
        return Filled(found, tuple(dict.fromkeys(filling.values)), tuple(dict.fromkeys(filling.missing)))

    def _lent(self, commands: Any) -> dict[str, str]:
        """What the commands of a script name: it finds the values in its environment, where they cannot be code."""
        names = [one or other for one, other in _VARIABLE.findall(str(commands))]
        found = {name: self.find(name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def _inherited(self, template: Mapping[str, Any]) -> set[str]:
        """The secrets that a script is handed on from our own environment."""
        names: Any = template.get("inherit_env_vars")
        wanted = [name for name in names if isinstance(name, str)] if is_array(names) else []
        return {self._environ[name] for name in wanted if is_secret_name(name) and name in self._environ}


def _secrets_in(part: Mapping[str, Any]) -> Iterator[str]:
    """What a template has under names such as `api_key` or `Authorization`, there without the word before it too."""
    for name, value in part.items():
        if is_object(value):
            yield from _secrets_in(value)
        elif isinstance(value, str) and is_secret_name(name):
            yield from (value, value.rpartition(" ")[2])


class _Filling:
    """One template being filled."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self.values: list[str] = []
        self.secrets: list[str] = []
        self.missing: list[str] = []

    def of(self, value: Any, *, is_message: bool) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: self._value(found, is_message=is_message), value)
        if is_array(value):
            return [self.of(item, is_message=is_message) for item in value]
        if is_object(value):
            return {key: self.of(item, is_message=is_message) for key, item in value.items()}
        return value

    def _value(self, found: re.Match[str], *, is_message: bool) -> str:
        name = found[1] or found[2]
        value = self._variables.find(name)
        if value is not None:
            self.values.append(value)
            if is_secret_name(name):
                self.secrets.append(value)
            return value
        is_meant = found[1] is not None or (name.isupper() and not is_message)
        if is_meant and not _OURS.fullmatch(name):
            self.missing.append(name)
        return found[0]
