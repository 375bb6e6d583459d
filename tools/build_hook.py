"""Build hook of hatchling: puts the documents into the wheel, and a `schema.json` for each built-in tool.

The schemas are those of `specs.json`, so that none is kept a second time in the repository. Only the standard library
and hatchling are imported here: the package's own dependencies are not installed while it is built.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILTIN = "toolpost/builtin"
_DOCUMENTS = "toolpost/documents"


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
