"""Supervisor program: a process between a host and the programs that it starts, so that no program outlives the host.

    host ── supervisor ── worker ── program ── its descendants
                       └─ worker ── program

Each server has its own supervisor; all commands of a source share one. A worker runs one program at a time and is
then reused, so a command costs one `posix_spawn`. Supervisor and workers are child subreapers (prctl(2)): every
orphan below a worker belongs to its program, and the program is over when the worker has no child left. If host,
supervisor or worker is killed, another one ends the programs: the workers if the supervisor has ended, the
supervisor if the host or a worker has.

Protocol: on the supervisor's socket the host sends one byte with a socket for every worker that it wants: `+` for one
that is reused, `1` for the only one, which runs a single program and whose supervisor ends with it. On a worker's
socket it sends a `SpawnRequest` with the descriptors of stdout, stderr and, optionally, stdin. The replies are lines:
`ended CODE`, with `started PID` before it if the program is long-running; or only `failed STAGE ERRNO`. End of file on
a socket is the request to end everything below it, if the host closed it or ended.

This file runs without the rest of Toolpost, in an interpreter without site-packages. It imports only what is quick to
import: `signal`, `socket`, `contextlib` and `pathlib` would add half to the time that a server takes to start.
"""
# ruff: noqa: PTH102, PTH106, PTH123, PTH208, SIM105 - pathlib and contextlib are slow to import.

import _socket
import ctypes
import os
import select
import sys
import time

_signal = __import__("_signal")  # `signal` without its enums; type checkers have no stub of it

TERM_GRACE_S = 1.0
"""Time between SIGTERM and SIGKILL."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LENGTH_DIGITS = 10
_CHUNK = 65536
_INT_BYTES = 4
_MOST_DESCRIPTORS = 3
_CANNOT_EXECUTE = 127
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 1.0  # A process that cannot be killed must not use a core.
_WORKERS_END_S = TERM_GRACE_S + 1.0
_IGNORED = ("SIGHUP", "SIGINT", "SIGTERM")
_RESET = (*_IGNORED, "SIGPIPE", "SIGXFSZ")


class SpawnRequest:
    """Program, arguments, environment and working directory of a process to start.

    The worker of a `long_running` program replies when it has started, and the kernel kills the program when its worker
    ends. The program does not survive even if supervisor and worker are killed together. This needs a fork instead of
    `posix_spawn`, and both are too slow for a short command.
    """

    def __init__(
        self, program: str, argv: tuple[str, ...], env: dict[str, str], *, cwd: str, long_running: bool = False
    ) -> None:
        self.program = program
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.long_running = long_running

    def pack(self) -> bytes:
        """Encode the request with its length; raise ValueError if it contains invalid values."""
        entries = [f"{name}={value}" for name, value in self.env.items()]
        long_running = str(int(self.long_running))
        fields = [self.program, self.cwd, long_running, str(len(self.argv)), *self.argv, *entries]
        if any("\0" in field for field in fields) or any("=" in name or not name for name in self.env):
            raise ValueError("a NUL character, or an empty variable name or one with an equals sign")
        payload = b"\0".join(map(os.fsencode, fields))
        return str(len(payload)).zfill(_LENGTH_DIGITS).encode() + payload


def unpack(payload: bytes) -> SpawnRequest:
    """Decode a packed request without its length."""
    program, cwd, long_running, count, *rest = map(os.fsdecode, payload.split(b"\0"))
    argc = int(count)
    env = dict(entry.split("=", 1) for entry in rest[argc:])
    return SpawnRequest(program, tuple(rest[:argc]), env, cwd=cwd, long_running=long_running == "1")


def main(descriptor: int, host: int, group: str) -> None:
    """Serve the host on this socket, and end everything when the host closes it or ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # A program may have stopped its supervisor or worker: the kernel resumes it when the host ends.
    _prctl(_PR_SET_PDEATHSIG, _signal.SIGCONT)
    # A signal to the whole process group reaches the host too, which then decides about its programs.
    for name in _IGNORED:
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - a positional-only parameter
    supervisor = SupervisorProcess(descriptor, group)
    supervisor.poller.watch_process(host)
    if os.getppid() == host:
        supervisor.serve()
    supervisor.shut_down()
    os._exit(0)  # The cleanup of an interpreter takes milliseconds.


