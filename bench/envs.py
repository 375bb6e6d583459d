"""Environments of peers: made once under bench/.envs, one for each list of requirements."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent


def environment(name: str, *, root: Path = HERE) -> Path:
    """The interpreter of an environment, which is made when it is not there."""
    home = home_of(name, root=root)
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (home / "installed").exists():
        print(f"making the environment of {name} ...", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        _install(home, python, _requirements(name, root))
        (home / "installed").touch()
    return python


def node_program(name: str, *, root: Path = HERE) -> Path:
    """The command of a package of Node, which is installed when it is not there."""
    manifest = root / "requirements" / f"{name}.json"
    home = root / ".envs" / f"{name}-{hashlib.sha256(manifest.read_bytes()).hexdigest()[:12]}"
    if not (home / "installed").exists():
        print(f"installing {name} ...", file=sys.stderr, flush=True)
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(manifest, home / "package.json")
        command = [shutil.which("npm") or "npm", "install", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=home, check=True, stdout=sys.stderr)
        (home / "installed").touch()
    return home / "node_modules" / ".bin" / name


def home_of(name: str, *, root: Path = HERE) -> Path:
    """Where an environment lives: elsewhere for other requirements and for another Python."""
    digest = hashlib.sha256(_requirements(name, root).read_bytes() + sys.version.encode()).hexdigest()[:12]
    return root / ".envs" / f"{name}-{digest}"


def _requirements(name: str, root: Path) -> Path:
    return root / "requirements" / f"{name}.txt"


def _install(home: Path, python: Path, requirements: Path) -> None:
    venv.create(home)
    uv, pip = shutil.which("uv"), [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    installer = [uv, "pip", "install", "--python", str(python)] if uv else [*pip, "--python", str(python), "install"]
    subprocess.run([*installer, "--quiet", "--requirement", str(requirements)], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(environment(wanted))
