"""Writes what ships of the built-in tools from their code: `python -m tools.builtin_records`."""

import asyncio
import json
from pathlib import Path

from toolpost.builtin.assembly import BuiltinParts, Builtins
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.records import RECORDS, written
from toolpost.stores.memory import MemoryStore

STANDARD = RECORDS.parent / "standard"


async def main() -> None:
    """Write the records of all, and the schema in the folder of each."""
    store = MemoryStore()
    memory = ProviderSettings(provider="embedded", path=Path("docs.db"))
    builtins = Builtins(BuiltinParts(store=store, retrieve=[memory]))
    specs = [tool.spec for tool in builtins.make_all()]
    RECORDS.write_text(written(specs), encoding="utf-8")
    for spec in specs:
        schemas = {"input_schema": spec.model_schema or spec.input_schema, "output_schema": spec.output_schema}
        (STANDARD / spec.name).mkdir(exist_ok=True)
        path = STANDARD / spec.name / "schema.json"
        path.write_text(json.dumps(schemas, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    await builtins.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
