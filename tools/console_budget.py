"""What a browser loads first of the console, gzipped: `python -m tools.console_budget [PAGE]`.

The first load of a page is the entry of Vite's manifest with the page's own chunk, everything both import statically,
their styles, and the font. It must be at most 300 KB.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

STATIC = Path(__file__).parent.parent / "src/toolpost/console/static"
LIMIT = 300 * 1024
ENTRY = "index.html"
PAGE = "src/pages/approvals/ApprovalsPage.tsx"
COMPRESSED = {".woff2"}  # Not gzipped again.


class Chunk(TypedDict, total=False):
    """An entry of Vite's manifest."""

    file: str
    imports: list[str]
    css: list[str]
    assets: list[str]


class File(NamedTuple):
    """A file of the first load, and its size as it is sent."""

    name: str
    size: int


def first_load(page: str = PAGE, static: Path = STATIC) -> list[File]:
    """Return the files that a page needs before it shows, the largest first."""
    manifest = cast("dict[str, Chunk]", json.loads((static / ".vite/manifest.json").read_text(encoding="utf-8")))
    names = {ENTRY}
    for key in _reachable(manifest, [ENTRY, page]):
        chunk = manifest[key]
        names.update([chunk["file"], *chunk.get("css", [])])
        names.update(asset for asset in chunk.get("assets", []) if asset.endswith(".woff2"))
    return sorted((File(name, _sent_size(static / name)) for name in names), key=lambda file: -file.size)


def _reachable(manifest: dict[str, Chunk], roots: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        found.add(key)
        waiting.extend(manifest[key].get("imports", []))
    return found


def _sent_size(path: Path) -> int:
    data = path.read_bytes()
    return len(data) if path.suffix in COMPRESSED else len(gzip.compress(data, 9))


def main() -> None:
    """Print the sizes; exit with an error above the limit."""
    page = sys.argv[1] if len(sys.argv) > 1 else PAGE
    files = first_load(page)
    total = sum(file.size for file in files)
    for file in files:
        print(f"{file.size / 1024:8.1f} KB  {file.name}")
    print(f"{total / 1024:8.1f} KB  first load of {page}, at most {LIMIT // 1024} KB")
    if total > LIMIT:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
