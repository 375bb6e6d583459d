"""Variables of `.env` files."""

from __future__ import annotations

import re
from pathlib import Path

from toolpost.contracts.errors import ConfigError

_MOST_BYTES = 1024 * 1024
_SETTING = re.compile(
    r"""^\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*"""
    r"""(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>[^']*)'|(?P<plain>.*?))\s*(?:(?<=\s)\#.*)?$"""
)
_ESCAPE = re.compile(r"\\([ntr\"\\$])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def parse_env(text: str) -> dict[str, str]:
    r"""Parse `.env` text with one `NAME=value` per line; the last of several values of a name applies.

    `export` before a name is allowed. Quotes around a value are removed. In double quotes, `\n`, `\t`, `\"`, `\\` and
    `\$` are escapes; an unquoted value ends at a comment. Nothing is expanded, and other lines are ignored.
    """
    settings = [match for line in text.splitlines() if (match := _SETTING.match(line)) is not None]
    return {match["name"]: _value(match) for match in settings}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a file; raise ConfigError if it cannot be read, FileNotFoundError if it is missing."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"the variables in {path} cannot be read: {error.strerror}") from error
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{path} is larger than {_MOST_BYTES} bytes, so it is not a file of variables")
    try:
        return parse_env(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None


def _value(setting: re.Match[str]) -> str:
    if setting["double"] is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), setting["double"])
    single: str | None = setting["single"]
    return setting["plain"] if single is None else single
