"""Installs n8n from npm into a folder of its own; that takes minutes and 1.8 GB, so it is done once."""

import json
import re
from pathlib import Path

from tools.n8n.commands import run

VERSION = "1.123.81"  # the last for Node 20
_OLDEST, _NEWEST = (20, 19), 24
_PACKAGE = {
    "name": "n8n-under-test",
    "version": "1.0.0",
    "private": True,
    "dependencies": {"n8n": VERSION},
    # n8n asks for a copy of xlsx that is not on npm.
    "overrides": {"xlsx": "0.18.5"},
}


async def installed(folder: Path) -> None:
    """Make sure that n8n is there, in the version that is wanted."""
    mark = folder / ".installed"
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() == VERSION:
        return
    await _check_node()
    print(f"installing n8n {VERSION} into {folder}; this takes some minutes", flush=True)
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs
    (folder / "package.json").write_text(json.dumps(_PACKAGE), encoding="utf-8")
    # Scripts are left out, because one of an optional engine does not compile everywhere; the database needs its own.
    await run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", folder=folder)
    await run("npm", "rebuild", "sqlite3", "--loglevel=error", folder=folder)
    mark.write_text(VERSION, encoding="utf-8")


async def _check_node() -> None:
    told = await run("node", "--version", folder=Path.cwd())
    found = re.match(r"v(\d+)\.(\d+)", told)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < _OLDEST or version[0] > _NEWEST:
        wanted = f"{_OLDEST[0]}.{_OLDEST[1]} to {_NEWEST}"
        raise SystemExit(f"n8n {VERSION} wants Node {wanted}, and this is {told.strip()}; put one on the PATH")
