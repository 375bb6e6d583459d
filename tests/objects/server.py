"""A SeaweedFS of the tests' own: object storage with the API of S3, in a folder that is thrown away."""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.store import S3Store

from tests.parts import found, reserved_port

KEY, SECRET = "toolpost-test-key", "canary-secret-of-the-bucket"
BUCKET = "artifacts"
PATIENCE_S = 60
_OF_THE_SERVER = ("s3", "master", "volume", "filer")


class NotReadyError(Exception):
    """The server ended, or did not take its first object in time."""


class ObjectStorage(NamedTuple):
    """A server that runs, and its administration."""

    port: int
    master: str
    filer: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process reaches it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    def place(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def names(self, prefix: str, bucket: str = BUCKET) -> list[str]:
        """The objects below a prefix, asked of the server itself."""
        pages = obstore.list(self.store(bucket), prefix)  # pyright: ignore[reportUnknownMemberType] - of Arrow
        return sorted(found["path"] for page in pages for found in page)

    def store(self, bucket: str = BUCKET) -> S3Store:
        return S3Store(
            bucket,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def create_bucket(self, name: str) -> None:
        self._administer(f"s3.bucket.create -name {name}")

    def delete_bucket(self, name: str) -> None:
        self._administer(f"s3.bucket.delete -name {name}")

    def _administer(self, command: str) -> None:
        shell = [str(program()), "shell", f"-master={self.master}", f"-filer={self.filer}"]
        subprocess.run(
            shell, input=f"{command}\nexit\n", text=True, capture_output=True, timeout=PATIENCE_S, check=True
        )


def program() -> Path:
    return found(".parts/objects/bin/weed")


@contextmanager
def running(arguments: Sequence[str] | None = None) -> Generator[ObjectStorage]:
    """A server with one bucket. It does not end within 20 s of SIGTERM, and there is nothing to keep: it is killed.

    With the arguments of a deployment, it takes its credentials from the environment, and makes buckets by itself.
    """
    with tempfile.TemporaryDirectory(prefix="toolpost-objects-") as name, ExitStack() as stack:
        folder = Path(name)
        ports = {part: stack.enter_context(_two_ports()) for part in _OF_THE_SERVER}
        log = stack.enter_context((folder / "log").open("w"))
        given = _own(folder) if arguments is None else [one.replace("=/data", f"={folder}") for one in arguments]
        command = [str(program()), "-logtostderr=true", *given, *_places(ports)]
        variables = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=None if arguments is None else variables
        )
        try:
            master, filer = (f"127.0.0.1:{port}.{grpc}" for port, grpc in (ports["master"], ports["filer"]))
            server = ObjectStorage(ports["s3"][0], master, filer)
            _wait_until_ready(server, process, folder / "log")
            yield server
        finally:
            process.kill()
            process.wait()
            for port in (number for pair in ports.values() for number in pair):
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # which is where it puts its sockets
                    left.unlink()


def _own(folder: Path) -> list[str]:
    """A server whose key may do everything but make buckets."""
    identity = {
        "name": "toolpost",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Read", "Write", "List"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    small = ["-volume.max=0", "-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
    return ["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-s3", f"-s3.config={config}", *small]


def _places(ports: dict[str, tuple[int, int]]) -> list[str]:
    options = [f"-{part}.port={port}" for part, (port, _) in ports.items()]
    options += [f"-{part}.port.grpc={grpc}" for part, (_, grpc) in ports.items()]
    return [*options, "-s3.port.iceberg=0", "-s3.port.lance=0"]  # other services, on ports of their own


def _wait_until_ready(server: ObjectStorage, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
            server.create_bucket(BUCKET)
            obstore.put(server.store(), "ready", b"1", use_multipart=False)
        except (OSError, subprocess.SubprocessError, obstore.exceptions.BaseError):
            time.sleep(0.1)
        else:
            return
    raise NotReadyError(log.read_text(encoding="utf-8", errors="replace")[-2000:])


@contextmanager
def _two_ports() -> Generator[tuple[int, int]]:
    with reserved_port() as one, reserved_port() as two:
        yield one, two
