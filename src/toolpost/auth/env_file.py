r"""Files of environment variables: one `NAME=value` a line, as `.env` files are written.

`export` before a name is allowed. A value in quotes is what stands in them, and in double quotes `\n`, `\t`, `\"`,
`\\` and `\$` are escapes; another value ends at a comment. Nothing is expanded, and a line that is none of this is
passed over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 1024 * 1024
_SETTING = re.compile(
    r"""^\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*"""
    r"""(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>[^']*)'|(?P<plain>.*?))\s*(?:(?<=\s)\#.*)?$"""
)
_ESCAPE = re.compile(r"\\([ntr\"\\$])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of a text; of two with one name the later one."""
    found = [match for line in text.splitlines() if (match := _SETTING.match(line)) is not None]
    return {match["name"]: _value(match) for match in found}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file; ConfigError when it cannot be read, FileNotFoundError when there is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"the variables in {path} cannot be read: {error.strerror}") from error
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{path} is larger than {_MOST_BYTES} bytes, and no file of variables")
    try:
        return parse_env(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None


def _value(found: re.Match[str]) -> str:
    if found["double"] is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), found["double"])
    single: str | None = found["single"]
    return found["plain"] if single is None else single