class SupervisorProcess:
    """Forks workers, and kills the processes that a killed worker leaves behind."""

    def __init__(self, descriptor: int, group: str) -> None:
        self.poller = Poller(descriptor)
        self._socket = _socket.socket(fileno=descriptor)
        self._group = group
        self._workers: set[int] = set()
        self._single_use = False
        self._stray_pause_s = 0.0
        # Only the supervisor holds the write end: workers read end of file when it has ended.
        self._alive, self._alive_writer = os.pipe()

    def serve(self) -> None:
        """Start a worker for every socket received, until the host has ended."""
        while True:
            ready = self.poller.wait(self._kill_strays())
            self._reap()
            if self._single_use and not self._workers:
                return
            if ready - {self._socket.fileno()} or (ready and not self._start_worker()):
                return

    def shut_down(self) -> None:
        """Make the workers end their programs, and return when no descendant is left."""
        os.close(self._alive_writer)
        self.poller.ignore_descriptors()
        for worker in self._workers:
            _kill(worker, _signal.SIGCONT)
        deadline = time.monotonic() + _WORKERS_END_S
        while self._reap():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                _write(self._group, "cgroup.kill", b"1")
                self._workers.clear()
                self._stray_pause_s = self._stray_pause_s or _FIRST_PAUSE_S
            self.poller.wait(self._kill_strays() or max(left_s, _FIRST_PAUSE_S))
        _remove(self._group)

    def _reap(self) -> bool:
        """Remove workers that have ended, resume stopped ones; return whether any child is left."""
        changed, any_left = _reap_children(os.WUNTRACED)
        for pid in self._workers & changed.keys():
            if os.WIFSTOPPED(changed[pid]):
                _kill(pid, _signal.SIGCONT)
                continue
            self._workers.discard(pid)
            if changed[pid]:  # It was killed, or failed, and may have left its program behind.
                _write(_subgroup(self._group, pid), "cgroup.kill", b"1")
                self._stray_pause_s = _FIRST_PAUSE_S
            _remove(_subgroup(self._group, pid))
        return any_left

    def _kill_strays(self) -> float | None:
        """Kill processes that have lost their worker; return the time of the next check, None for none."""
        if self._stray_pause_s:
            strays = descendants(os.getpid(), without=self._workers)
            _signal_process_groups(strays, _signal.SIGKILL)
            self._stray_pause_s = min(2 * self._stray_pause_s, _LONGEST_PAUSE_S) if strays else 0.0
        return self._stray_pause_s or None

    def _start_worker(self) -> bool:
        """Fork a worker for the socket that the host sent; False at end of file."""
        payload, sockets = _receive(self._socket)
        self._single_use = payload == b"1"
        for descriptor in sockets:
            try:
                worker = os.fork()
                if worker == 0:
                    self._become_worker(descriptor)
                self._workers.add(worker)
            except OSError:  # The limit on processes: the host reads end of file on the socket.
                pass
            os.close(descriptor)
        return bool(sockets)

    def _become_worker(self, descriptor: int) -> None:
        try:
            self.poller.close()
            os.close(self._alive_writer)
            WorkerProcess(descriptor, self._alive, self._group, single_use=self._single_use).serve()
            os._exit(0)
        finally:
            os._exit(1)


class WorkerProcess:
    """Runs the programs requested on its socket, one at a time."""

    def __init__(self, descriptor: int, supervisor_alive: int, group: str, *, single_use: bool) -> None:
        self._socket = _socket.socket(fileno=descriptor)
        self._supervisor_alive = supervisor_alive
        self._poller = Poller(descriptor, supervisor_alive)
        self._group = WorkerGroup(group)
        self._single_use = single_use
        self._ending = False

    def serve(self) -> None:
        """Run programs until the host or the supervisor has ended."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, _signal.SIGCONT)
        while not self._ending:
            self._group.enter()
            ready = self._poller.wait()
            if self._supervisor_alive in ready:
                break
            if not ready:
                continue
            payload, descriptors = _receive(self._socket)
            if not payload:
                break
            self._run(_receive_rest(payload, self._socket), descriptors)
            if self._single_use:
                break

    def _run(self, request: SpawnRequest, descriptors: list[int]) -> None:
        stage = "cwd"
        try:
            os.chdir(request.cwd)
            stage = "exec"
            program = _spawn(request, descriptors)
        except OSError as failed:
            self._reply(f"failed {stage} {failed.errno}\n")
            return
        finally:
            os.chdir("/")  # An idle worker must not keep a file system from being unmounted.
            for descriptor in descriptors:
                os.close(descriptor)
        if request.long_running:
            self._reply(f"started {program}\n")
        status = self._wait_for_all(program)
        self._reply(f"ended {os.waitstatus_to_exitcode(status)}\n")

    def _reply(self, line: str) -> None:
        try:
            self._socket.send(line.encode())
        except OSError:
            self._ending = True

    def _wait_for_all(self, program: int) -> int:
        """Wait until no child is left, and end the others after the program; return the program's status."""
        status: int | None = None
        termination = Termination(program, self._group)
        while True:
            ended, any_left = _reap_children()
            if program in ended:
                status = ended[program]
            if not any_left:
                if sys.platform != "linux":  # Orphans are not adopted there; those in the group can still be found.
                    _signal_process_groups({program: program}, _signal.SIGKILL)
                return 0 if status is None else status
            pause = termination.step() if self._ending or status is not None else None
            if self._poller.wait(pause) and not self._ending:
                self._ending = True
                self._poller.ignore_descriptors()


