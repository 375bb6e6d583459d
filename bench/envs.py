"""Environments of peers: made once under bench/.envs, one for each list of requirements."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ENVS = HERE / ".envs"


def environment(name: str) -> Path:
    """The interpreter of an environment; made when it is not there or its requirements have changed."""
    requirements = HERE / "requirements" / f"{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    home = ENVS / f"{name}-{digest}"
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (home / "installed").exists():
        print(f"making the environment of {name} ...", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        _install(home, python, requirements)
        (home / "installed").touch()
    return python


def _install(home: Path, python: Path, requirements: Path) -> None:
    uv = shutil.which("uv")
    venv.create(home, with_pip=uv is None)
    installer = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    subprocess.run([*installer, "--quiet", "--requirement", str(requirements)], check=True, stdout=sys.stderr)
