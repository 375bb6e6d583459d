"""The script of a cli template: values reach it through its environment alone, so that none can become code.

Where a placeholder stands decides how the variable is written: bare, between double quotes or between single ones.
"""

from __future__ import annotations

import re
import secrets
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolValidationError
from toolpost.sources.utcp.command_places import MARK, Place, pieces_of, refuse_code_beside
from toolpost.web.encoding import UnsendableError, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from toolpost.sources.utcp.templates import CommandStep

MAX_OUTPUT = 16 * 1024 * 1024
ENDED = "ended"  # the file by which a script of several steps says that it came to its end
_PLACEHOLDER = re.compile(r"UTCP_ARG_([a-zA-Z0-9_]+?)_UTCP_END")


class Script(NamedTuple):
    """What bash runs, and the variables that it needs."""

    text: str
    env: dict[str, str]

    def __repr__(self) -> str:
        return f"Script({self.text!r})"


def placeholders(commands: Sequence[CommandStep]) -> list[str]:
    """The arguments that a script wants, each once."""
    return list(dict.fromkeys(name for step in commands for name in _PLACEHOLDER.findall(step.command)))


def check_script(commands: Sequence[CommandStep]) -> None:
    """Refuse a script in which a value could become code; ConfigError says where."""
    if not any(MARK in step.command for step in commands):
        return
    for step in commands:
        if MARK in step.command:
            pieces_of(step.command)
        else:
            refuse_code_beside(step.command)


def script_of(commands: Sequence[CommandStep], arguments: Mapping[str, Any], folder: Path | None) -> Script:
    """The script with its values; a ToolValidationError names what is missing before anything runs.

    Several steps keep what they write in a folder.
    """
    wanted = placeholders(commands)
    missing = [name for name in wanted if arguments.get(name) is None]
    if missing:
        raise ToolValidationError([f"{name}: its command needs it" for name in missing])
    nonce = secrets.token_hex(8)  # so that no template can have written the variable's name before
    names = {name: f"__UTCP_ARG_{nonce}_{name}" for name in wanted}
    env = {names[name]: _value(name, arguments[name]) for name in wanted}
    steps = [_referring(step.command, names, arguments) for step in commands]
    if folder is None:
        return Script(steps[0], env)
    head = _HEAD.format(folder=shlex.quote(str(folder)))
    end = f': >"$__utcp_folder/{ENDED}"'
    run = [_step(number, step, last=number == len(steps) - 1) for number, step in enumerate(steps)]
    return Script("\n".join([head, *run, *_ending(commands), end]), env)


# All steps run in one shell, so that `cd` holds for the next. What a step writes goes to a file of bounded size, by
# somebody who is no job of this shell: a step may wait for its own. Each is read by itself, so that no quote that one
# leaves open changes the next. However a step ends, its output is waited for before the script does.
_HEAD = """\
__utcp_folder={folder}
__utcp_writes=
__utcp_end() {{
  local code=$?
  exec >&2
  if [ -n "$__utcp_writes" ]; then read -r __utcp_read <"$__utcp_writes.read"; cat "$__utcp_writes"; fi
  exit "$code"
}}
trap __utcp_end EXIT"""


def _step(number: int, command: str, *, last: bool) -> str:
    run = f"eval {shlex.quote(command)}"
    run = f"( {run} )" if last else run  # what comes after it needs nothing of it, so that it may even exit
    return f"""\
__utcp_writes=$__utcp_folder/{number}
( {{ head -c {MAX_OUTPUT + 1} <"$__utcp_writes.out" >"$__utcp_writes"; echo >"$__utcp_writes.read"; }} & )
{run} >"$__utcp_writes.out"
__utcp_code=$?
if [ "$__utcp_code" -ne 0 ]; then exit "$__utcp_code"; fi
read -r __utcp_read <"$__utcp_writes.read"
CMD_{number}_OUTPUT=$(<"$__utcp_writes")
__utcp_writes="""


def pipes_of(commands: Sequence[CommandStep]) -> list[str]:
    """The pipes that a script of several steps finds in its folder: what each writes to, and what says it was read."""
    return [f"{number}.{end}" for number in range(len(commands)) for end in ("out", "read")]


def _ending(commands: Sequence[CommandStep]) -> list[str]:
    last = len(commands) - 1
    said = [step.append_to_final_output for step in commands]
    told = [number for number, wanted in enumerate(said) if (number == last if wanted is None else wanted)]
    return [f"printf '%s\\n' \"${{CMD_{number}_OUTPUT}}\"" for number in told]


def _referring(command: str, names: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    """A command with variables in the place of its placeholders, each as its quotes need it."""
    if MARK not in command:
        return command
    pieces = pieces_of(command)
    for piece in pieces:
        if isinstance(piece, Place):
            _refuse_option(piece, arguments[piece.name])
    return "".join(_reference(names[one.name], one.quotes) if isinstance(one, Place) else one for one in pieces)


def _refuse_option(place: Place, value: Any) -> None:
    is_let_through = place.option == "any" or (place.option == "number" and isinstance(value, (int, float)))
    if not is_let_through and _value(place.name, value).startswith("-"):
        raise ToolValidationError(f"{place.name}: begins with '-', and would be taken for an option of the command")


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
