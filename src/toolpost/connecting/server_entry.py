"""One server of an ecosystem file, in any of the dialects, read into a source; what is left over is told of."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from toolpost.configuration.secret_extraction import Concealer, references
from toolpost.connecting.placeholders import Placeholders
from toolpost.contracts.config import AuthType, ExternalToolConfig, McpOptions, McpTransport, TransportType
from toolpost.schema.jsontypes import is_array, is_object

_TRANSPORTS = {
    "stdio": McpTransport.STDIO,
    "local": McpTransport.STDIO,
    "http": McpTransport.STREAMABLE_HTTP,
    "streamable-http": McpTransport.STREAMABLE_HTTP,
    "streamablehttp": McpTransport.STREAMABLE_HTTP,
    "streamable_http": McpTransport.STREAMABLE_HTTP,
    "sse": McpTransport.SSE,
    "remote": McpTransport.AUTO,
}
# What other programs may run without asking is for them to know; here `policy` decides.
_PERMISSIONS = ("alwaysAllow", "autoApprove", "trust", "autoAllow")
_MOST_SECONDS = 3600  # programs that count in seconds allow no more; a larger number is one of milliseconds
_LONGEST_S = 300.0


class UnfitServerError(ValueError):
    """A server that cannot be a source; the message says why."""


class ServerEntry:
    """Takes an entry apart, key by key."""

    def __init__(self, name: str, entry: Mapping[str, Any], placeholders: Placeholders, concealer: Concealer) -> None:
        self.notes: list[str] = []
        self._name = name
        self._left = _flat(entry)
        self._placeholders = placeholders
        self._concealer = concealer

    def to_config(self, folder: Path) -> ExternalToolConfig:
        """The source; `folder` is what relative paths start from."""
        fields = {**self._reached(folder), **self._limits()}
        disabled, enabled = self._take("disabled"), self._take("enabled")
        fields["enabled"] = not disabled and enabled is not False
        fields["description"] = str(self._take("description") or self._take("title") or "")
        self._tell_what_is_left()
        try:
            return ExternalToolConfig(name=self._name, transport=TransportType.MCP, **fields)
        except ValidationError as error:
            wrong = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
            raise UnfitServerError(f"its {wrong or 'values'} cannot be used") from None

    def _reached(self, folder: Path) -> dict[str, Any]:
        """How it is reached: a command, or an address."""
        command, address, origin = self._take("command"), self._address(), self._take("source")
        transport = self._transport()
        if command and address and transport not in (None, McpTransport.STDIO):
            self.notes.append("it has a command and an address; the address is taken")
            command = None
        if command and (isinstance(command, str) or is_array(command)):
            return self._process(_words(command, self._take("args")), folder)
        if isinstance(address, str) and address:
            return self._remote(address, transport)
        if origin == "extension":
            raise UnfitServerError("an extension of the editor starts it")
        raise UnfitServerError("it has neither a command nor an address")

    def _address(self) -> Any:
        plain, streamable = self._take("url") or self._take("serverUrl"), self._take("httpUrl")
        if streamable:
            self._left.setdefault("type", "http")
        return streamable or plain

    def _transport(self) -> McpTransport | None:
        written = self._take("type") or self._take("transport") or self._take("transportType")
        if written is None:
            return None
        transport = _TRANSPORTS.get(str(written).lower())
        if transport is None:
            raise UnfitServerError(f"nothing here speaks its transport {str(written)!r}")
        return transport

    def _process(self, written: Sequence[str], folder: Path) -> dict[str, Any]:
        words = [self._replaced(word) for word in written]
        if self._take("headers"):
            self.notes.append("headers are left out: a command has none")
        return {
            "connection": shlex.join(self._concealer.words(self._name, words)),
            "env_file": self._env_file(folder),
            "cwd": self._folder(words, folder),
            "env": self._mapping("env", partial(self._concealer.env, self._name, own_name=True)),
        }

    def _folder(self, words: list[str], folder: Path) -> str | None:
        """The folder to start it in; without a word about it only where a path is relative."""
        written = self._take("cwd")
        if isinstance(written, str) and written:
            place = self._replaced(written)
            return place if references(place) else str(folder / Path(place).expanduser())
        return str(folder) if names_a_relative_path(words, folder) else None

    def _env_file(self, folder: Path) -> str | None:
        """The file of variables that an editor starts the command with."""
        written = self._left.get("envFile")
        if not isinstance(written, str) or not written:
            return None
        place = self._replaced(str(self._take("envFile")))
        return place if references(place) else str(folder / Path(place).expanduser())

    def _remote(self, address: str, transport: McpTransport | None) -> dict[str, Any]:
        if transport is McpTransport.STDIO:
            raise UnfitServerError("its transport is stdio, and it has no command")
        url = self._replaced(address)
        if not re.match(r"https?://|\$\{", url):
            raise UnfitServerError("its address is not an http or https URL")
        if self._take("env"):
            self.notes.append("env is left out: a server at an address has none")
        address, login = self._concealer.login(self._name, url)
        fields: dict[str, Any] = {"connection": self._concealer.url(self._name, address)}
        if login:
            fields |= {"auth_type": AuthType.BASIC, "auth_config": login}
        fields["headers"] = self._mapping("headers", partial(self._concealer.header, self._name))
        if transport not in (None, McpTransport.AUTO):
            fields["mcp"] = McpOptions(transport=transport)
        return fields

    def _mapping(self, key: str, conceal: Callable[[str, str], str]) -> dict[str, str]:
        written = self._take(key)
        if not is_object(written):
            if written:
                self.notes.append(f"{key} is left out: it is not a JSON object")
            return {}
        unset = [name for name, value in written.items() if value is None]
        if unset:
            self.notes.append(f"{key} {', '.join(unset)} left out: null is no value")
        texts = {name: _text(value) for name, value in written.items() if value is not None}
        return {name: conceal(name, self._replaced(value, name)) for name, value in texts.items()}

    def _limits(self) -> dict[str, Any]:
        """What it may do, and for how long."""
        fields: dict[str, Any] = {}
        wanted = self._patterns("includeTools", "tools")
        if wanted and wanted != [re.escape("*")]:
            fields["tool_filter"] = wanted
        if unwanted := self._patterns("excludeTools", "disabledTools"):
            fields["tool_exclude"] = unwanted
        timeout = self._left.get("timeout")
        if isinstance(timeout, int | float) and timeout > 0 and not isinstance(timeout, bool):
            fields["timeout_s"] = _seconds(self._take("timeout"))
            self.notes.append(f"the timeout {timeout} becomes {fields['timeout_s']:g} s")
        return fields

    def _patterns(self, *keys: str) -> list[str]:
        """Names of tools as patterns; what is no list stays, and is told of."""
        lists: list[list[Any]] = [self._take(key) for key in keys if is_array(self._left.get(key))]
        return [re.escape(str(name)) for names in lists for name in names]

    def _tell_what_is_left(self) -> None:
        allowed = [key for key in _PERMISSIONS if self._take(key)]
        if allowed:
            self.notes.append(f"{', '.join(allowed)} left out: what runs without asking is for `policy` to say")
        if self._left:
            self.notes.append(f"{', '.join(map(repr, self._left))} left out: nothing here knows what it means")

    def _take(self, key: str) -> Any:
        return self._left.pop(key, None)

    def _replaced(self, text: str, name: str = "") -> str:
        return self._placeholders.replaced(text, place=self._name, name=name)


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with nested forms opened: `command: {path, args}` and `transport: {type, url}`."""
    flat = dict(entry)
    command = flat.get("command")
    if is_object(command):
        flat |= {**command, "command": command.get("path")}
        flat.pop("path", None)
    transport = flat.get("transport")
    if is_object(transport):
        flat.pop("transport")
        flat |= transport
    return flat


