"""Build the bash script of a cli template.

Arguments reach a script only through environment variables, so that none can become code. The quotes around a
placeholder decide how the reference to its variable is written. Placeholders are allowed among bare words and within
simple quotes, and nowhere else.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.sources.utcp.context import argument_text
from toolpost.sources.utcp.templates import CommandStep

MAX_OUTPUT = 16 * 1024 * 1024
END_MARKER = "ended"  # the file that a script of several steps creates at its end
PLACEHOLDER_PREFIX = "UTCP_ARG_"
PLACEHOLDER_PATTERN = r"UTCP_ARG_(?P<name>[a-zA-Z0-9_]+?)_UTCP_END"
_PLACEHOLDER = re.compile(PLACEHOLDER_PATTERN)
# Expansions that bash does not parse again: a variable, or a command substitution of plain words.
_PLAIN = r"\$\{\w+\}|\$\([^()'\"`$\\#<]*\)"
_TOKENS = {
    "": re.compile(
        rf"{PLACEHOLDER_PATTERN}|\\.|{_PLAIN}|<<<|(?P<nested>\$[(\[{{'\"]|`|<<|\(\()"
        r"|(?P<comment>(?:^|(?<=[\s;&|()]))#[^\n]*)|(?P<quote>['\"])|.",
        re.DOTALL,
    ),
    '"': re.compile(rf"{PLACEHOLDER_PATTERN}|\\.|{_PLAIN}|(?P<nested>\$[(\[{{]|`)|(?P<quote>\")|.", re.DOTALL),
    "'": re.compile(rf"{PLACEHOLDER_PATTERN}|(?P<quote>')|.", re.DOTALL),
}
_SIGNIFICANT = re.compile(rf"['\"`]|{PLACEHOLDER_PREFIX}")
_SLOT = "\0"  # represents a placeholder in the outline of a command
_BEGINS_WORD = re.compile(r"(?:^|[\s;&|(])\Z")
_AFTER_END_OF_OPTIONS = re.compile(rf"(?:^|\s)--(?:\s+{_SLOT})*\s+\Z")
_AFTER_OPTION = re.compile(r"(?:^|\s)-\S+\s+\Z")
_AFTER_REDIRECTION = re.compile(r"[<>]\s*\Z")
# Commands that evaluate their arguments as code, or as arithmetic, which may contain code.
_READS_CODE = re.compile(
    r"(?:^|[\s;&|(/])(?P<word>\[\[|\.|alias|at|batch|declare|eval|getopts|let|local|mapfile|parallel|read|readarray"
    r"|readonly|source|ssh|su|trap|typeset|unset|watch)(?=[\s;&|)]|\Z)"
)
_INTERPRETS = re.compile(
    r"(?:^|[\s;&|(/])(?P<word>(?:ba|da|k|z|fi)?sh\s[^;&|\n]*?-\w*c|(?:python[\d.]*|perl|ruby|node|php)(?:\s+-\S+)*\s+-\w*[cenpr])\w*(?=\s|\Z)"
)
_NAMED_BY_ARGUMENT = re.compile(rf"(?P<word>\w\[)[^\]]*{_SLOT}|(?P<option>-v)\s+\S*{_SLOT}")
_IN_PROGRAM = re.compile(
    rf"(?:^|[\s;&|(/])(?P<word>[gmn]?awk|sed)\s[^;|\n]*?(?:[^\s{_SLOT}]{_SLOT}|{_SLOT}[^\s{_SLOT}])"
)
# All steps run in one shell, so that `cd` applies to later steps. A process that is not a job of this shell copies the
# output of a step to a file of bounded size, because a step may `wait` for all jobs. Each step is evaluated separately,
# so that an unclosed quote does not change the next one. The exit trap waits until the output is copied.
_PROLOGUE = """\
__utcp_folder={folder}
__utcp_writes=
__utcp_end() {{
  local code=$?
  exec >&2
  if [ -n "$__utcp_writes" ]; then read -r __utcp_read <"$__utcp_writes.read"; cat "$__utcp_writes"; fi
  exit "$code"
}}
trap __utcp_end EXIT"""


def build_script(commands: Sequence[CommandStep], arguments: Mapping[str, Any], folder: Path | None) -> Script:
    """Build the script and the environment of a call; a ToolValidationError names missing arguments.

    Several steps write their output to files in `folder`.
    """
    placeholders = placeholder_names(commands)
    missing = [name for name in placeholders if arguments.get(name) is None]
    if missing:
        raise ToolValidationError([f"{name}: its command needs it" for name in missing])
    nonce = secrets.token_hex(8)  # so that no template can refer to these variables itself
    names = {name: f"__UTCP_ARG_{nonce}_{name}" for name in placeholders}
    env = {names[name]: _value(name, arguments[name]) for name in placeholders}
    steps = [_insert_references(step.command, names, arguments) for step in commands]
    if folder is None:
        return Script(steps[0], env)
    head = _PROLOGUE.format(folder=shlex.quote(str(folder)))
    end = f': >"$__utcp_folder/{END_MARKER}"'
    run = [_step(number, step, last=number == len(steps) - 1) for number, step in enumerate(steps)]
    last = len(commands) - 1
    choices = [step.append_to_final_output for step in commands]
    numbers = [number for number, choice in enumerate(choices) if (number == last if choice is None else choice)]
    shown = [f"printf '%s\\n' \"${{CMD_{number}_OUTPUT}}\"" for number in numbers]
    return Script("\n".join([head, *run, *shown, end]), env)


def _step(number: int, command: str, *, last: bool) -> str:
    run = f"eval {shlex.quote(command)}"
    run = f"( {run} )" if last else run  # nothing after it needs its shell, so it may exit
    return f"""\
