"""Files of which no test would run, because of `-m` and a mark of the whole file: they are not even imported.

What they import takes seconds, in every worker: browsers, databases, clients of others.
"""

import re
from functools import cache
from pathlib import Path

NEGATIONS = re.compile(r"not \w+(?: and not \w+)*")
STATEMENT = re.compile(r"^pytestmark = (?:.+\n)+", re.MULTILINE)


def unwanted_marks(expression: str) -> frozenset[str]:
    """The marks that `-m` rules out, where it does nothing else."""
    return frozenset(re.findall(r"not (\w+)", expression)) if NEGATIONS.fullmatch(expression) else frozenset()


def is_left_out(path: Path, unwanted: frozenset[str]) -> bool:
    """Whether all tests of a file, or of a folder, have an unwanted mark by `pytestmark`."""
    if path.is_dir():
        files = list(path.rglob("test_*.py"))
        return bool(files) and all(is_left_out(file, unwanted) for file in files)
    return path.name.startswith("test_") and not unwanted.isdisjoint(_marks_of(path))


@cache
def _marks_of(file: Path) -> frozenset[str]:
    statement = STATEMENT.search(file.read_text(encoding="utf-8"))
    return frozenset(re.findall(r"\bpytest\.mark\.(\w+)", statement[0])) if statement else frozenset()
