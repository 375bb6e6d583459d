"""The script of a cli template: values reach it through its environment alone, so that none can become code.

Where a placeholder stands decides how the variable is written: bare, between double quotes or between single ones.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolValidationError
from toolpost.web.encoding import UnsendableError, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.sources.utcp.templates import CommandStep

_PLACEHOLDER = re.compile(r"UTCP_ARG_([a-zA-Z0-9_]+?)_UTCP_END")
# A piece of a command as bash reads it: what is escaped, what opens or ends quotes, and all else.
_PIECE = re.compile(r"UTCP_ARG_[a-zA-Z0-9_]+?_UTCP_END|\\.|['\"]|.", re.DOTALL)
_OPENING = {"": {"'": "'", '"': '"'}, "'": {"'": ""}, '"': {'"': ""}}


class Script(NamedTuple):
    """What bash runs, and the variables that it needs."""

    text: str
    env: dict[str, str]

    def __repr__(self) -> str:
        return f"Script({self.text!r})"


def placeholders(commands: Sequence[CommandStep]) -> list[str]:
    """The arguments that a script wants, each once."""
    return list(dict.fromkeys(name for step in commands for name in _PLACEHOLDER.findall(step.command)))


def script_of(commands: Sequence[CommandStep], arguments: Mapping[str, Any]) -> Script:
    """The script with its values; a ToolValidationError names what is missing before anything runs."""
    wanted = placeholders(commands)
    missing = [name for name in wanted if arguments.get(name) is None]
    if missing:
        raise ToolValidationError([f"{name}: its command needs it" for name in missing])
    nonce = secrets.token_hex(8)  # so that no template can have written the variable's name before
    names = {name: f"__UTCP_ARG_{nonce}_{name}" for name in wanted}
    env = {names[name]: _value(name, arguments[name]) for name in wanted}
    steps = [_referring(step.command, names) for step in commands]
    if len(steps) == 1:
        return Script(steps[0], env)
    return Script("\n".join([_HEAD, *map(_step, range(len(steps)), steps), *_ending(commands)]), env)


# All steps run in one shell, as the format says, so that `cd` holds for the next; their output goes by a file.
# What a step that failed had to say is told, whether it ends itself or the script ends for it.
_HEAD = """\
__utcp_file=$(mktemp) || exit 125
__utcp_end() {
  local code=$?
  if [ "$code" -ne 0 ]; then cat "$__utcp_file" >&2; fi
  rm -f "$__utcp_file"
  exit "$code"
}
trap __utcp_end EXIT"""


def _step(number: int, command: str) -> str:
    return f'{{\n{command}\n}} >"$__utcp_file" || exit $?\nCMD_{number}_OUTPUT=$(<"$__utcp_file")'


def _ending(commands: Sequence[CommandStep]) -> list[str]:
    last = len(commands) - 1
    said = [step.append_to_final_output for step in commands]
    told = [number for number, wanted in enumerate(said) if (number == last if wanted is None else wanted)]
    return [f"printf '%s\\n' \"${{CMD_{number}_OUTPUT}}\"" for number in told]


def _referring(command: str, names: Mapping[str, str]) -> str:
    """A command with variables in the place of its placeholders, each as its quotes need it."""
    quotes, written = "", list[str]()
    for match in _PIECE.finditer(command):
        piece = match[0]
        if (placeholder := _PLACEHOLDER.fullmatch(piece)) is not None:
            piece = _reference(names[placeholder[1]], quotes)
        elif quotes == "'" and len(piece) > 1:  # between single quotes a backslash is a letter like any other
            written.append(piece[0])
            piece = piece[1:]
        written.append(piece)
        quotes = _OPENING[quotes].get(piece, quotes)
    return "".join(written)


def _reference(name: str, quotes: str) -> str:
    match quotes:
        case '"':
            return f"${{{name}}}"
        case "'":
            return f"'\"${{{name}}}\"'"
        case _:
            return f'"${{{name}}}"'


def _value(name: str, value: Any) -> str:
    try:
        text = text_of(value)
    except UnsendableError as error:
        raise ToolValidationError(f"{name}: {error}") from error
    if "\0" in text:
        raise ToolValidationError(f"{name}: it holds NUL, which no command can be given")
    return text
