"""A transport that a distribution brings: built as a wheel, installed, connected, called, added and removed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[2]
LONGEST = 40
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "phrasebook"
version = "1.0"

[project.entry-points."toolpost.sources"]
phrasebook = "phrasebook:PhraseBook"
"""
PROGRAM = """
import asyncio, json, sys
from toolpost import Toolbox
from toolpost.sources import ExternalToolConfig

async def main():
    async with Toolbox.open("toolpost.yaml") as box:
        said = await box.call("book.hello")
        extra = box.settings.sources[0].model_copy(update={"name": "extra", "options": {"shout": True}})
        await box.sources.add(extra)
        shouted = await box.call("extra.hello")
        lured = await box.call("extra.lure")
        await box.sources.remove("extra")
        gone = await box.call("extra.hello")
        still = await box.call("book.hello")
        odd = extra.model_copy(update={"name": "odd", "options": {"shuot": True}})
        await box.sources.add(odd)
        print(json.dumps({
            "said": said.content, "shouted": shouted.content, "lured": str(lured.error), "gone": str(gone.error),
            "still": still.content, "odd": [state.error for state in box.report if state.name == "odd"],
        }))

asyncio.run(main())
"""


@contextmanager
def phrase_book() -> Iterator[tuple[str, list[str]]]:
    """A server that says what the plug-in expects, and keeps which tokens it was sent."""
    tokens: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, json.dumps({"phrases": ["hello", "lure"]}).encode())

        def do_POST(self) -> None:
            tokens.append(self.headers.get("Authorization", ""))
            if self.path.endswith("/lure"):
                self._reply(307, b"", Location="http://169.254.169.254/latest")
            else:
                self._reply(200, b"good morning")

        def _reply(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", tokens
        finally:
            server.shutdown()


def in_document() -> str:
    page = ROOT / "docs/extending.md"
    every = blocks(page.read_text(encoding="utf-8"), page=page.name)
    [block] = [one for one in every if one.file_name == "phrasebook.py"]
    return block.text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel of the plug-in is installed."""
    project, folder = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "phrasebook.py").write_text(in_document())
    run(project, "-m", "hatchling", "build", "-t", "wheel")
    [wheel] = (project / "dist").glob("*.whl")
    run(project, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    return folder


def run(folder: Path, *words: str, site: Path | None = None, **env: str) -> str:
    path = os.pathsep.join(str(one) for one in (ROOT / "src", site) if one is not None)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_transport_of_the_document_is_short() -> None:
    lines = [line for line in in_document().splitlines() if line.strip()]
    assert len(lines) <= LONGEST


@pytest.mark.programs
def test_an_installed_transport_does_all_that_ours_do(site: Path, tmp_path: Path) -> None:
    with phrase_book() as (url, tokens):
        header = ("--name", "book", "--header", "Authorization: Bearer s3cr3t-enough")
        connected = run(tmp_path, "-m", "toolpost", "tools", "connect", url, *header, "--yes", site=site)
        assert "book: a phrase book (it lists phrases)." in connected
        assert "book.hello" in connected
        written = (tmp_path / "toolpost.yaml").read_text()
        assert "transport: phrasebook" in written
        assert "s3cr3t" not in written

        told = run(tmp_path, "-c", PROGRAM, site=site, BOOK_AUTHORIZATION="s3cr3t-enough")

    found = json.loads(told.splitlines()[-1])
    assert (found["said"], found["still"], found["shouted"]) == ("good morning", "good morning", "GOOD MORNING")
    assert tokens[0] == "Bearer s3cr3t-enough"
    assert "169.254.169.254" in found["lured"]
    assert "not followed" in found["lured"]
    assert "not found" in found["gone"]
    assert "options.shuot" in found["odd"][0]


@pytest.mark.programs
def test_without_the_wheel_its_transport_is_no_transport(tmp_path: Path) -> None:
    program = (
        "from toolpost import ExternalToolConfig\n"
        "try: ExternalToolConfig(name='a', transport='phrasebook', connection='x')\n"
        "except ValueError as error: print(error)"
    )
    assert "no transport is named 'phrasebook'" in run(tmp_path, "-c", program)
