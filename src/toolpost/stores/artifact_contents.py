"""Contents of artifacts in encrypted chunks, and the columns of their references, in any store.

An encrypted content begins with a header: a mark, and the length of a full encrypted chunk. The chunks follow. Each is
encrypted to the hash, the size and its number: a part can be read without the rest, and no chunk can replace another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from toolpost.contracts.storage import ArtifactRef, Cipher

CHUNK = 1 << 16
_MARK = b"TPAF\x01"
HEADER_BYTES = len(_MARK) + 4
REF_NAMES = ArtifactRef.__struct_fields__
REF_COLUMNS = ", ".join(f'"{name}"' for name in REF_NAMES)  # `user` is a word of PostgreSQL


class ArtifactContent(NamedTuple):
    """A content by its hash and size."""

    sha256: str
    size: int

    def encode(self, cipher: Cipher, data: bytes) -> Iterator[bytes]:
        """Yield the header and the encrypted chunks."""
        overhead = len(cipher.encrypt(b"", row="artifact"))
        yield _MARK + (CHUNK + overhead).to_bytes(HEADER_BYTES - len(_MARK), "big")
        for number, start in enumerate(range(0, self.size, CHUNK)):
            yield cipher.encrypt(data[start : start + CHUNK], row=self._row(number))

    def encoded_size(self, chunk_length: int) -> int | None:
        """Return the length of the encrypted content with its header; None if the chunks are not encrypted."""
        if chunk_length <= CHUNK:
            return None
        full, rest = divmod(self.size, CHUNK)
        return HEADER_BYTES + full * chunk_length + (rest + chunk_length - CHUNK if rest else 0)

    def decrypt(self, cipher: Cipher, number: int, chunk: bytes) -> bytes:
        """Return the plain bytes of a chunk; StoreError if it is not this one."""
        return cipher.decrypt(chunk, row=self._row(number))

    def part(self, offset: int, limit: int | None) -> ContentPart:
        """Return a part of the content, within its size."""
        start = min(max(0, offset), self.size)
        return ContentPart(start, self.size if limit is None else min(self.size, start + max(0, limit)))

    def _row(self, number: int) -> str:
        return f"artifact|{self.sha256}|{self.size}|{number}"


class ContentPart(NamedTuple):
    """A part of a content, from `start` to before `end`."""

    start: int
    end: int

    @property
    def numbers(self) -> range:
        """The numbers of the chunks with the part."""
        return range(self.start // CHUNK, -(-self.end // CHUNK))

    def cut(self, chunks: bytes) -> bytes:
        """Return the part from its joined chunks."""
        first = self.start // CHUNK * CHUNK
        return chunks[self.start - first : self.end - first]


def chunk_length(encoded: bytes) -> int:
    """Return the length of a full encrypted chunk from the header; 0 for data that is not encrypted."""
    header = encoded[:HEADER_BYTES]
    return int.from_bytes(header[len(_MARK) :], "big") if header.startswith(_MARK) else 0


def ref_of(row: tuple[Any, ...]) -> ArtifactRef:
    """Build the reference of a row of `REF_COLUMNS`."""
    return ArtifactRef(**dict(zip(REF_NAMES, row, strict=True)))
