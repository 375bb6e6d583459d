"""Writes the console's types of the REST API again after the API changed: `python -m tools.console_types`."""

import json
import subprocess
import tempfile
from pathlib import Path

from toolpost.gateway.rest.openapi import OPERATIONS, openapi_document

CONSOLE = Path(__file__).parent.parent / "console"
TYPES = CONSOLE / "src/api/schema.d.ts"
GENERATOR = CONSOLE / "node_modules/.bin/openapi-typescript"


def api_types() -> str:
    """Return the types that openapi-typescript makes of the gateway's own document."""
    with tempfile.TemporaryDirectory() as folder:
        document, types = Path(folder, "openapi.json"), Path(folder, "schema.d.ts")
        document.write_text(json.dumps(openapi_document(OPERATIONS, server="/")), encoding="utf-8")
        # Bare objects as `Record<string, unknown>`: arguments and payloads have any members.
        options = ("--empty-objects-unknown", "--default-non-nullable=false", "--output", str(types))
        command = [str(GENERATOR), str(document), *options]
        subprocess.run(command, cwd=CONSOLE, check=True, capture_output=True)  # noqa: S603 - the generator above
        return types.read_text(encoding="utf-8")


def main() -> None:
    """Write the file in place."""
    TYPES.write_text(api_types(), encoding="utf-8")
    print(f"written: {TYPES.relative_to(CONSOLE.parent)}")


if __name__ == "__main__":
    main()
