"""The keeper: a program of its own between a host and the server that it started, so that nothing outlives the two.

    host ── outer keeper ── inner keeper ── server ── whatever it starts

It relays nothing: the server's pipes are the host's. Both keepers adopt the orphans below them, so whichever
of the three on the left is killed, another one is left to end the tree: the inner keeper when the outer one is
gone or hangs up, the outer keeper when the inner one is gone. The server itself dies with the inner keeper.
The status of the server is handed on: the keepers exit with its code, or die by its signal.

`python -I -S keeper.py DESCRIPTOR HOST`: the descriptor is a socket on which the host writes one `Order` and then
nothing; its end means that the host hung up or died. The answer is one line, `started PID` or `failed STAGE ERRNO`.
This file runs without Toolpost, and imports nothing that takes long: it is read anew for every server.
"""
# ruff: noqa: PLC0415, PTH106, PTH123, PTH208, SIM105 - contextlib, ctypes, pathlib and signal are slow to import.

import _thread
import os
import select
import sys
import time

TERM_GRACE_S = 1.0
"""How long those who were asked to end may take."""

_SIGHUP = 1
_SIGINT = 2
_SIGKILL = 9
_SIGPIPE = 13
_SIGTERM = 15
_SIGXFSZ = 25
_SIG_DFL = 0
_SIG_IGN = 1
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_LENGTH_DIGITS = 10
_CANNOT_EXECUTE = 127


class Order:
    """What the host asks for: a program, its arguments and environment, where it runs and in which control group."""

    def __init__(self, program: str, argv: tuple[str, ...], env: dict[str, str], *, cwd: str, group: str) -> None:
        self.program = program
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.group = group

    def pack(self) -> bytes:
        """The order as it is sent; a ValueError says that it holds what no process can be given."""
        entries = [f"{name}={value}" for name, value in self.env.items()]
        fields = [self.program, self.cwd, self.group, str(len(self.argv)), *self.argv, *entries]
        if any("\0" in field for field in fields) or any("=" in name or not name for name in self.env):
            raise ValueError("a NUL character, or a variable's name that is empty or holds an equals sign")
        payload = b"\0".join(map(os.fsencode, fields))
        return str(len(payload)).zfill(_LENGTH_DIGITS).encode() + payload


def unpack(payload: bytes) -> Order:
    """The order that was packed, without its length."""
    program, cwd, group, count, *rest = map(os.fsdecode, payload.split(b"\0"))
    argc = int(count)
    env = dict(entry.split("=", 1) for entry in rest[argc:])
    return Order(program, tuple(rest[:argc]), env, cwd=cwd, group=group)