__utcp_writes=$__utcp_folder/{number}
( {{ head -c {MAX_OUTPUT + 1} <"$__utcp_writes.out" >"$__utcp_writes"; echo >"$__utcp_writes.read"; }} & )
{run} >"$__utcp_writes.out"
__utcp_code=$?
if [ "$__utcp_code" -ne 0 ]; then exit "$__utcp_code"; fi
read -r __utcp_read <"$__utcp_writes.read"
CMD_{number}_OUTPUT=$(<"$__utcp_writes")
__utcp_writes="""


def _insert_references(command: str, names: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    """Replace the placeholders of a command by references to variables, quoted for their position."""
    if PLACEHOLDER_PREFIX not in command:
        return command
    pieces = parse_command(command)
    for piece in pieces:
        if isinstance(piece, Placeholder):
            value = arguments[piece.name]
            is_allowed = piece.option == "any" or (piece.option == "number" and isinstance(value, (int, float)))
            if not is_allowed and _value(piece.name, value).startswith("-"):
                raise ToolValidationError(
                    f"{piece.name}: begins with '-' and would be parsed as an option of the command"
                )
    return "".join(_reference(names[one.name], one.quotes) if isinstance(one, Placeholder) else one for one in pieces)


def _reference(name: str, quotes: str) -> str:
    match quotes:
        case '"':
            return f"${{{name}}}"
        case "'":
            return f"'\"${{{name}}}\"'"
        case _:
            return f'"${{{name}}}"'


def _value(name: str, value: Any) -> str:
    text = argument_text(name, value)
    if "\0" in text:
        raise ToolValidationError(f"{name}: it contains NUL, which a command cannot receive")
    return text


class Script(NamedTuple):
    """A bash script and the environment variables that hold its arguments."""

    text: str
    env: dict[str, str]

    def __repr__(self) -> str:
        return f"Script({self.text!r})"


def check_script(commands: Sequence[CommandStep]) -> None:
    """Refuse a script in which a value could become code; the ConfigError says where."""
    if not any(PLACEHOLDER_PREFIX in step.command for step in commands):
        return
    for step in commands:
        if PLACEHOLDER_PREFIX in step.command:
            parse_command(step.command)
        else:
            # Values of other steps may reach a step without placeholders, so it must not evaluate code either.
            try:
                outline = _scan(step.command)[1]
            except ConfigError:
                outline = step.command
            _check_code(outline.replace("((", " [[ "))


def placeholder_names(commands: Sequence[CommandStep]) -> list[str]:
    """Return the names of the arguments that a script uses, without duplicates."""
    return list(dict.fromkeys(name for step in commands for name in _PLACEHOLDER.findall(step.command)))


def parse_command(command: str) -> list[str | Placeholder]:
    """Split a command into text and placeholders; a ConfigError says where a value could become code."""
    pieces, outline = _scan(command)
    if any(isinstance(piece, Placeholder) for piece in pieces):
        _check_code(outline)
    return pieces


def _scan(command: str) -> tuple[list[str | Placeholder], str]:
    """Split a command; also return its outline, in which quoted text and placeholders are single characters."""
    pieces: list[str | Placeholder] = []
    quotes, outline, at, count = "", "", 0, 0
    while (match := _TOKENS[quotes].match(command, at)) is not None:
        at, text = match.end(), match[0]
        kind = match.lastgroup
        if kind == "nested" or (kind == "comment" and _SIGNIFICANT.search(text)):
            raise _unsafe_placeholder(text)
        if kind == "name":
            pieces.append(Placeholder(match["name"], quotes, _option_rule(outline)))
            outline, count = outline + _SLOT, count + 1
            continue
        pieces.append(text)
        if kind == "quote":
            quotes = "" if quotes else text
        elif kind != "comment":
            outline += "q" if quotes or text.startswith("\\") else text
    if quotes or count != command.count(PLACEHOLDER_PREFIX):
        raise _unsafe_placeholder(quotes or PLACEHOLDER_PREFIX)
    return pieces, outline


def _option_rule(outline: str) -> str:
    free = (_AFTER_END_OF_OPTIONS, _AFTER_REDIRECTION)
    if not _BEGINS_WORD.search(outline) or any(pattern.search(outline) for pattern in free):
        return "any"
    return "number" if _AFTER_OPTION.search(outline) else "none"


def _check_code(outline: str) -> None:
    for pattern in (_READS_CODE, _INTERPRETS, _NAMED_BY_ARGUMENT, _IN_PROGRAM):
        if (match := pattern.search(outline)) is not None:
            word = " ".join((match["word"] or match[0]).split()).replace(_SLOT, "")
            raise ConfigError(
                f"its command has {word!r}, which would execute an argument as code; move it to a separate script "
                "that receives the argument as a word"
            )


def _unsafe_placeholder(text: str) -> ConfigError:
    return ConfigError(
        f"its command has {text[:20]!r} beside or around an argument, and it is not clear how bash "
        "interprets it; arguments are allowed among bare words and within simple quotes, not in $( ), ${ }, backticks, "
        "here-documents or comments"
    )


class Placeholder(NamedTuple):
    """A placeholder for an argument, and the quotes around it.

    `option` says which values may start with "-" there: any, a number, or none.
    """

    name: str
    quotes: str
    option: str


def pipe_names(commands: Sequence[CommandStep]) -> list[str]:
    """Return the names of the FIFOs that a script of several steps needs: its output, and the end of copying it."""
    return [f"{number}.{end}" for number in range(len(commands)) for end in ("out", "read")]