class Termination:
    """Ends all descendants: SIGTERM first, SIGKILL after a grace period until none is left."""

    def __init__(self, program: int, group: "WorkerGroup") -> None:
        self._program = program
        self._group = group
        self._pause = 0.0
        self._due = 0.0

    def step(self) -> float:
        """Send the signals that are due; return the time until the next step."""
        now = time.monotonic()
        if now < self._due:
            return self._due - now
        if self._pause:
            self._group.kill()
        number = _signal.SIGKILL if self._pause else _signal.SIGTERM
        # Without /proc there is the process group of the program.
        _signal_process_groups(descendants(os.getpid()) or {self._program: self._program}, number)
        wait = self._pause or TERM_GRACE_S
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S) or _FIRST_PAUSE_S
        self._due = now + wait
        return wait


class WorkerGroup:
    """Control group of a worker, below that of its supervisor; it contains everything that the worker starts.

    `posix_spawn` cannot put a program into a group, so the worker is in it and the program inherits it.
    """

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._path = _subgroup(parent, os.getpid())
        self._inside = False

    def enter(self) -> None:
        """Create the group and move the worker into it."""
        if not self._path or self._inside:
            return
        try:
            os.mkdir(self._path)
        except OSError:  # It exists already, or creating one is not permitted; writing to it shows which.
            pass
        self._inside = _write(self._path, "cgroup.procs", b"0")

    def kill(self) -> None:
        """Kill everything in the group except the worker, which leaves it until `enter`."""
        if self._inside:
            self._inside = not _write(self._parent, "cgroup.procs", b"0")
        if not self._inside:
            _write(self._path, "cgroup.kill", b"1")


class Poller:
    """Waits for descriptors and for children (SIGCHLD)."""

    def __init__(self, *descriptors: int) -> None:
        self._poll = select.poll()
        self._open = list(descriptors)
        for descriptor in descriptors:
            self._poll.register(descriptor, select.POLLIN)
        self._wakeup, write_end = os.pipe()
        for end in (self._wakeup, write_end):
            os.set_blocking(end, False)
        self._poll.register(self._wakeup, select.POLLIN)
        self._open += [self._wakeup, write_end]
        _signal.signal(_signal.SIGCHLD, _on_child)
        _signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def watch_process(self, pid: int) -> None:
        """Also report the end of a process: its socket stays open if a fork of the process holds a copy of it."""
        if sys.platform != "linux":
            return
        try:
            self._open.append(os.pidfd_open(pid))
        except OSError:
            return
        self._poll.register(self._open[-1], select.POLLIN)

    def wait(self, timeout_s: float | None = None) -> set[int]:
        """Wait, and return the descriptors that are readable or closed."""
        ready = {descriptor for descriptor, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000)}
        if self._wakeup in ready:
            ready.discard(self._wakeup)
            os.read(self._wakeup, _CHUNK)
        return ready

    def ignore_descriptors(self) -> None:
        """From now on, wait for children only."""
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


def _on_child(number: int, frame: object) -> None:
    """Do nothing: only a signal with a handler is written to the wake-up descriptor."""


def _receive(connection: _socket.socket) -> tuple[bytes, list[int]]:
    """Receive data and descriptors; no data if the other side has ended."""
    try:
        room = _socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT_BYTES)
        payload, ancillary, _, _ = connection.recvmsg(_CHUNK, room)
    except OSError:
        return b"", []
    raw = b"".join(data for _, _, data in ancillary)
    descriptors = [int.from_bytes(raw[at : at + _INT_BYTES], sys.byteorder) for at in range(0, len(raw), _INT_BYTES)]
    for descriptor in descriptors:  # There is one thread, so no program is started before this is done.
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - a positional-only parameter
    return payload, descriptors


