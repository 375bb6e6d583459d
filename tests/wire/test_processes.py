"""Child processes that end when they are told to, when their host dies, and when somebody kills their keeper."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.containment import containment
from toolpost.wire.environment import INHERITED, child_environment
from toolpost.wire.processes import Launch, Process, start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walk through /proc and its signals are Linux's")

CHILDREN = Path(__file__).parent / "children"
GONE_WITHIN_S = 30.0
MACHINES = ["with groups", "without groups"]


def child(program: str, *arguments: str, **extra: str) -> Launch:
    argv = (sys.executable, str(CHILDREN / f"{program}.py"), *arguments)
    return Launch(argv=argv, env=child_environment(extra))


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def survivors(pids: list[int]) -> list[int]:
    """Who of them is still there after a while; they are killed, so that a failing test leaves nobody either."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := [pid for pid in pids if running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


async def family(kind: str) -> tuple[Process, list[int]]:
    """A server that does not end by itself, with a grandchild, and the pids of both."""
    process = await start(child("family", kind))
    return process, [int((await process.stdout.readline()).split()[1]) for _ in range(2)]


def below(others: list[psutil.Process]) -> list[int]:
    """Who runs below this process, but for others and those whom they start when they please, as a browser does."""
    found: list[int] = []
    for child in psutil.Process().children():
        if child not in others:
            with suppress(psutil.NoSuchProcess):
                found += [child.pid, *(one.pid for one in child.children(recursive=True))]
    return found


def inner_keeper(process: Process) -> int:
    return psutil.Process(process.pid).ppid()


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without groups":
        monkeypatch.setattr("toolpost.wire.cgroups._MOUNTS", Path(os.devnull))
    elif not containment().cgroup_kill:
        pytest.skip("this machine lets nobody make a control group")


def groups_of(host: int) -> list[Path]:
    """The control groups that a host made and that are still there."""
    return list(Path("/sys/fs/cgroup").glob(f"**/toolpost-{host}-*"))


# ---------------------------------------------------------------- how it starts


async def test_a_server_answers_on_its_own_pipes_and_ends_with_stdin() -> None:
    async with await start(child("echo", "7")) as process:
        assert int(await process.stdout.readline()) == process.pid
        process.stdin.write(b"hello\n")
        assert await process.stdout.readline() == b"hello\n"
        assert process.returncode is None

    assert process.returncode == 7


async def test_a_server_that_exits_by_itself_is_seen_with_its_code() -> None:
    process = await start(Launch(argv=("sh", "-c", "echo last; exit 3"), env=child_environment({})))

    assert await process.wait() == 3
    assert await process.stdout.read() == b"last\n"
    await process.close()
    assert process.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGINT])
async def test_a_server_that_a_signal_killed_has_that_signals_negative_number(number: int) -> None:
    launch = Launch(argv=("sh", "-c", f"ulimit -c 0; kill -{number:d} $$"), env=child_environment({}))
    async with await start(launch) as process:
        assert await process.wait() == -number


async def test_arguments_reach_the_program_untouched(tmp_path: Path) -> None:
    arguments = ("two words", "it's", 'a "quote"', "$HOME `id` *", "", "--", "line\nbreak", "ünï", "\udcff")
    launch = child("report", *arguments)
    async with await start(Launch(argv=launch.argv, env=launch.env, cwd=str(tmp_path))) as process:
        facts = json.loads(await process.stdout.readline())

    assert tuple(facts["arguments"]) == arguments
    assert facts["folder"] == str(tmp_path.resolve())


