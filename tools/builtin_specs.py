"""Writes what is generated from the signatures of the built-in tools: `python -m tools.builtin_specs`."""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path

from toolpost.builtin.loader import BuiltinParts, Builtins
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.specs import SPECS_FILE
from toolpost.contracts.spec import ToolSpec
from toolpost.stores.memory.store import MemoryStore

STANDARD = SPECS_FILE.parent / "standard"
_FIELDS = (
    *("name", "description", "category", "input_schema", "output_schema", "model_schema", "side_effects"),
    *("safety", "replay", "timeout_s", "tags", "validate_inputs", "host_argument"),
)
_FRONT_MATTER = re.compile(r"\A(?:---\n.*?\n---\n)?", re.DOTALL)


async def main() -> None:
    """Write `specs.json`, and the front matter of each tool's document."""
    store = MemoryStore()
    documents = ProviderSettings(provider="embedded", path=Path("docs.db"))
    builtins = Builtins(BuiltinParts(store=lambda: store, retrieve=[documents]))
    specs = [tool.spec for tool in builtins.load_all()]
    SPECS_FILE.write_text(dump_specs(specs), encoding="utf-8")
    for spec in specs:
        path = STANDARD / spec.name / "tool.md"
        path.write_text(_FRONT_MATTER.sub(front_matter(spec), path.read_text(encoding="utf-8")), encoding="utf-8")
    await builtins.close()
    await store.close()


def dump_specs(specs: Iterable[ToolSpec]) -> str:
    """Return the text of `specs.json`, one line for each tool."""
    lines = [json.dumps({name: getattr(spec, name) for name in _FIELDS}, separators=(",", ":")) for spec in specs]
    return '{"generated_by": "python -m tools.builtin_specs", "tools": [\n' + ",\n".join(lines) + "\n]}\n"


def front_matter(spec: ToolSpec) -> str:
    """Return the facts at the top of a tool's document."""
    return (
        f"---\nname: {spec.name}\nside_effects: {spec.side_effects}\nbudgets:\n  timeout_s: {spec.timeout_s:g}\n---\n"
    )


if __name__ == "__main__":
    asyncio.run(main())
