"""Sets the status of every requirement that a test carries to proved: `python -m tools.mark_proved`."""

import re

from tests import requirements


def main() -> None:
    """Rewrite the manifest in place, line by line, so that the diff shows only what changed."""
    carried = requirements.carried()
    before = requirements.MANIFEST.read_text(encoding="utf-8")
    after = "".join(_marked(line, carried) for line in before.splitlines(keepends=True))
    requirements.MANIFEST.write_text(after, encoding="utf-8")
    for id_ in sorted(id_ for id_ in carried if id_ not in requirements.load()):
        print(f"unknown: {id_} in {', '.join(carried[id_])}")
    proved = sum(item.status == "proved" for item in requirements.load().values())
    print(f"requirements proved: {proved}")


def _marked(line: str, carried: dict[str, list[str]]) -> str:
    match = re.match(r"([A-Z0-9]+-\d+) = ", line)
    if match is None or match[1] not in carried:
        return line
    return line.replace('status = "planned"', 'status = "proved"', 1)


if __name__ == "__main__":
    main()
