"""Secret values and references to them: `env:NAME`, `file:PATH`, `keyring:SERVICE/NAME`."""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn, final

from toolpost.contracts.errors import ConfigError

_LARGEST_FILE = 64 * 1024
_VARIABLE = re.compile(r"(?:env:(?P<name>.+)|\$\{(?P<braced>[^}]+)\})", re.DOTALL)

_NO_TEXT = "a secret has no text; call reveal() only where it is sent"


@final
class Secret:
    """Text that only `reveal` returns: str, format, JSON and pickle fail, and the repr is empty.

    Comparison takes constant time and works only with other secrets. A copy is the same object.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """Return the text."""
        return self._value

    def __repr__(self) -> str:
        return "Secret()"

    def __str__(self) -> NoReturn:
        raise TypeError(_NO_TEXT)

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError(_NO_TEXT)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled; store it in the vault")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret cannot be changed; create a new one")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_raw(self._value), _raw(other._value))

    def __hash__(self) -> int:
        return hash((Secret, self._value))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def revealed(secrets: Iterable[Secret]) -> set[str]:
    """Return the texts of secrets, for redaction."""
    return {secret.reveal() for secret in secrets if secret}


def secret_from(reference: str, *, environ: Mapping[str, str] | None = None, allow_plain: bool = False) -> Secret:
    """Read the secret of a reference, or raise ConfigError.

    A reference is `env:NAME` or `${NAME}`, `file:PATH` (a file that only its owner can read) or `keyring:SERVICE/NAME`.
    Anything else would be the secret itself and is rejected unless `allow_plain`; the error does not contain it.
    """
    if match := _VARIABLE.fullmatch(reference):
        name = match["name"] or match["braced"]
        value = (os.environ if environ is None else environ).get(name)
        if value:
            return Secret(value)
        fault = "is not set" if value is None else "is empty"
        raise ConfigError(f"the environment variable {name!r} {fault}; put the secret into it", code="secret_missing")
    kind, _, rest = reference.partition(":")
    if kind == "file":
        return Secret(private_text(Path(rest).expanduser()))
    if kind == "keyring":
        return _from_keyring(rest)
    if not allow_plain:
        raise ConfigError(
            "expected a reference to a secret, not the secret itself; write env:NAME, file:PATH or "
            "keyring:SERVICE/NAME instead",
            code="secret_in_clear",
        )
    return Secret(reference)


def private_text(path: Path) -> str:
    """Return the content of a file that only its owner can read, without a final newline."""
    try:
        # Non-blocking, because opening a named pipe would block forever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            _refuse_shared(path, os.fstat(descriptor))
            raw = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"the secret file {path} cannot be read: {error.strerror}", code="secret_missing") from error
    text = _decode(raw).rstrip("\r\n")
    if not text or len(raw) > _LARGEST_FILE:
        fault = f"larger than {_LARGEST_FILE} bytes" if text else "empty or not text in UTF-8"
        raise ConfigError(f"the secret file {path} is {fault}; put the secret alone into it", code="secret_unreadable")
    return text


def _decode(raw: bytes) -> str:
    """Decode, or return an empty string: the error of a failed decoding would contain the secret."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    """Check the mode of the open file, which cannot be replaced between check and read."""
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"the secret file {path} is not a regular file", code="secret_unreadable")
    if os.name != "posix":
        return
    if status.st_uid != os.geteuid():
        message = f"the secret file {path} belongs to another user; run: chown {os.geteuid()} {path}"
        raise ConfigError(message, code="secret_exposed")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(f"the secret file {path} can be read by others; run: chmod 600 {path}", code="secret_exposed")


def _from_keyring(place: str) -> Secret:
    service, _, name = place.rpartition("/")
    if not service or not name:
        message = f"'keyring:{place}' is not of the form keyring:SERVICE/NAME"
        raise ConfigError(message, code="secret_missing")
    value = keyring_text(service, name)
    if not value:
        message = f"the keyring has no {name!r} for {service!r}; run: keyring set {service} {name}"
        raise ConfigError(message, code="secret_missing")
    return Secret(value)


def keyring_text(service: str, name: str) -> str | None:
    """Return a password from the system's keyring, or None."""
    try:
        import keyring  # noqa: PLC0415 - optional, and slow to load
        import keyring.errors  # noqa: PLC0415 - as above
    except ImportError as error:
        raise no_keyring(error) from error
    try:
        return keyring.get_password(service, name)
    except keyring.errors.KeyringError as error:
        message = f"the keyring cannot be read for {service!r}: {type(error).__name__}; unlock it, or use file:PATH"
        raise ConfigError(message, code="keyring_unavailable") from error


def no_keyring(error: ImportError) -> ConfigError:
    """Return the error for a missing keyring package."""
    message = "secrets from the keyring need the package keyring; run: pip install 'toolpost[keyring]'"
    return ConfigError(message, code="missing_extra", cause=error)
