"""Writes what is generated from the signatures of the built-in tools: `python -m tools.builtin_specs`."""

import asyncio
import re
from pathlib import Path

from toolpost.builtin.loader import BuiltinParts, Builtins
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.specs import SPECS_FILE, dump_specs
from toolpost.contracts.spec import ToolSpec
from toolpost.stores.memory import MemoryStore

STANDARD = SPECS_FILE.parent / "standard"
_FRONT_MATTER = re.compile(r"\A(?:---\n.*?\n---\n)?", re.DOTALL)


async def main() -> None:
    """Write `specs.json`, and the front matter of each tool's document."""
    store = MemoryStore()
    documents = ProviderSettings(provider="embedded", path=Path("docs.db"))
    builtins = Builtins(BuiltinParts(store=store, retrieve=[documents]))
    specs = [tool.spec for tool in builtins.load_all()]
    SPECS_FILE.write_text(dump_specs(specs), encoding="utf-8")
    for spec in specs:
        path = STANDARD / spec.name / "tool.md"
        path.write_text(_FRONT_MATTER.sub(front_matter(spec), path.read_text(encoding="utf-8")), encoding="utf-8")
    await builtins.close()
    await store.close()


def front_matter(spec: ToolSpec) -> str:
    """Return the facts at the top of a tool's document."""
    return (
        f"---\nname: {spec.name}\nside_effects: {spec.side_effects}\nbudgets:\n  timeout_s: {spec.timeout_s:g}\n---\n"
    )


if __name__ == "__main__":
    asyncio.run(main())
