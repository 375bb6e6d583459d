"""Locations of the documents: in the installed package, or in the source code."""

from __future__ import annotations

from pathlib import Path

_FIRST = "quickstart.md"


def document(name: str = _FIRST) -> Path | None:
    """Return the path of a document; None if the installation does not include it."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "documents", package.parents[1] / "docs"):
        if (folder / _FIRST).is_file():  # another project may have a folder of this name
            return folder / name
    return None


def document_hint(name: str = _FIRST) -> str:
    """Return the path of a document as text, or its name if the installation does not include it."""
    return str(document(name) or f"docs/{name} of the source code")
