"""Writes the JSON Schema of toolpost.yaml again after its models changed: `python -m tools.config_schema`."""

import json

from toolpost.configuration.settings import SCHEMA_FILE, file_schema


def main() -> None:
    """Write the file in place."""
    SCHEMA_FILE.write_text(json.dumps(file_schema(), indent=2) + "\n", encoding="utf-8")
    print(f"written: {SCHEMA_FILE.name}")


if __name__ == "__main__":
    main()
