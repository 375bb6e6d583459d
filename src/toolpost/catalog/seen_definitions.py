"""Definitions of tools as first seen, for sources that no lock file pins; one file per source."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from toolpost.catalog.lock import Pin, pin_from_dict, pin_to_dict, write_json
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import Tool
from toolpost.stores.durable_files import make_private_folder
from toolpost.stores.path_segments import path_segment

if TYPE_CHECKING:  # the models of the settings are slow to import, and a Toolbox may have no sources
    from toolpost.contracts.config import ExternalToolConfig

_log = logging.getLogger("toolpost.toolbox")
_VERSION = 1


class _Record(NamedTuple):
    """The content of a file: accepted definitions, changed ones that were reported, and the digest of all tools."""

    seen: Mapping[str, Pin] = {}
    changed: Mapping[str, Pin] = {}
    digest: str = ""


class SeenDefinitions:
    """The definitions of one source's tools as they were first seen or last accepted.

    `origin` identifies transport and connection: if the operator changes them, the definitions are recorded again.
    """

    def __init__(self, path: Path, origin: str) -> None:
        self.path = path
        self._origin = origin
        self._record = _Record()
        self._status: tuple[int, int] | None = None

    @classmethod
    def of(cls, folder: Path, config: ExternalToolConfig) -> SeenDefinitions:
        """Return the definitions of a source below a folder."""
        origin = hashlib.sha256(f"{config.transport}\n{config.connection}".encode()).hexdigest()
        return cls(folder / f"{path_segment(config.name)}.json", origin)

    @property
    def pins(self) -> Mapping[str, Pin]:
        """The accepted definitions, read again if another process wrote them."""
        return self._read().seen

    @property
    def written_at(self) -> float | None:
        """The time at which the file of the definitions was written; None without one."""
        self._read()
        return None if self._status is None else self._status[0] / 1e9

    def knows(self, digest: str) -> bool:
        """Return whether these are the tools of the last record, all of them accepted."""
        return bool(digest) and self._read().digest == digest

    def accept(self, name: str, pin: Pin) -> None:
        """Record a changed definition as the accepted one."""
        record = self._read()
        changed = {other: one for other, one in record.changed.items() if other != name}
        self._write(_Record({**record.seen, name: pin}, changed))

    def record(self, pins: Mapping[str, Pin], digest: str) -> list[str]:
        """Record the current definitions, accept new ones, and return the names of new changes.

        If they cannot be written, for example on a full disk, only this process knows them; its tools can be called.
        """
        record = self._read()
        known = {name: pin for name, pin in pins.items() if name in record.seen}
        changed = {name: pin for name, pin in known.items() if record.seen[name].hash != pin.hash}
        unreported = [name for name, pin in changed.items() if record.changed.get(name) != pin]
        new = _Record({**pins, **record.seen}, changed, "" if changed else digest)
        if new != record:
            try:
                self._write(new)
            except ConfigError as error:
                _log.warning("changes of definitions are not detected after a restart: %s", error.message)
                self._record = new
        return unreported

    def _read(self) -> _Record:
        try:
            status = self.path.stat()
        except OSError:
            return self._record
        if self._status != (status.st_mtime_ns, status.st_size):
            self._record = self._load()
            self._status = (status.st_mtime_ns, status.st_size)
        return self._record

    def _load(self) -> _Record:
        try:
            document = json.loads(self.path.read_bytes())
            if document["version"] != _VERSION or document["origin"] != self._origin:
                return _Record()
            seen, changed = [
                {name: pin_from_dict(facts) for name, facts in document[part].items()} for part in ("seen", "changed")
            ]
            return _Record(seen, changed, str(document["digest"]))
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.warning("%s cannot be read (%s); the definitions are recorded again", self.path, error)
            return _Record()

    def _write(self, record: _Record) -> None:
        document = {
            "version": _VERSION,
            "origin": self._origin,
            "digest": record.digest,
            "seen": {name: pin_to_dict(pin) for name, pin in record.seen.items()},
            "changed": {name: pin_to_dict(pin) for name, pin in record.changed.items()},
        }
        try:
            make_private_folder(self.path.parent)
        except OSError as error:
            raise ConfigError(f"{self.path.parent} cannot be written: {error.strerror}") from error
        write_json(self.path, document)
        self._record, self._status = record, None


def digest_of(tools: Sequence[Tool]) -> str:
    """Return the digest of all definitions of a listing, which takes 3 µs per tool; pinning takes 60 µs."""
    total = hashlib.sha256()
    for tool in sorted(tools, key=lambda one: one.spec.name):
        spec = tool.spec
        target = None if spec.target is None else [spec.target.summary, spec.target.detail]
        facts: list[Any] = [spec.name, spec.description, spec.input_schema, spec.output_schema, target]
        facts += [spec.side_effects, list(spec.safety), sorted(spec.tags), spec.extra]
        total.update(msgspec.json.encode(facts, enc_hook=str, order="deterministic"))
    return total.hexdigest()
