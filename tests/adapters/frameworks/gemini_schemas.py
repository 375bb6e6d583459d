"""A program that reads schemas as Google's SDK does, in its environment; prints how many there were."""

import json
import sys
from pathlib import Path

from google.genai import types


def main(path: Path) -> None:
    schemas = json.loads(path.read_text(encoding="utf-8"))
    for schema in schemas:
        types.Schema.model_validate(schema)  # which forbids what it does not know
    print(len(schemas))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
