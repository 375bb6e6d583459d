"""The app of these tests while it runs, manuals for it, and whoever else calls by them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from tests.parts import ROOT, python_of_utcp
from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Toolbox

ORACLE = Path(__file__).with_name("oracle.py")


class App(NamedTuple):
    address: str
    tcp: int
    udp: int

    def publish(self, name: str, document: Any) -> str:
        """Have the app serve a document; gives its address."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        url = f"{self.address}/published/{name}"
        with urlopen(Request(url, data=body, method="PUT")):
            return url

    def expire(self) -> None:
        """Have the app take no token that it gave before."""
        with urlopen(Request(f"{self.address}/expire", method="POST")):
            pass

    def http(self, path: str, **fields: Any) -> dict[str, Any]:
        """The call template of a request to the app."""
        return {"call_template_type": "http", "url": f"{self.address}{path}", **fields}

    def oauth(self, secret: str) -> dict[str, Any]:
        """The auth of a client; the app knows one secret."""
        url = f"{self.address}/token"
        return {"auth_type": "oauth2", "token_url": url, "client_id": "me", "client_secret": secret}

    def websocket(self, **fields: Any) -> dict[str, Any]:
        url = f"{self.address.replace('http', 'ws', 1)}/ws"
        return {"call_template_type": "websocket", "url": url, **fields}


@contextmanager
def running_app() -> Iterator[App]:
    command = [sys.executable, "-m", "tests.sources.utcp.app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield App(**json.loads(process.stdout.readline()))
        finally:
            process.kill()


def tool(name: str, template: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "tool_call_template": template, **fields}


def manual(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"utcp_version": "1.0.1", "manual_version": "1.0.0", "tools": list(tools)}


def cli(*commands: str | dict[str, Any], **fields: Any) -> dict[str, Any]:
    steps = [{"command": one} if isinstance(one, str) else one for one in commands]
    return {"call_template_type": "cli", "commands": steps, **fields}


def source(connection: str | Path | dict[str, Any], **options: Any) -> ExternalToolConfig:
    """A source named `m`; a manual itself is written into the connection."""
    text = json.dumps(connection) if isinstance(connection, dict) else str(connection)
    return ExternalToolConfig(name="m", transport="utcp", connection=text, **options)


def in_file(folder: Path, document: dict[str, Any]) -> Path:
    """A document in a file."""
    path = folder / "manual.json"
    path.write_text(json.dumps(document))
    return path


def toolbox(one: ExternalToolConfig, **more: Any) -> Any:
    return Toolbox(settings=PatientSettings(**{"data_dir": None, "policy": "exploratory", "sources": [one], **more}))


def names(box: Any) -> set[str]:
    return {spec.name for spec in box.registry.specs() if spec.source == "m"}


def asked_of_utcp(config: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """What the packages of UTCP itself find and answer; bytes come as `{"bytes": ...}`."""
    done = subprocess.run(
        [str(python_of_utcp()), str(ORACLE)],
        input=json.dumps({"config": config, "calls": calls}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
