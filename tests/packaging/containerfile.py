"""`python containerfile.py SOURCES ROOT`: carry out the steps of the Containerfile in a root folder, and tell.

It runs in namespaces of its own (`unshare --mount --net --pid`). Where the base image has Python, the root folder has
this interpreter and its packages, so that nothing is downloaded; every instruction is the Containerfile's. The stage of
Node is left out, because npm downloads: what `make console` has built takes its place.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

SYSTEM = ("/usr", "/proc", "/dev")
LINKS = ("/bin", "/lib", "/lib64", "/sbin")
CONFIG = "data_dir: /data\nbuiltins: [data_tools]\nserver: {public_url: 'http://127.0.0.1:7300'}\n"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
STARTED_S = 120.0


class Step(NamedTuple):
    """An instruction and what follows it."""

    name: str
    text: str


def read_steps(text: str) -> list[Step]:
    """Return the instructions in order, but for the stage of Node; a line that ends with a backslash goes on."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    steps = [Step(*line.split(None, 1)) for line in joined]
    stages = [at for at, step in enumerate(steps) if step.name == "FROM"]
    left_out = next(at for at in stages if steps[at].text.startswith("node:"))
    following = next(at for at in stages if at > left_out)
    return steps[:left_out] + steps[following:]


class Image:
    """What the steps have made so far: a root folder, and how programs run in it."""

    def __init__(self, sources: Path, root: Path) -> None:
        self.sources = sources
        self.root = root
        packages = ":".join(path for path in sys.path if path.endswith("site-packages"))
        self.env = {"PATH": f"{sys.prefix}/bin:/usr/sbin:/usr/bin", "PYTHONPATH": packages}
        self.folder, self.user = "/", "root"
        self.said: dict[str, str] = {}
        self._make_root()

    def _make_root(self) -> None:
        shutil.copytree("/etc", self.root / "etc", symlinks=True, ignore_dangling_symlinks=True)
        for folder in ("tmp", "opt"):
            (self.root / folder).mkdir()
        (self.root / "tmp").chmod(0o1777)
        for link in LINKS:
            if Path(link).is_symlink():
                (self.root / link[1:]).symlink_to(Path(link).readlink())
        for shown in dict.fromkeys([*SYSTEM, sys.base_prefix, sys.prefix]):
            place = self.root / shown[1:]
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--rbind", shown, str(place)], check=True)

    def take(self, step: Step) -> None:
        """Carry out one step."""
        match step.name:
            case "FROM":
                self.folder, self.user = "/", "root"
            case "WORKDIR":
                self.folder = step.text
                (self.root / step.text[1:]).mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(shlex.split(step.text))
            case "RUN":
                self.run(["sh", "-ec", step.text], env=OFFLINE)
            case "ENV":
                for pair in shlex.split(step.text):
                    name, _, value = pair.partition("=")
                    self.env[name] = value.replace("$PATH", self.env["PATH"])
            case "USER":
                self.user = step.text
            case "ENTRYPOINT" | "CMD" | "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "HEALTHCHECK":
                self.said[step.name] = step.text.rpartition("CMD ")[2]
            case _:
                raise ValueError(f"nobody knows the step {step.name}")

    def _copy(self, words: list[str]) -> None:
        if words[0] == "--from=console":
            words = [words[1].removeprefix("/console/"), words[2]]
        if words[0].startswith("--from="):  # both stages have the same root here
            assert words[1] == words[2]
            assert (self.root / words[1][1:]).is_dir()
            return
        *given, into = words
        place = self.root / Path(self.folder, into).as_posix()[1:]
        for name in given:
            source = self.sources / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, place, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy(source, place)

    def command(self, words: list[str]) -> list[str]:
        """Return how a command runs in the root folder, as its user and without capabilities."""
        inside = ["chroot", str(self.root), "env", "-i", "-C", self.folder]
        if self.user == "root":
            return [*inside, *words]
        user, _, group = self.user.partition(":")
        as_user = ["setpriv", f"--reuid={user}", f"--regid={group or user}", "--init-groups", "--no-new-privs"]
        return [*inside, *as_user, "--bounding-set=-all", "--inh-caps=-all", *words]

    def start(self, words: list[str], *, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start a command; `env -i` hides what is set outside."""
        settings = [f"{name}={value}" for name, value in {**self.env, **(env or {})}.items()]
        whole = self.command(words)
        at = whole.index("-C") + 2
        piped = subprocess.PIPE
        return subprocess.Popen([*whole[:at], *settings, *whole[at:]], stdout=piped, stderr=piped, text=True)

    def run(self, words: list[str], *, env: dict[str, str] | None = None, check: bool = True) -> tuple[int, str]:
        """Run a command; return its code and what it wrote."""
        process = self.start(words, env=env)
        out, err = process.communicate()
        if check and process.returncode:
            raise RuntimeError(f"{words} ended with {process.returncode}: {out}{err}")
        return process.returncode, out + err


def try_out(image: Image) -> dict[str, Any]:
    """Run the image as its documentation says, and return what was seen."""
    (image.root / "etc/toolpost/toolpost.yaml").write_text(CONFIG)
    entry, command, health = (json.loads(image.said[name]) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    refused = image.run([*entry, *command], check=False)
    image.run([*entry, "keys", "create", "team", "--for", "acme:team"])
    ill, _ = image.run(health, check=False)
    gateway = image.start([*entry, *command])
    until = time.monotonic() + STARTED_S
    while image.run(health, check=False)[0] and gateway.poll() is None:
        assert time.monotonic() < until
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines())
    data = image.root / "data"
    seen = {
        "refused": refused,
        "health_before": ill,
        "health": image.run(health, check=False)[0],
        "module": image.run(["python", "-c", "import toolpost; print(toolpost.__file__)"])[1],
        "uid": int(status["Uid"].split()[0]),
        "capabilities": int(status["CapEff"], 16),
        "no_new_privileges": status["NoNewPrivs"],
        "data": [data.stat().st_uid, oct(data.stat().st_mode & 0o777)],
        "token": oct((data / "token").stat().st_mode & 0o777),
        "writable": image.run(["sh", "-c", "touch /etc/toolpost/x /opt/toolpost/x"], check=False)[0] == 0,
        "volume": json.loads(image.said["VOLUME"]),
    }
    gateway.send_signal(getattr(signal, image.said["STOPSIGNAL"]))
    gateway.communicate()
    return {**seen, "ended": gateway.returncode}


def raise_loopback() -> None:
    """Turn on the loopback interface of this network namespace."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


def main() -> None:
    os.umask(0o022)
    raise_loopback()
    image = Image(Path(sys.argv[1]), Path(sys.argv[2]))
    for step in read_steps((image.sources / "packaging/Containerfile").read_text()):
        image.take(step)
    print(json.dumps(try_out(image)))


if __name__ == "__main__":
    main()
