"""Take the pictures of the web console for docs/console.md: `python -m tools.console_pictures [PAGE]`.

The browser tests of the pages take them, of a real gateway. Those that the documentation shows are reduced to 256
colors, which makes them smaller, and kept in docs/images/console.
"""

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parent.parent / "docs/images/console"
TESTS = "tests/browser/console/trial_pages.py"
KEPT = {
    *("now", "approvals", "runs", "run", "tool", "tool-safety", "sources", "source", "source-add", "accounts"),
    *("insight", "audit", "settings", "keys", "policy", "sessions", "webhooks", "about", "sign-in", "tools"),
}
# The number of colors that are kept, the most frequent first, and the squared distance of two of them: grounds differ
# little, and a rare color, such as that of a red dot, is kept if it differs much.
STEPS = ((128, 2 * 2), (128, 15 * 15))
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _PALETTE, _RGBA = 2, 3, 6

Pixels = npt.NDArray[np.uint8]


def main() -> int:
    """Run the tests that take the pictures, then compress and select them."""
    pages = ["-k", sys.argv[1]] if len(sys.argv) > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", TESTS, *pages]
    status = subprocess.run(command, check=False, env={**os.environ, "TOOLPOST_SHOTS": "1"}).returncode  # noqa: S603 - ours
    for picture in sorted(FOLDER.glob("*.png")):
        if picture.stem.rpartition("-")[0] not in KEPT:
            picture.unlink()
            continue
        compress(picture)
        print(f"{picture.stat().st_size / 1024:7.1f} KB  {picture.name}")
    return status


def compress(picture: Path) -> None:
    """Reduce a picture to 256 colors, unless it has a palette already."""
    data = picture.read_bytes()
    chunks = list(_chunks(data))
    width, height, _, kind, *_ = struct.unpack(">IIBBBBB", chunks[0][1])
    if kind == _PALETTE:
        return
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    pixels = _unfilter(raw, width, height, {_RGB: 3, _RGBA: 4}[kind])
    palette, indexes = _reduce(pixels[:, :, :3])
    rows = np.hstack([np.zeros((height, 1), np.uint8), indexes]).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    picture.write_bytes(_SIGNATURE + b"".join(_chunk(name, body) for name, body in parts))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += size + 12


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _unfilter(raw: bytes, width: int, height: int, depth: int) -> Pixels:
    """Undo the filters of the rows (PNG, section 9)."""
    stride = width * depth
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride + 1)
    found = np.zeros((height + 1, width, depth), np.uint8)
    for number, row in enumerate(rows, 1):
        above, body = found[number - 1], row[1:].reshape(width, depth)
        match row[0]:
            case 0:
                found[number] = body
            case 1:
                found[number] = np.add.accumulate(body, axis=0, dtype=np.uint8)
            case 2:
                found[number] = body + above
            case _:
                found[number] = _by_pixel(int(row[0]), body, above)
    return found[1:]


def _by_pixel(kind: int, body: Pixels, above: Pixels) -> list[list[int]]:
    """Undo a filter by which each pixel depends on the one before it: 3 is the average, 4 is Paeth's."""
    depth = body.shape[1]
    left, corner = [0] * depth, [0] * depth
    found: list[list[int]] = []
    for now, up in zip(body.tolist(), above.tolist(), strict=True):
        guess = [(a + b) // 2 for a, b in zip(left, up, strict=True)]
        if kind == 4:
            guess = [_paeth(a, b, c) for a, b, c in zip(left, up, corner, strict=True)]
        left = [(value + base) % 256 for value, base in zip(now, guess, strict=True)]
        corner = up
        found.append(left)
    return found


def _paeth(left: int, above: int, corner: int) -> int:
    at = left + above - corner
    return min((abs(at - left), 0, left), (abs(at - above), 1, above), (abs(at - corner), 2, corner))[2]


def _reduce(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """Return the most frequent colors that differ enough, and for each pixel the nearest of them."""
    height, width, _ = pixels.shape
    colors, which, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    palette = _palette(colors[np.argsort(-counts)])
    far = colors.astype(np.int32)[:, None] - palette.astype(np.int32)[None]
    nearest = (far * far).sum(axis=2).argmin(axis=1).astype(np.uint8)
    return palette, nearest[which.reshape(-1)].reshape(height, width)


def _palette(colors: Pixels) -> Pixels:
    """Return the first of these colors that differ enough, in two steps."""
    kept = list[npt.NDArray[np.int32]]()
    for count, nearest in STEPS:
        left = colors.astype(np.int32)
        for color in kept:
            left = left[((left - color) ** 2).sum(axis=1) > nearest]
        most = len(kept) + count
        while len(left) and len(kept) < most:
            kept.append(left[0])
            left = left[((left - left[0]) ** 2).sum(axis=1) > nearest]
    return np.array(kept, np.uint8)


if __name__ == "__main__":
    sys.exit(main())
