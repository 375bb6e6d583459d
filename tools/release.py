"""Build the distributions of a release into dist/ and test them: `python -m tools.release`.

Checks the changelog, builds the sdist and the wheel, installs the wheel into a new environment, writes the SBOM of that
environment and of the npm packages in the console, and runs the quick tests against the installed package.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tools.console_packages import add_to_sbom

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
ENVIRONMENT = ROOT / ".parts" / "release"
REQUIRED_FILES = {
    "toolpost/console/static/THIRD_PARTY_LICENSES",
    "toolpost/console/static/index.html",
    "toolpost/configuration/toolpost.schema.json",
    "toolpost/documents/quickstart.md",
    "toolpost/documents/sources/mcp.md",
    "toolpost/py.typed",
}
EXTRAS = (
    "arrow,dev,gateway,graphql,http,keyring,langchain,mcp,oauth,objects,postgres,scale,search,testing,"
    "websocket,workflow"
)
BUILD_TOOLS = ("hatchling", "cyclonedx-bom")


def main() -> None:
    """Build, check and test; exit with the failing command's code."""
    version = project_version()
    check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(ENVIRONMENT))
    python = str(ENVIRONMENT / "bin" / "python")
    install = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", "constraints.txt")
    _run(*install, *BUILD_TOOLS)
    _run(python, "-m", "hatchling", "build", "-d", str(DIST), env={"TOOLPOST_CONSOLE": "require"})
    wheel = next(DIST.glob("*.whl"))
    check_wheel(wheel)
    _run(*install, f"{wheel}[{EXTRAS}]")
    sbom = DIST / f"toolpost-{version}.cdx.json"
    _run(python, "-m", "cyclonedx_py", "environment", "--output-file", str(sbom), python)
    add_to_sbom(sbom)
    # Outside of src: the tests import the package that was installed.
    _run(python, "-m", "pytest", "-q", "-n", "2", "-m", "not programs and not slow and not waits", env={"CI": "1"})
    print(f"built and tested: {', '.join(sorted(path.name for path in DIST.iterdir()))}")


def project_version() -> str:
    """Return the version of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def check_changelog(text: str, version: str) -> None:
    """Exit if the changelog has no entry for the version, or an empty one."""
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise SystemExit(f"CHANGELOG.md does not describe {version}: add a section '## {version}' with its changes")


def check_wheel(wheel: Path) -> None:
    """Exit if a file is missing in the wheel that the installed package needs."""
    with zipfile.ZipFile(wheel) as archive:
        missing = REQUIRED_FILES - set(archive.namelist())
    if missing:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}")


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}, check=False)  # noqa: S603 - commands above
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
