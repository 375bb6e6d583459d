"""Run tests on each installed PostgreSQL, in place of SQLite: `python -m tools.postgres_tests [PYTEST OPTION...]`."""

import subprocess
import sys

from tests.postgres.server import installed

SUITES = ("tests/postgres", "tests/life_of_a_call", "tests/gateway", "tests/agents")
WANTED = (15, 16, 18)


def main() -> int:
    """Return 1 if tests of a version fail, or if a version is missing."""
    versions = sorted(installed())
    missing = [version for version in WANTED if version not in versions]
    failed = [version for version in versions if not _passes(version)]
    for version in versions:
        print(f"PostgreSQL {version}: {'failed' if version in failed else 'passed'}")
    for version in missing:
        print(f"PostgreSQL {version}: NOT TESTED, it is not installed")
    return bool(failed or missing)


def _passes(version: int) -> bool:
    print(f"PostgreSQL {version}", flush=True)
    options = ["--store", "postgres", "--postgres-version", str(version), "--dist=worksteal", "-q", *sys.argv[1:]]
    command = [sys.executable, "-m", "pytest", *SUITES, *options]
    return subprocess.run(command, check=False).returncode == 0  # noqa: S603 - its own arguments


if __name__ == "__main__":
    sys.exit(main())