def _receive_rest(payload: bytes, connection: _socket.socket) -> SpawnRequest:
    """Receive and decode the rest of a request."""
    while len(payload) < _LENGTH_DIGITS or len(payload) < _LENGTH_DIGITS + int(payload[:_LENGTH_DIGITS]):
        more = connection.recv(_CHUNK)
        if not more:  # The host ended while sending.
            os._exit(0)
        payload += more
    return unpack(payload[_LENGTH_DIGITS:])


def _spawn(request: SpawnRequest, descriptors: list[int]) -> int:
    """Start a program as the leader of a new session, with default signal handlers; OSError if that fails."""
    stdout, stderr, *stdin = descriptors
    targets = [(stdout, 1), (stderr, 2), *((descriptor, 0) for descriptor in stdin)]
    if request.long_running or sys.platform != "linux":
        return _fork_and_exec(request, targets)
    return os.posix_spawn(
        request.program,
        request.argv,
        request.env,
        file_actions=[(os.POSIX_SPAWN_DUP2, *target) for target in targets],
        setsid=True,
        setsigdef=[getattr(_signal, name) for name in _RESET],
    )


def _fork_and_exec(request: SpawnRequest, targets: list[tuple[int, int]]) -> int:
    failure, report = os.pipe()
    worker = os.getpid()
    program = os.fork()
    if program == 0:
        _exec(request, targets, worker, report)
    os.close(report)
    error = os.read(failure, 16)  # only end of file, after `execve` has closed the other side
    os.close(failure)
    if error:
        os.waitpid(program, 0)
        raise OSError(int(error), "not executed")
    return program


def _exec(request: SpawnRequest, targets: list[tuple[int, int]], worker: int, report: int) -> None:
    try:
        os.setsid()
        if request.long_running:
            _prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != worker:
            os._exit(_CANNOT_EXECUTE)
        for name in _RESET:  # A signal that is ignored here, or by Python, would stay ignored in the program.
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        for descriptor, target in targets:
            os.dup2(descriptor, target)
        os.execve(request.program, request.argv, request.env)  # noqa: S606 - arguments as they are, no shell
    except OSError as failed:
        os.write(report, str(failed.errno).encode())
    finally:
        os._exit(_CANNOT_EXECUTE)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _reap_children(options: int = 0) -> tuple[dict[int, int], bool]:
    """Return the children that have changed state with their statuses, and whether any child is left."""
    changed: dict[int, int] = {}
    try:
        while (one := os.waitpid(-1, os.WNOHANG | options))[0]:
            changed[one[0]] = one[1]
    except ChildProcessError:
        return changed, False
    return changed, True


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _signal_process_groups(processes: dict[int, int], number: int) -> None:
    """Signal whole process groups: a process cannot escape by forking, only by leaving its group."""
    for group in set(processes.values()) - {0, os.getpgrp()}:
        _kill(-group, number)


def descendants(top: int, without: frozenset[int] | set[int] = frozenset()) -> dict[int, int]:
    """Map the descendants of a process to their process groups, except some processes and their descendants.

    Zombies, which have ended but are not reaped yet, are not included.
    """
    groups: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        parent, groups[pid] = _parent_and_group(pid)
        children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    generation = [top]
    while generation:
        generation = [pid for parent in generation for pid in children.get(parent, ()) if pid not in without]
        found.update((pid, groups[pid]) for pid in generation)
    return found


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _parent_and_group(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent, group, *_ = stat.read().rpartition(b")")[2].split(maxsplit=3)
    except OSError:
        return 0, 0
    return (0, 0) if state == b"Z" else (int(parent), int(group))


def _subgroup(group: str, pid: int) -> str:
    return f"{group}/{pid}" if group else ""


def _write(group: str, name: str, value: bytes) -> bool:
    """Write to a file of a control group; without one, or without permission, /proc is searched instead."""
    if not group:
        return False
    try:
        with open(f"{group}/{name}", "wb", buffering=0) as file:
            file.write(value)
    except OSError:
        return False
    return True


def _remove(group: str) -> None:
    """Delete a control group and its subgroups, if they are empty."""
    if not group:
        return
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass
