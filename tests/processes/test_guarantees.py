"""What holds for every program that Toolpost starts, whether it is a server or a command."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.processes.subjects import (
    CHILDREN,
    GONE_WITHIN_S,
    SUBJECTS,
    Server,
    Subject,
    below,
    child,
    control_groups_of,
    executable,
    marked,
    running,
    shell,
    survivors,
)
from toolpost.contracts.errors import ToolConnectionError
from toolpost.processes.launch import INHERITED, Launch, child_environment
from toolpost.processes.network_variables import NETWORK_VARIABLES
from toolpost.processes.sandbox import sandbox_report

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the walk through /proc and its signals are Linux's"),
    pytest.mark.programs,
]

Begin = Callable[..., Awaitable[Subject]]


@pytest.fixture(params=[*SUBJECTS])
def kind(request: pytest.FixtureRequest) -> str:
    """What the program is started as."""
    return str(request.param)


@pytest.fixture
async def begin(kind: str) -> AsyncIterator[Begin]:
    """Start a program; it is closed after the test."""
    async with AsyncExitStack() as after:

        async def start(launch: Launch, *, stdin: bytes = b"") -> Subject:
            subject = await SUBJECTS[kind].begin(launch, stdin=stdin)
            after.push_async_callback(subject.close)
            return subject

        yield start


@pytest.fixture(params=["with control groups", "without control groups"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without control groups":
        monkeypatch.setattr("toolpost.processes.sandbox._MOUNTS", Path(os.devnull))
    elif not sandbox_report().cgroup_kill:
        pytest.skip("this machine lets nobody make a control group")


async def family(begin: Begin, grandchild: str, stdin: bytes = b"") -> tuple[Subject, list[int]]:
    """A program that does not end by itself, with a grandchild, and the pids of both."""
    subject = await begin(child("family", grandchild), stdin=stdin)
    return subject, [int((await subject.line()).split()[1]) for _ in range(2)]


# ---------------------------------------------------------------- what it is given


async def test_words_folder_and_environment_arrive_untouched(begin: Begin, tmp_path: Path) -> None:
    words = ("two words", "it's", 'a "quote"', "$HOME `id` *; rm", "", "--", "line\nbreak", "ünï", "\udcff")
    launch = child("report", *words, GIVEN="for you")

    subject = await begin(Launch(argv=launch.argv, env=launch.env, cwd=str(tmp_path)))

    facts = json.loads(await subject.line())
    assert tuple(facts["arguments"]) == words
    assert facts["folder"] == str(tmp_path.resolve())
    assert facts["environment"]["GIVEN"] == "for you"
    own = {"LC_CTYPE", "TOOLPOST_STARTED_BY"}  # set by Python itself, and by the host, which finds its orphans by it
    assert set(facts["environment"]) <= {*INHERITED, *NETWORK_VARIABLES, "GIVEN", *own}


async def test_no_secret_of_the_host_reaches_a_program_and_none_of_a_program_what_is_above_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret-of-the-host")
    subject = await begin(child("family", "group", TOKEN="s3cret-of-the-program"))
    pids = [int((await subject.line()).split()[1]) for _ in range(2)]

    seen = [Path(f"/proc/{pid}/environ").read_text() for pid in pids]
    above = [Path(f"/proc/{pid}/environ").read_text() for pid in subject.supervisors()]

    assert all("s3cret-of-the-program" in one for one in seen)
    assert "s3cret-of-the-host" not in "".join(seen)
    assert "s3cret" not in "".join(above)


def _ignored_here() -> int:
    """What whoever started this program wanted ignored, as a shell does for its background jobs."""
    return int(Path("/proc/self/status").read_text().partition("SigIgn:")[2].split()[0], 16)


async def test_a_program_gets_a_session_three_descriptors_and_plain_signals(begin: Begin) -> None:
    await begin(child("echo"))  # descriptors of another one must not reach it

    facts = json.loads(await (await begin(child("report"))).line())

    python_ignores = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    libc_ignores = 0b11 << 31  # 32 and 33 are the C library's own: its posix_spawn ignores them, nobody can undo that
    assert facts["descriptors"] == [0, 1, 2]
    assert facts["ignored"] & ~(python_ignores | libc_ignores | _ignored_here()) == 0
    assert facts["session"]


# ---------------------------------------------------------------- what cannot be started


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no-such-command", r"'no-such-command' was not found; install it, or check that PATH contains its folder\."),
        ("./missing", r"'\./missing' was not found; install it, or check its path\."),
        ("plain", r"'plain' cannot be started: '.*/plain' is not an executable file; check its mode\."),
        ("folder", r"'folder' cannot be started: '.*/folder' is not an executable file"),
        ("orphaned", r"'orphaned' could not be started: the interpreter in its first line is missing"),
        ("shapeless", r"'shapeless' could not be started: it is not a program for this machine"),
        ("nul\0", r"was not found"),
        ("x" * 300, r"was not found"),
        ("", r"No command is given"),
    ],
)
async def test_a_program_that_cannot_run_is_named_with_what_to_do(
    begin: Begin, name: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    executable(tmp_path, "plain", "#!/bin/sh\n", 0o644)
    executable(tmp_path, "orphaned", "#!/no/such/interpreter\n")
    executable(tmp_path, "shapeless", "exit 0\n")
    launch = Launch(argv=(name, "argument"), env={"PATH": str(tmp_path), "TOKEN": "s3cret"}, cwd=str(tmp_path))

    with pytest.raises(ToolConnectionError, match=says) as raised:
        await (await begin(launch)).exit_code()

    assert (raised.value.sent, raised.value.is_retryable) == (False, False)
    assert "s3cret" not in str(raised.value)


async def test_a_folder_that_is_not_there_is_named(begin: Begin) -> None:
    launch = Launch(argv=("cat",), env=child_environment({}), cwd="/no/such/folder")

    with pytest.raises(
        ToolConnectionError, match=r"'cat' cannot run in '/no/such/folder': .*; correct `cwd`"
    ) as raised:
        await (await begin(launch)).exit_code()

    assert raised.value.sent is False


@pytest.mark.parametrize(
    ("argument", "extra"), [("nul\0", {}), ("", {"A=B": "c"}), ("", {"": "c"}), ("", {"A": "\0"}), ("\ud800", {})]
)
async def test_what_no_process_can_be_given_is_refused(begin: Begin, argument: str, extra: dict[str, str]) -> None:
    with pytest.raises(ToolConnectionError, match=r"'cat' cannot be started: .* cannot be passed to a process"):
        await (await begin(Launch(argv=("cat", argument), env=child_environment(extra)))).exit_code()


async def test_a_program_is_looked_for_on_its_own_path(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    executable(tmp_path, "greet", "#!/bin/sh\necho $0\n")

    subject = await begin(Launch(argv=("greet",), env={"PATH": "closed:/no/such/folder:."}, cwd=str(tmp_path)))

    assert Path(await subject.line()) == tmp_path / "greet"


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize("code", [0, 3])
async def test_a_program_that_exits_is_seen_with_its_code(begin: Begin, code: int) -> None:
    assert await (await begin(shell(f"exit {code}"))).exit_code() == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGINT])
async def test_a_program_that_a_signal_killed_has_that_signals_negative_number(begin: Begin, number: int) -> None:
    assert await (await begin(shell(f"ulimit -c 0; kill -{number:d} $$"))).exit_code() == -number


async def test_a_flood_of_stderr_neither_blocks_nor_grows(begin: Begin) -> None:
    before = psutil.Process().memory_info().rss
    subject = await begin(child("flood", "50"))

    assert await subject.line() == "done"

    stderr = await subject.stderr()
    assert stderr.endswith("xxx\ufffd last word")
    assert len(stderr) <= 64 * 1024
    assert psutil.Process().memory_info().rss - before < 20 * 2**20


@pytest.mark.parametrize("grandchild", ["group", "session", "daemon"])
@pytest.mark.usefixtures("machine")
async def test_its_owner_ends_a_program_that_ignores_everything_and_its_grandchild(
    begin: Begin, grandchild: str
) -> None:
    subject, pids = await family(begin, grandchild)

    async with asyncio.timeout(GONE_WITHIN_S):
        await subject.end()

    assert survivors(pids, within_s=0) == []


async def test_a_program_that_heeds_a_request_to_end_may_tidy_up(begin: Begin, tmp_path: Path) -> None:
    launch = shell("trap 'echo tidy > done; exit 0' TERM; echo up; sleep 60 & wait")
    subject = await begin(Launch(argv=launch.argv, env=launch.env, cwd=str(tmp_path)))
    await subject.line()

    await subject.end()

    assert (tmp_path / "done").read_text() == "tidy\n"


async def test_what_a_program_leaves_behind_ends_with_it(begin: Begin) -> None:
    subject, pids = await family(begin, "left", stdin=b"exit\n")

    assert await subject.exit_code() == 3
    assert survivors(pids, within_s=0) == []


@pytest.mark.parametrize("how", ["group", "session"])
async def test_a_program_that_forks_and_leaves_for_ever_is_caught(begin: Begin, how: str) -> None:
    mark = uuid.uuid4().hex

    subject = await begin(child("hydra", how, mark))  # Its first head is gone at once.

    assert await subject.line() == "up"
    assert await subject.exit_code() == 0
    assert survivors(marked(mark), within_s=0) == []


async def test_orphans_that_end_in_the_meantime_are_reaped(begin: Begin) -> None:
    subject = await begin(shell("(sleep 0 & sleep 0 & sleep 0 &); echo up; exec sleep 60"))
    await subject.line()

    worker = psutil.Process(subject.supervisors()[1])
    deadline = time.monotonic() + GONE_WITHIN_S
    while len(worker.children()) > 1 and time.monotonic() < deadline:
        await asyncio.sleep(0.01)

    assert [one.name() for one in worker.children(recursive=True)] == ["sleep"]


async def test_two_programs_end_each_with_its_own(begin: Begin) -> None:
    (one, ones), (_, others) = [await family(begin, "daemon") for _ in range(2)]

    await one.end()

    assert survivors(ones, within_s=0) == []
    assert [running(pid) for pid in others] == [True, True]


async def test_cycles_leave_nothing_behind(kind: str) -> None:
    async def cycle() -> None:
        subject = await SUBJECTS[kind].begin(Launch(argv=("cat",), env=child_environment({})), stdin=b"x\n")
        await subject.line()
        await subject.end()
        await subject.close()

    def held() -> list[object]:
        groups = control_groups_of(os.getpid())
        return [psutil.Process().num_fds(), threading.active_count(), len(asyncio.all_tasks()), below(others), groups]

    others = psutil.Process().children()
    await cycle()
    before = held()
    for _ in range(25):
        await cycle()

    deadline = time.monotonic() + GONE_WITHIN_S
    while held() != before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert held() == before


# ---------------------------------------------------------------- what happens above it


async def test_supervisors_end_when_their_host_says_so_and_not_when_a_group_is_asked_to(begin: Begin) -> None:
    subject = await begin(child("family", "group"))
    pids = [int((await subject.line()).split()[1]) for _ in range(2)]

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.killpg(subject.supervisors()[0], number)

    # Whoever has taken the signals has taken all of them before it is seen to sleep again.
    deadline = time.monotonic() + GONE_WITHIN_S
    above = [psutil.Process(pid) for pid in subject.supervisors()]
    while any(one.status() != psutil.STATUS_SLEEPING for one in above) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert [running(pid) for pid in (*subject.supervisors(), *pids)] == [True] * 4


@pytest.mark.parametrize("which", [0, 1], ids=["supervisor", "worker"])
@pytest.mark.usefixtures("machine")
async def test_no_one_survives_the_death_of_one_supervisor(begin: Begin, which: int) -> None:
    subject, pids = await family(begin, "daemon")
    above = subject.supervisors()

    os.kill(above[which], signal.SIGKILL)

    left = await asyncio.to_thread(survivors, pids)  # The loop goes on: the host may have to do something, too.
    await subject.close()
    assert left == []
    assert survivors(above) == []


@pytest.mark.skipif(not sandbox_report().cgroup_kill, reason="this needs a control group")
async def test_with_a_control_group_no_one_survives_the_death_of_both_supervisors(begin: Begin) -> None:
    subject, pids = await family(begin, "daemon")

    os.killpg(subject.supervisors()[0], signal.SIGKILL)

    assert await asyncio.to_thread(survivors, pids) == []


@pytest.mark.parametrize("who", ["supervisor", "worker", "both"])
async def test_supervisors_that_were_stopped_end_their_program_all_the_same(begin: Begin, who: str) -> None:
    subject, pids = await family(begin, "session")
    above = subject.supervisors()
    for pid in {"supervisor": above[:1], "worker": above[1:], "both": above}[who]:
        os.kill(pid, signal.SIGSTOP)

    async with asyncio.timeout(GONE_WITHIN_S):
        await subject.close()

    assert survivors([*pids, *above]) == []


@pytest.mark.usefixtures("machine")
async def test_a_server_that_stops_its_supervisors_again_and_again_ends_with_them() -> None:
    server = await Server.begin(child("fighter", "stop"))
    above = server.supervisors()
    pids = [int((await server.line()).split()[1]) for _ in range(2)]

    await server.close()

    assert await asyncio.to_thread(survivors, [*pids, *above]) == []


@pytest.mark.usefixtures("machine")
async def test_a_server_that_kills_both_of_its_supervisors_leaves_nothing_behind() -> None:
    server = await Server.begin(child("fighter", "kill"))
    pids = [int((await server.line()).split()[1]) for _ in range(2)]

    await server.exit_code()
    await server.close()

    left = [one.pid for one in psutil.process_iter(["cmdline"]) if "fighter.py" in " ".join(one.info["cmdline"] or [])]
    assert await asyncio.to_thread(survivors, [*pids, *left]) == []


def test_supervisors_that_were_stopped_end_their_program_when_the_host_is_killed(kind: str) -> None:
    with host(kind, "plain", "session") as (process, pids):
        for pid in pids["supervisor"]:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()

        assert survivors(pids["server"] + pids["grandchild"] + pids["supervisor"]) == []


@contextmanager
def host(kind: str, how: str, *grandchildren: str) -> Generator[tuple[subprocess.Popen[str], dict[str, list[int]]]]:
    """A host with a family of each kind, and all pids by role."""
    argv = [sys.executable, str(CHILDREN / "host.py"), kind, how, *grandchildren]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process, ExitStack() as after:
        after.callback(process.kill)
        assert process.stdout is not None
        pids: dict[str, list[int]] = {}
        while "ready" not in pids:
            role, pid = process.stdout.readline().split()
            pids.setdefault(role, []).append(int(pid))
        yield process, pids


@pytest.mark.parametrize("grandchildren", [("group",), ("session", "daemon")], ids=["one", "two"])
def test_no_one_survives_a_killed_host(kind: str, grandchildren: tuple[str, ...]) -> None:
    with host(kind, "plain", *grandchildren) as (process, pids):
        process.kill()
        process.wait()

        assert survivors(pids["server"] + pids["grandchild"] + pids["supervisor"]) == []
    assert len(pids["grandchild"]) == len(grandchildren)
    assert control_groups_of(process.pid) == []


def test_a_fork_of_the_host_does_not_keep_its_programs_alive(kind: str) -> None:
    with host(kind, "forked", "session") as (process, pids):
        process.kill()
        process.wait()

        left = survivors(pids["server"] + pids["grandchild"] + pids["supervisor"])
        os.kill(pids["fork"][0], signal.SIGKILL)
    assert left == []


def test_no_one_survives_a_loop_that_ends_without_a_close(kind: str) -> None:
    with host(kind, "torn", "daemon") as (process, pids):
        process.wait(timeout=GONE_WITHIN_S)

        assert survivors(pids["server"] + pids["grandchild"] + pids["supervisor"]) == []