def main() -> None:
    """Take the host's order, and be the outer keeper."""
    lifeline, host = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(lifeline, False)  # noqa: FBT003 - it has no name to be given by
    order = _receive(lifeline)
    if order is None:
        return
    # Whoever asks a whole group to end also asks the host, and that decides what becomes of its servers.
    _on_signals(_SIG_IGN, _SIGHUP, _SIGINT, _SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    watched, held = os.pipe()
    inner = os.fork()
    if inner == 0:
        os.close(held)
        _keep(order, lifeline, watched)
    os.close(watched)
    _let_go_of_pipes()
    _thread.start_new_thread(_watch_host, (lifeline, host, held))
    _leave(_reap(inner, order.group), order.group)


def _receive(lifeline: int) -> Order | None:
    length = _read(lifeline, _LENGTH_DIGITS)
    payload = _read(lifeline, int(length)) if length else b""
    return unpack(payload) if payload else None


def _read(descriptor: int, count: int) -> bytes:
    """Exactly so many bytes; none when the host is gone before."""
    received = b""
    while len(received) < count:
        chunk = os.read(descriptor, count - len(received))
        if not chunk:
            return b""
        received += chunk
    return received


def _watch_host(lifeline: int, host: int, held: int) -> None:
    """Hang up on the inner keeper when the host hung up or is dead."""
    ends = select.poll()
    ends.register(lifeline, select.POLLIN)
    if sys.platform == "linux":
        try:
            # A process that the host forked may hold a copy of the lifeline, which then would not end with the host.
            ends.register(os.pidfd_open(host), select.POLLIN)
        except OSError:
            pass
    if os.getppid() == host:
        ends.poll()
    os.close(held)


def _keep(order: Order, lifeline: int, watched: int) -> None:
    """Be the inner keeper: start the server, and end all of it once the outer keeper hung up or is dead."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    trouble, report = os.pipe()
    keeper = os.getpid()
    server = os.fork()
    if server == 0:
        _become(order, keeper, report)
    os.close(report)
    _let_go_of_pipes()
    _thread.start_new_thread(_watch_keeper, (watched, server, order.group))
    answer = os.read(trouble, 64) or f"started {server}\n".encode()
    os.close(trouble)
    try:
        os.write(lifeline, answer)
    except OSError:
        pass
    _leave(_reap(server, order.group), order.group)


def _watch_keeper(watched: int, server: int, group: str) -> None:
    os.read(watched, 1)
    _end_tree(server, group)


def _become(order: Order, keeper: int, report: int) -> None:
    """Turn into the server; what prevents it is reported, and the report's end without a word means success."""
    stage = "cwd"
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        if os.getppid() != keeper:
            os._exit(_CANNOT_EXECUTE)
        # What is ignored, here or by Python itself, would stay ignored in the program.
        _on_signals(_SIG_DFL, _SIGHUP, _SIGINT, _SIGTERM, _SIGPIPE, _SIGXFSZ)
        _write(order.group, "cgroup.procs", b"0")
        if order.cwd:
            os.chdir(order.cwd)
        stage = "exec"
        os.execve(order.program, order.argv, order.env)  # noqa: S606 - arguments as they are, no shell
    except OSError as failed:
        os.write(report, f"failed {stage} {failed.errno}\n".encode())
    finally:
        os._exit(_CANNOT_EXECUTE)


def _on_signals(disposition: int, *numbers: int) -> None:
    import ctypes

    for number in numbers:
        ctypes.CDLL(None).signal(number, ctypes.c_void_p(disposition))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _let_go_of_pipes() -> None:
    """The server alone holds its pipes, so that their end is seen on either side."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _reap(child: int, group: str) -> int:
    """Wait until nobody is left below, and return how the child ended; when it does, the others have to."""
    status = 0
    while True:
        try:
            pid, how = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = how
            _thread.start_new_thread(_end_tree, (child, group))


def _end_tree(child: int, group: str) -> None:
    """End everybody below; once all are gone the main thread leaves, and takes the process and this thread along."""
    _signal_all(child, _SIGTERM)
    time.sleep(TERM_GRACE_S)
    pause = 0.01
    while True:
        _write(group, "cgroup.kill", b"1")
        _signal_all(child, _SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)  # Somebody who cannot be killed shall not cost a core.


def _signal_all(child: int, number: int) -> None:
    for pid in _descendants(child):
        try:
            os.kill(pid, number)
        except OSError:
            pass


def _descendants(child: int) -> list[int]:
    """Everybody below this process, elders first; where there is no /proc, the child's group."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return [-child]
    children: dict[int, list[int]] = {}
    for pid in pids:
        children.setdefault(_parent(pid), []).append(pid)
    found: list[int] = []
    generation = [os.getpid()]
    while generation:
        generation = [pid for parent in generation for pid in children.get(parent, [])]
        found += generation
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _write(group: str, name: str, value: bytes) -> None:
    """Write to a control group; without one, or without its consent, the walk through /proc has to do."""
    if not group:
        return
    try:
        with open(f"{group}/{name}", "wb", buffering=0) as file:
            file.write(value)
    except OSError:
        pass


def _leave(status: int, group: str) -> None:
    if group:
        _remove(group)
    if os.WIFSIGNALED(status):
        _die_by(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _remove(group: str) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass


def _die_by(number: int) -> None:
    import signal

    _prctl(_PR_SET_DUMPABLE, 0)  # The server has left its core; the keeper's would only confuse.
    if number != _SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


if __name__ == "__main__":
    main()
