"""Build hook of hatchling: puts the documents, the console and a `schema.json` for each built-in tool into the wheel.

The schemas are those of `specs.json`, so that none is kept a second time in the repository. The console is what
`make console` has built; where that is missing and Node is installed, it is built here. `TOOLPOST_CONSOLE` is `auto`,
`skip` (leave it out) or `require` (fail without it). Only the standard library and hatchling are imported here: the
package's own dependencies are not installed while it is built.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILTIN = "toolpost/builtin"
_DOCUMENTS = "toolpost/documents"
_CONSOLE = "toolpost/console/static"
_NODE = (20, 19)
_CONSOLE_STEPS = (("ci", "--ignore-scripts", "--loglevel=error"), ("run", "build"))
_BUILD_LIMIT_S = 600


class SchemaFiles(BuildHookInterface[Any]):
    """Generates the schema files in a temporary folder, which hatchling copies into the wheel."""

    PLUGIN_NAME = "custom"
    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the documents, and one file for each tool; an editable install needs none, because it has the sources."""
        if version == "editable":
            return
        documents = Path(self.root, "docs")
        for page in sorted(documents.rglob("*.md")):
            build_data["force_include"][str(page)] = f"{_DOCUMENTS}/{page.relative_to(documents).as_posix()}"
        add_console(Path(self.root), build_data, self.app.display_warning)
        self._folder = Path(tempfile.mkdtemp(prefix="toolpost-schemas-"))
        specs = Path(self.root, "src", _BUILTIN, "specs.json")
        for tool in json.loads(specs.read_text(encoding="utf-8"))["tools"]:
            schemas = {
                "input_schema": tool["model_schema"] or tool["input_schema"],
                "output_schema": tool["output_schema"],
            }
            path = self._folder / f"{tool['name']}.json"
            path.write_text(json.dumps(schemas, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            build_data["force_include"][str(path)] = f"{_BUILTIN}/standard/{tool['name']}/schema.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def add_console(root: Path, build_data: dict[str, Any], warn: Callable[[str], object]) -> None:
    """Add the built console to a wheel; build it first where it is missing and Node is installed."""
    wish = os.environ.get("TOOLPOST_CONSOLE", "auto")
    if wish not in {"auto", "skip", "require"}:
        raise ValueError(f"TOOLPOST_CONSOLE is {wish!r}: it must be auto, skip or require")
    if wish == "skip":
        return
    static, sources = root / "src" / _CONSOLE, root / "console"
    if not (static / "index.html").is_file() and (sources / "package-lock.json").is_file():
        _build_console(sources, warn)
    if (static / "index.html").is_file():
        build_data["artifacts"].append(f"/src/{_CONSOLE}")  # Git ignores it.
    elif wish == "require":
        raise RuntimeError("the console is not built: run `make console`, which needs Node 20.19 or newer")
    else:
        warn("this wheel has no console: run `make console` first, which needs Node 20.19 or newer")


def _build_console(sources: Path, warn: Callable[[str], object]) -> None:
    """Build the console with npm; without a Node that is new enough, do nothing."""
    npm = shutil.which("npm")
    if npm is None or _node_version() < _NODE:
        return
    for step in _CONSOLE_STEPS:
        done = subprocess.run([npm, *step], cwd=sources, check=False, timeout=_BUILD_LIMIT_S)  # noqa: S603 - npm of this machine
        if done.returncode:
            warn(f"`npm {' '.join(step)}` failed in {sources}")
            return


def _node_version() -> tuple[int, ...]:
    node = shutil.which("node")
    if node is None:
        return ()
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603 - the same
    return tuple(int(part) for part in done.stdout.strip().lstrip("v").split(".")[:2] if part.isdigit())
