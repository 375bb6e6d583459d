"""Variables of call templates, `${NAME}` or `$NAME`, filled with values that the operator set for the source.

An unset variable is missing only as `${NAME}`, or as `$NAME` in capitals outside of messages. Any other dollar sign is
text: a price, a reference, a variable of a shell or a query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import is_secret_name

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", re.ASCII)
_STEP_OUTPUT = re.compile(r"CMD_\d+_OUTPUT", re.ASCII)
# Shell commands and GraphQL queries have their own variables; a text is the output itself.
_VERBATIM_FIELDS = {"cli": frozenset({"commands"}), "graphql": frozenset({"query"}), "text": frozenset({"content"})}
_MESSAGE_FIELDS = frozenset({"message", "request_data_template"})
_IDENTITY_FIELDS = frozenset({"call_template_type", "name"})


class Variables:
    """Variables of one manual; `values` are the operator's for this source, by name or by the manual's key."""

    def __init__(self, manual: str, values: Sequence[Mapping[str, Any]], environ: Mapping[str, str]) -> None:
        self.secrets: set[str] = set()  # values of templates whose names mark them as secret
        self._prefix = f"{manual.replace('_', '__')}_"
        self._values = values
        self._environ = environ

    def key(self, name: str) -> str:
        """Return the key of a variable: its name prefixed with the manual's, as the format defines it."""
        return f"{self._prefix}{name}"

    def find(self, name: str) -> str | None:
        """Return the value of a variable, None where it is not set."""
        key = self.key(name)
        for values in self._values:
            value = values.get(key, values.get(name))
            if isinstance(value, str):
                return value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return str(value)
        # Only by the prefixed key: a manual must not read other variables of the environment.
        return self._environ.get(key)

    def fill(self, template: Mapping[str, Any]) -> FilledTemplate:
        """Fill the variables of a template in all fields that may have some."""
        kind = str(template.get("call_template_type"))
        filler = _TemplateFiller(self)
        fields = {
            key: value
            if key in _IDENTITY_FIELDS or key in _VERBATIM_FIELDS.get(kind, ())
            else filler.fill(value, is_message=key in _MESSAGE_FIELDS)
            for key, value in template.items()
        }
        if kind == "cli":
            script_variables = self._script_variables(template.get("commands"))
            filler.values += script_variables.values()
            declared: Any = fields.get("env_vars") or {}
            fields["env_vars"] = {**script_variables, **declared} if is_object(declared) else declared
            names: Any = template.get("inherit_env_vars")
            variables = [name for name in names if isinstance(name, str)] if is_array(names) else []
            self.secrets |= {
                self._environ[name] for name in variables if is_secret_name(name) and name in self._environ
            }
        self.secrets |= {*filler.secrets, *_literal_secrets(fields)}
        return FilledTemplate(fields, tuple(dict.fromkeys(filler.values)), tuple(dict.fromkeys(filler.missing)))

    def _script_variables(self, commands: Any) -> dict[str, str]:
        # They become environment variables of the script, where they cannot become code.
        names = [one or other for one, other in _VARIABLE.findall(str(commands))]
        values = {name: self.find(name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def _literal_secrets(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the literal secrets of a template, also without a scheme such as `Bearer` before them."""
    for name, value in part.items():
        if is_object(value):
            yield from _literal_secrets(value)
        elif isinstance(value, str) and is_secret_name(name):
            yield from (value, value.rpartition(" ")[2])


class _TemplateFiller:
    """Filler of one template that collects the values used and the names that are not set."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self.values: list[str] = []
        self.secrets: list[str] = []
        self.missing: list[str] = []

    def fill(self, value: Any, *, is_message: bool) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._value(match, is_message=is_message), value)
        if is_array(value):
            return [self.fill(item, is_message=is_message) for item in value]
        if is_object(value):
            return {key: self.fill(item, is_message=is_message) for key, item in value.items()}
        return value

    def _value(self, match: re.Match[str], *, is_message: bool) -> str:
        name = match[1] or match[2]
        value = self._variables.find(name)
        if value is not None:
            self.values.append(value)
            if is_secret_name(name):
                self.secrets.append(value)
            return value
        is_required = match[1] is not None or (name.isupper() and not is_message)
        if is_required and not _STEP_OUTPUT.fullmatch(name):
            self.missing.append(name)
        return match[0]


class FilledTemplate(NamedTuple):
    """A template with its variables filled in, the values used, and the names that are not set."""

    template: dict[str, Any]
    values: tuple[str, ...]
    missing: tuple[str, ...]

    def __repr__(self) -> str:
        return f"FilledTemplate({len(self.values)} values, missing={self.missing})"