def _ignored_here() -> int:
    """What whoever started this program wanted ignored, as a shell does for its background jobs."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("SigIgn:")[2].split()[0], 16)


async def test_a_server_gets_nothing_but_its_pipes_and_plain_signals() -> None:
    async with await start(child("echo")), await start(child("report")) as process:
        facts = json.loads(await process.stdout.readline())

    python_ignores = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    libc_ignores = 0b11 << 31  # 32 and 33 are the C library's own: its posix_spawn ignores them, nobody can undo that
    assert facts["descriptors"] == [0, 1, 2]
    assert facts["ignored"] & ~(python_ignores | libc_ignores | _ignored_here()) == 0
    assert facts["session"]


async def test_keepers_hold_no_end_of_a_servers_pipes() -> None:
    launch = Launch(argv=("sh", "-c", "exec <&- >&- 2>&-; exec sleep 60"), env=child_environment({}))
    process = await start(launch)

    async with asyncio.timeout(GONE_WITHIN_S):
        assert await process.stdout.read() == b""
        while not process.stdin.is_closing():
            await asyncio.sleep(0.01)
    assert running(process.pid)
    await process.close(grace_s=0)


async def test_a_flood_of_stderr_neither_blocks_nor_grows() -> None:
    before = psutil.Process().memory_info().rss
    async with await start(child("flood", "50"), stderr_bytes=1000) as process:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"done\n"
            await process.wait()

        assert process.stderr_tail == "x" * 989 + "\ufffd last word"
    assert psutil.Process().memory_info().rss - before < 20 * 2**20


async def test_a_line_may_be_as_long_as_the_caller_says() -> None:
    line = b"x" * 2**20 + b"\n"
    async with await start(child("echo"), line_limit=2**21) as process:
        await process.stdout.readline()
        process.stdin.write(line)
        assert await process.stdout.readline() == line


# ---------------------------------------------------------------- what it sees


async def test_no_secret_of_the_host_reaches_a_server_or_its_keepers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret-of-the-host")
    async with await start(child("report", GIVEN="for you")) as process:
        facts = json.loads(await process.stdout.readline())
        keepers = [Path(f"/proc/{pid}/environ").read_text() for pid in (process.keeper_pid, inner_keeper(process))]

    assert facts["environment"]["GIVEN"] == "for you"
    assert set(facts["environment"]) <= {*INHERITED, "GIVEN", "LC_CTYPE"}  # the last is set by Python itself
    assert "s3cret" not in facts["environ"] + "".join(keepers)
    assert "for you" not in "".join(keepers)


def test_a_child_inherits_six_variables_and_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "OTHER"):
        monkeypatch.setenv(name, f"our {name}")
    monkeypatch.delenv("TERM", raising=False)

    assert child_environment({"PATH": "/theirs", "TOKEN": "t"}) == {
        "HOME": "our HOME",
        "LOGNAME": "our LOGNAME",
        "PATH": "/theirs",
        "SHELL": "our SHELL",
        "USER": "our USER",
        "TOKEN": "t",
    }


def test_a_launch_does_not_show_its_environment() -> None:
    assert "s3cret" not in repr(Launch(argv=("x",), env={"TOKEN": "s3cret"}))


# ---------------------------------------------------------------- what cannot be started


def script(folder: Path, name: str, text: str, mode: int) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no-such-command", r"'no-such-command' was not found; install it, or check that PATH holds its folder\."),
        ("./missing", r"'\./missing' was not found; install it, or check its path\."),
        ("plain", r"'plain' cannot be started: '.*/plain' is no executable file; see its mode\."),
        ("folder", r"'folder' cannot be started: '.*/folder' is no executable file"),
        ("orphaned", r"'orphaned' could not be started: the interpreter that its first line names is missing"),
        ("shapeless", r"'shapeless' could not be started: it is not a program for this machine"),
        ("nul\0", r"was not found"),
        ("x" * 300, r"was not found"),
        ("", r"No command is given"),
    ],
)
async def test_a_command_that_cannot_run_is_named_with_what_to_do(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    script(tmp_path, "plain", "#!/bin/sh\n", 0o644)
    script(tmp_path, "orphaned", "#!/no/such/interpreter\n", 0o755)
    script(tmp_path, "shapeless", "exit 0\n", 0o755)
    launch = Launch(argv=(name, "argument"), env={"PATH": str(tmp_path), "TOKEN": "s3cret"}, cwd=str(tmp_path))

    with pytest.raises(ToolConnectionError, match=says) as raised:
        await start(launch)

    assert (raised.value.sent, raised.value.is_retryable) == (False, False)
    assert "s3cret" not in str(raised.value)


async def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ToolConnectionError, match=r"'cat' cannot run in '/no/such/folder': .*; correct `cwd`"
    ) as raised:
        await start(Launch(argv=("cat",), env=child_environment({}), cwd="/no/such/folder"))

    assert raised.value.sent is False


@pytest.mark.parametrize(("argument", "extra"), [("nul\0", {}), ("", {"A=B": "c"}), ("", {"A": "\0"}), ("\ud800", {})])
async def test_what_no_process_can_be_given_is_refused(argument: str, extra: dict[str, str]) -> None:
    with pytest.raises(ToolConnectionError, match=r"'cat' cannot be started: .* no process can be given"):
        await start(Launch(argv=("cat", argument), env=child_environment(extra)))


async def test_a_command_is_looked_for_on_the_childs_own_path(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    script(tmp_path, "greet", "#!/bin/sh\necho $0\n", 0o755)
    launch = Launch(argv=("greet",), env={"PATH": "closed:/no/such/folder:."}, cwd=str(tmp_path))
    async with await start(launch) as process:
        assert Path((await process.stdout.readline()).decode().strip()) == tmp_path / "greet"


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
@pytest.mark.usefixtures("machine")
async def test_close_ends_servers_that_ignore_everything_and_their_grandchildren() -> None:
    families = [await family(kind) for kind in ("group", "session", "daemon")]
    pids = [pid for process, members in families for pid in (*members, process.keeper_pid, inner_keeper(process))]

    async with asyncio.timeout(GONE_WITHIN_S):
        await asyncio.gather(*(process.close(grace_s=0.1) for process, _ in families))

    assert survivors(pids) == []
    assert {process.returncode for process, _ in families} == {-signal.SIGKILL}


async def test_what_a_server_leaves_behind_ends_with_it() -> None:
    process, pids = await family("left")

    process.stdin.write(b"exit\n")

    assert await process.wait() == 3
    assert survivors(pids) == []
    await process.close()


async def test_orphans_that_end_in_the_meantime_are_reaped() -> None:
    launch = Launch(argv=("sh", "-c", "(sleep 0 & sleep 0 & sleep 0 &); echo up; exec cat"), env=child_environment({}))
    async with await start(launch) as process:
        await process.stdout.readline()
        keeper = psutil.Process(inner_keeper(process))
        deadline = time.monotonic() + GONE_WITHIN_S
        while len(keeper.children()) > 1 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

        assert [one.pid for one in keeper.children(recursive=True)] == [process.pid]


async def test_a_server_may_take_its_grace_to_end() -> None:
    launch = Launch(argv=("sh", "-c", "cat; sleep 0.2; echo saved >&2"), env=child_environment({}))
    process = await start(launch)

    await process.close(grace_s=GONE_WITHIN_S)

    assert (process.returncode, process.stderr_tail) == (0, "saved\n")


async def test_many_may_close_and_close_again() -> None:
    process = await start(child("echo", "4"))

    await asyncio.gather(*(process.close() for _ in range(5)))
    await process.close()

    assert process.returncode == 4


async def test_a_cancelled_close_still_ends_everything() -> None:
    process, pids = await family("session")
    closing = asyncio.create_task(process.close(grace_s=0.2))
    await asyncio.sleep(0)

    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    await process.close()
    assert survivors(pids) == []


async def test_a_cancelled_start_leaves_nobody() -> None:
    mark, before = uuid.uuid4().hex, psutil.Process().children()
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.04):
        starting = asyncio.create_task(start(child("family", "group", mark)))
        await asyncio.sleep(delay)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await (await starting).close(grace_s=0)

    assert survivors([one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])]) == []
    assert survivors([one.pid for one in psutil.Process().children() if one not in before]) == []


async def test_keepers_go_when_their_host_says_so_and_not_when_a_group_is_asked_to() -> None:
    async with await start(child("echo", "5")) as process:
        await process.stdout.readline()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.killpg(process.keeper_pid, number)
        process.stdin.write(b"still here\n")

        assert await process.stdout.readline() == b"still here\n"

    assert process.returncode == 5


async def test_keepers_that_were_stopped_end_their_servers_all_the_same() -> None:
    process, pids = await family("session")
    os.killpg(process.keeper_pid, signal.SIGSTOP)

    async with asyncio.timeout(GONE_WITHIN_S):
        await process.close(grace_s=0)

    assert survivors([*pids, process.keeper_pid]) == []


def test_a_server_lives_on_when_the_thread_that_started_it_ends() -> None:
    loop = asyncio.new_event_loop()
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(loop.run_until_complete(start(child("echo")))))
    thread.start()
    thread.join()

    async def talk() -> bytes:
        async with started[0] as process:
            await process.stdout.readline()
            process.stdin.write(b"still here\n")
            return await process.stdout.readline()

    assert loop.run_until_complete(talk()) == b"still here\n"
    assert started[0].returncode == 0
    loop.close()


async def test_fifty_cycles_leave_nothing_behind() -> None:
    async def cycles(count: int) -> None:
        for number in range(count):
            async with await start(child("echo") if number % 25 == 0 else Launch(argv=("cat",), env={})) as process:
                process.stdin.write(b"x\n")

    def held() -> list[object]:
        descriptors, started = psutil.Process().num_fds(), below(others)
        return [descriptors, threading.active_count(), len(asyncio.all_tasks()), started, groups_of(os.getpid())]

    others = psutil.Process().children()
    await cycles(1)
    before = held()
    await cycles(50)
    deadline = time.monotonic() + GONE_WITHIN_S
    while held() != before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)

    assert held() == before


# ---------------------------------------------------------------- who is killed


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
@pytest.mark.usefixtures("machine")
async def test_nobody_survives_the_death_of_either_keeper() -> None:
    (one, ones), (other, others) = [await family("daemon") for _ in range(2)]
    keepers = [pid for process in (one, other) for pid in (process.keeper_pid, inner_keeper(process))]

    os.kill(one.keeper_pid, signal.SIGKILL)
    os.kill(inner_keeper(other), signal.SIGKILL)

    async with asyncio.timeout(GONE_WITHIN_S):
        assert [await one.wait(), await other.wait()] == [-signal.SIGKILL, -signal.SIGKILL]
    assert survivors([*ones, *others, *keepers]) == []
    await asyncio.gather(one.close(), other.close())


@pytest.mark.skipif(not containment().cgroup_kill, reason="this needs a control group")
async def test_with_a_control_group_nobody_survives_the_death_of_both_keepers() -> None:
    process, pids = await family("daemon")

    os.killpg(process.keeper_pid, signal.SIGKILL)

    async with asyncio.timeout(GONE_WITHIN_S):
        assert await process.wait() == -signal.SIGKILL
    assert survivors(pids) == []
    await process.close()


@pytest.mark.parametrize("machine", ["without groups"], indirect=True)
@pytest.mark.usefixtures("machine")
async def test_a_server_dies_with_its_keepers() -> None:
    process = await start(child("echo"))

    os.killpg(process.keeper_pid, signal.SIGKILL)

    assert survivors([process.pid]) == []
    await process.close()


@contextmanager
def host(how: str, *kinds: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, list[int]]]]:
    """A host with a family of each kind, and all pids by role."""
    command = [sys.executable, str(CHILDREN / "host.py"), how, *kinds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ExitStack() as after:
        after.callback(process.kill)
        assert process.stdout is not None
        pids: dict[str, list[int]] = {}
        while "ready" not in pids:
            role, pid = process.stdout.readline().split()
            pids.setdefault(role, []).append(int(pid))
        yield process, pids


@pytest.mark.parametrize("kinds", [("group",), ("session", "daemon")], ids=["one", "two servers"])
def test_nobody_survives_a_killed_host(kinds: tuple[str, ...]) -> None:
    with host("plain", *kinds) as (process, pids):
        process.kill()
        process.wait()

        assert survivors(pids["server"] + pids["grandchild"] + pids["keeper"]) == []
    assert len(pids["grandchild"]) == len(kinds)
    assert groups_of(process.pid) == []


def test_a_fork_of_the_host_does_not_keep_its_servers_alive() -> None:
    with host("forked", "session") as (process, pids):
        process.kill()
        process.wait()

        left = survivors(pids["server"] + pids["grandchild"] + pids["keeper"])
        os.kill(pids["fork"][0], signal.SIGKILL)
    assert left == []


def test_nobody_survives_a_loop_that_ends_without_a_close() -> None:
    with host("torn", "daemon") as (process, pids):
        process.wait(timeout=GONE_WITHIN_S)

        assert survivors(pids["server"] + pids["grandchild"] + pids["keeper"]) == []
