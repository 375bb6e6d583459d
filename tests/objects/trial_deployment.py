"""The deployment of packaging/deploy as processes: gateway, worker, PostgreSQL and object storage, by its own files."""

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.program import child_environment
from tests.objects.server import SECRET, ObjectStorage, running
from tests.packaging.test_deployment_files import DEPLOY, VALUES, compose, of_kind
from tests.parts import reserved_port
from tests.postgres.server import PASSWORD, PostgreSQL

pytestmark = pytest.mark.programs

PATIENCE_S = 60
LARGE = "the quick brown fox " * 5_000


def command_of(workload: str) -> list[str]:
    """The arguments of a manifest."""
    [container] = of_kind("StatefulSet")[workload]["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


@contextmanager
def started(arguments: list[str], folder: Path, environment: dict[str, str]) -> Generator["subprocess.Popen[str]"]:
    log = (folder / f"{arguments[0]}.log").open("w")
    command = [sys.executable, "-m", "toolpost", *arguments]
    with log, subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "toolpost", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def wait_until_ready(url: str, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if httpx2.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.1)
        assert time.monotonic() < deadline, (folder / "up.log").read_text()


def configured(folder: Path, name: str, postgres_url: str, postgres: PostgreSQL) -> Path:
    """The folder of a pod, with the configuration of the deployment at other addresses."""
    place = folder / name
    (place / "data").mkdir(parents=True)
    database = postgres_url.partition("?")[0].rpartition("/")[2]
    text = (DEPLOY / "toolpost.yaml").read_text(encoding="utf-8")
    changes = {
        "data_dir: /data": "data_dir: ./data",
        "//toolpost:": "//postgres:",
        "@postgres:5432/toolpost": f"@127.0.0.1:{postgres.port}/{database}",
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (place / "toolpost.yaml").write_text(text, encoding="utf-8")
    return place


def variables(storage: ObjectStorage, url: str) -> dict[str, str]:
    names = compose()["services"]["gateway"]["environment"]
    values = {**VALUES, **storage.environment, "DB_PASSWORD": PASSWORD, "PUBLIC_URL": url}
    return {name: values[name] for name in names}


def test_the_deployment_runs_by_its_own_files(tmp_path: Path, postgres: PostgreSQL, postgres_url: str) -> None:
    with ExitStack() as stack:
        storage = stack.enter_context(running(command_of("objects")))
        port = stack.enter_context(reserved_port())
        url = f"http://127.0.0.1:{port}"
        environment = child_environment(**variables(storage, url))
        folders = {name: configured(tmp_path, name, postgres_url, postgres) for name in ("gateway", "worker")}
        worker = stack.enter_context(started(command_of("toolpost-worker"), folders["worker"], environment))
        key = run(["keys", "create", "team", "--for", "acme:team"], folders["worker"], environment)
        arguments = [str(port) if one == "7300" else one for one in command_of("toolpost-gateway")]
        gateway = stack.enter_context(started(arguments, folders["gateway"], environment))
        wait_until_ready(url, folders["gateway"])
        bearer = {"Authorization": f"Bearer {key['key']}"}
        with httpx2.Client(base_url=url, headers=bearer, trust_env=False, timeout=PATIENCE_S) as http:
            reply = http.post("/api/v1/artifacts?name=large.txt", content=LARGE.encode())
            assert reply.status_code == 201, reply.text
            stored = reply.json()
            read = http.get(f"/api/v1/artifacts/{stored['id']}/content").text
            called = http.post("/api/v1/calls", json={"tool": "json_parse", "arguments": {"text": "[1]"}}).json()
        objects = storage.names("", "toolpost")
        backup = run(["db", "backup", str(tmp_path / "backup.zip")], folders["gateway"], environment)
        checked = run(["db", "check"], folders["worker"], environment)
        for process in (gateway, worker):
            process.terminate()
        ended = [process.wait(PATIENCE_S) for process in (gateway, worker)]

    assert read == LARGE
    assert called["status"] == "completed"
    assert len(objects) == 1
    assert objects[0].startswith("artifacts/")
    assert (backup["contents"], backup["missing"]) == (1, [])
    assert checked["status"] == "ok"
    assert ended == [0, 0]
    logs = "".join((folders[name] / log).read_text() for name, log in (("gateway", "up.log"), ("worker", "worker.log")))
    assert not [
        secret for secret in (SECRET, PASSWORD, VALUES["TOOLPOST_KEY"], VALUES["TOOLPOST_TOKEN"]) if secret in logs
    ]
