"""JSON lines in a file: append, read and erase records while other processes append."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.schema.json_values import is_object
from toolpost.stores.durable_files import make_private_folder

_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)


def append_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records to a file with one write, after an incomplete last line of a killed process.

    The write survives the end of the process, but it is not synced to the disk.
    """
    data = b"".join(_line(record) for record in records)
    try:
        descriptor = _open(path)
        try:
            os.write(descriptor, data if _ends_whole(descriptor) else b"\n" + data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}", cause=error) from error


def read_lines(path: Path, *, max_bytes: int | None) -> list[dict[str, Any]]:
    """Read the records of a file, or of its last `max_bytes`; other lines, and a missing file, are skipped."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if max_bytes is not None and size > max_bytes:
                file.seek(size - max_bytes)
                file.readline()  # the rest of a line that began before
            lines = file.readlines(-1 if max_bytes is None else max_bytes)
    except OSError:
        return []
    return [record for line in lines if (record := _record(line)) is not None]


def erase_lines(path: Path, is_gone: Callable[[dict[str, Any]], bool]) -> int:
    """Overwrite the records that `is_gone` accepts with blanks, which readers skip; return their number.

    Nothing moves: other processes can append concurrently, and a crash leaves the other records intact.
    """
    try:
        with path.open("r+b", buffering=0) as file:
            lines = file.readall().splitlines(keepends=True)
            starts = itertools.accumulate(map(len, lines), initial=0)
            gone = [
                (start, len(line.rstrip(b"\n")))
                for start, line in zip(starts, lines, strict=False)
                if (record := _record(line)) is not None and is_gone(record)
            ]
            for start, length in gone:
                file.seek(start)
                file.write(b" " * length)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}", cause=error) from error
    return len(gone)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if is_object(data) else None


def _open(path: Path) -> int:
    try:
        return os.open(path, _APPEND, 0o600)
    except FileNotFoundError:
        make_private_folder(path.parent)
        return os.open(path, _APPEND, 0o600)


def _ends_whole(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return True
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"