def _words(command: str | list[Any], args: Any) -> list[str]:
    """The words of the command line; a command without arguments may be a whole line, or a list."""
    if args is not None and not is_array(args):
        raise UnfitServerError("its args are not a list")
    if not isinstance(command, str):
        return [*map(str, command), *map(str, args or [])]
    if args is not None or " " not in command or Path(command).exists():
        return [command, *map(str, args or [])]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UnfitServerError(f"its command cannot be split into words: {error}") from None
    if not words:
        raise UnfitServerError("its command is empty")
    return words


def names_a_relative_path(words: Sequence[str], folder: Path) -> bool:
    """Whether a command line means something in its working folder: `./run`, `.`, or a file or folder that is there."""
    program, *arguments = words
    return _is_relative(program, folder, written=True) or any(_is_relative(word, folder) for word in arguments)


def _is_relative(word: str, folder: Path, *, written: bool = False) -> bool:
    """`written`: a bare name does not count, because programs are looked for on the PATH."""
    if word in (".", "..") or word.startswith(("./", "../", ".\\", "..\\")):
        return True
    try:
        there = bool(word) and not Path(word).is_absolute() and (folder / word).exists()
    except (OSError, ValueError):  # longer than a path can be, or with a NUL in it
        return False
    return there and ("/" in word or not written)


def _seconds(written: float) -> float:
    seconds = written if written <= _MOST_SECONDS else written / 1000
    return min(max(seconds, 1.0), _LONGEST_S)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value)
