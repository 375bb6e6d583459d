"""The steward: a program of its own below a host, with workers that run one command after the other.

    host ── steward ── worker ── command ── whatever it starts
                    └─ worker ── command

Workers stay, so that a command costs one `posix_spawn` and no new keeper. Steward and workers adopt the orphans below
them: all that a worker adopts belongs to the one command that it runs, and the command is over when nobody is left
below its worker. Whichever of the three on the left is killed, another one ends what is left: a worker when the
steward is gone, the steward when a worker or the host is.

On the steward's socket the host sends one byte with a socket for every worker that it wants; its end means that the
host hung up or died. On a worker's socket the host sends an `Order` with the descriptors of stdout, stderr and, where
there is one, stdin; the answer is one line, `ended CODE` or `failed STAGE ERRNO`. The end of that socket means that
the command has to end, and the worker after it. This file runs without the rest of Toolpost, and only on Linux.
"""
# ruff: noqa: PTH106, PTH123, PTH208 - pathlib is slow to import.

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time

from toolpost.wire.keeper import TERM_GRACE_S, Order, unpack

_PR_SET_CHILD_SUBREAPER = 36
_LENGTH_DIGITS = 10
_CHUNK = 65536
_ROOM = socket.CMSG_SPACE(3 * 4)
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_PLAIN_AGAIN = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ)
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 1.0
_WORKERS_END_S = TERM_GRACE_S + 1.0


def main(descriptor: int, host: int, group: str) -> None:
    """Serve the host on this socket, and end everything once it hung up or is dead."""
    _adopt_orphans()
    # Whoever asks a whole group to end also asks the host, and that decides what becomes of its commands.
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - it has no name to be given by
    steward = Steward(descriptor, group)
    steward.ears.watch(host)
    if os.getppid() == host:
        steward.serve()
    steward.leave()


class Steward:
    """Starts workers, and ends those whom a killed worker leaves."""

    def __init__(self, descriptor: int, group: str) -> None:
        self.ears = Ears(descriptor)
        self._line = socket.socket(fileno=descriptor)
        self._group = group
        self._workers: set[int] = set()
        self._watched, self._held = os.pipe()

    def serve(self) -> None:
        """Start a worker for every socket that comes, until none will."""
        pause: float | None = None
        while True:
            heard = self.ears.listen(pause)
            if self._lost() or pause:
                pause = self._end_strays(pause or _FIRST_PAUSE_S)
            if heard - {self._line.fileno()} or (heard and not self._started()):
                return

    def _lost(self) -> set[int]:
        """The workers that have ended; those that somebody stopped go on."""
        found, _ = _reaped(os.WUNTRACED)
        for worker in [pid for pid, status in found.items() if os.WIFSTOPPED(status)]:
            del found[worker]
            with contextlib.suppress(OSError):
                os.kill(worker, signal.SIGCONT)
        lost = self._workers & found.keys()
        self._workers -= lost
        return lost

    def _started(self) -> bool:
        _, sockets = _received(self._line)
        for own in sockets:
            with contextlib.suppress(OSError):  # No more processes may be had: the host sees the end of the socket.
                worker = os.fork()
                if worker == 0:
                    self._be_worker(own)
                self._workers.add(worker)
            os.close(own)
        return bool(sockets)

    def _be_worker(self, own: int) -> None:
        try:
            self.ears.close()
            os.close(self._held)
            Worker(own, self._watched).serve(self._group)
        finally:
            os._exit(0)

    def _end_strays(self, pause: float) -> float | None:
        """Kill whoever has lost its worker; how long until that must be done again, if anybody was there."""
        strays = _below(os.getpid(), without=self._workers)
        _signal_groups(strays, signal.SIGKILL)
        return min(2 * pause, _LONGEST_PAUSE_S) if strays else None

    def leave(self) -> None:
        """Have the workers end what they run, and wait until nobody is left."""
        os.close(self._held)
        self.ears.ignore()
        patient_until = time.monotonic() + _WORKERS_END_S
        pause = _FIRST_PAUSE_S
        while _reaped()[1]:
            self.ears.listen(pause)
            if time.monotonic() > patient_until:
                _write(self._group, "cgroup.kill", b"1")
                _signal_groups(_below(os.getpid()), signal.SIGKILL)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        _remove(self._group)


class Worker:
    """Runs the commands that come on its socket, one at a time."""

    def __init__(self, own: int, watched: int) -> None:
        self._line = socket.socket(fileno=own)
        self._watched = watched
        self._ears = Ears(own, watched)
        self._hung_up = False

    def serve(self, group: str) -> None:
        """Run commands until the host or the steward is gone."""
        _adopt_orphans()
        _write(group, "cgroup.procs", b"0")
        while not self._hung_up:
            heard = self._ears.listen()
            if self._watched in heard:
                return
            if not heard:
                continue
            payload, descriptors = _received(self._line)
            if not payload:
                return
            self._answer(self._run(_whole(payload, self._line), descriptors))

    def _answer(self, answer: str) -> None:
        try:
            self._line.send(answer.encode())
        except OSError:
            self._hung_up = True

    def _run(self, order: Order, descriptors: list[int]) -> str:
        stage = "cwd"
        try:
            os.chdir(order.cwd)
            stage = "exec"
            command = _spawned(order, descriptors)
        except OSError as failed:
            return f"failed {stage} {failed.errno}\n"
        finally:
            os.chdir("/")  # An idle worker keeps no folder from being unmounted.
            for descriptor in descriptors:
                os.close(descriptor)
        return f"ended {os.waitstatus_to_exitcode(self._seen_to_end(command))}\n"

    def _seen_to_end(self, command: int) -> int:
        """Wait until nobody is left below, and return how the command ended; when it does, the others have to."""
        status: int | None = None
        ending = Ending(command)
        while True:
            ended, anybody = _reaped()
            if command in ended:
                status = ended[command]
            if not anybody:
                return 0 if status is None else status
            pause = ending.step() if self._hung_up or status is not None else None
            if self._ears.listen(pause) and not self._hung_up:
                self._hung_up = True
                self._ears.ignore()


class Ending:
    """Asks everybody below to end, and kills whoever has not after a while."""

    def __init__(self, command: int) -> None:
        self._command = command
        self._pause = 0.0
        self._due = 0.0

    def step(self) -> float:
        """Do what is due; how long until the next step is."""
        now = time.monotonic()
        if now < self._due:
            return self._due - now
        number = signal.SIGKILL if self._pause else signal.SIGTERM
        _signal_groups(_below(os.getpid()) or {self._command: self._command}, number)
        wait = self._pause or TERM_GRACE_S
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S) or _FIRST_PAUSE_S
        self._due = now + wait
        return wait


class Ears:
    """What wakes a process: something on a descriptor, or the end of somebody below."""

    def __init__(self, *descriptors: int) -> None:
        self._poll = select.poll()
        self._open = list(descriptors)
        for descriptor in descriptors:
            self._poll.register(descriptor, select.POLLIN)
        self._chime, chimes = os.pipe()
        for end in (self._chime, chimes):
            os.set_blocking(end, False)
        self._poll.register(self._chime, select.POLLIN)
        self._open += [self._chime, chimes]
        signal.signal(signal.SIGCHLD, _chimed)
        signal.set_wakeup_fd(chimes, warn_on_full_buffer=False)

    def watch(self, process: int) -> None:
        """Be woken by its end; its socket may not end with it, when a fork of it holds a copy."""
        try:
            self._open.append(os.pidfd_open(process))
        except OSError:
            return
        self._poll.register(self._open[-1], select.POLLIN)

    def listen(self, timeout_s: float | None = None) -> set[int]:
        """Wait; the descriptors on which there is something, or whose end there is."""
        heard = {descriptor for descriptor, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000)}
        if self._chime in heard:
            heard.discard(self._chime)
            os.read(self._chime, _CHUNK)
        return heard

    def ignore(self) -> None:
        """Hear nothing but the end of those below from now on."""
        self._poll = select.poll()
        self._poll.register(self._chime, select.POLLIN)

    def close(self) -> None:
        """Close every descriptor."""
        for descriptor in self._open:
            os.close(descriptor)


def _chimed(number: int, frame: object) -> None:
    """Only a signal that somebody handles is written to the chime."""


def _received(line: socket.socket) -> tuple[bytes, list[int]]:
    """What came, and the descriptors that came with it; nothing when the other side is gone."""
    try:  # Not `socket.recv_fds`: it forgets the flags, and commands would inherit what is received.
        payload, ancillary, _, _ = line.recvmsg(_CHUNK, _ROOM, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return b"", []
    raw = b"".join(data for _, _, data in ancillary)
    return payload, [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]


def _whole(payload: bytes, line: socket.socket) -> Order:
    """The order of which the first part has come."""
    while len(payload) < _LENGTH_DIGITS or len(payload) < _LENGTH_DIGITS + int(payload[:_LENGTH_DIGITS]):
        more = line.recv(_CHUNK)
        if not more:  # The host died in the middle of it.
            os._exit(0)
        payload += more
    return unpack(payload[_LENGTH_DIGITS:])


def _spawned(order: Order, descriptors: list[int]) -> int:
    stdout, stderr, *stdin = descriptors
    actions = [(os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, descriptor, 0) for descriptor in stdin]
    # What is ignored, here or by Python itself, would stay ignored in the program.
    return os.posix_spawn(
        order.program, order.argv, order.env, file_actions=actions, setsid=True, setsigdef=_PLAIN_AGAIN
    )


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reaped(also: int = 0) -> tuple[dict[int, int], bool]:
    """Those below who have ended, with how; and whether anybody is left."""
    found: dict[int, int] = {}
    try:
        while (ended := os.waitpid(-1, os.WNOHANG | also))[0]:
            found[ended[0]] = ended[1]
    except ChildProcessError:
        return found, False
    return found, True


def _signal_groups(members: dict[int, int], number: int) -> None:
    """Signal all of the groups at once: nobody in a group can escape by forking, only by leaving it."""
    for group in set(members.values()) - {0, os.getpgrp()}:
        with contextlib.suppress(OSError):
            os.killpg(group, number)


def _below(top: int, without: frozenset[int] | set[int] = frozenset()) -> dict[int, int]:
    """Everybody below a process, except these and those below them, each with its process group."""
    groups: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid in _everybody():
        parent, groups[pid] = _parent_and_group(pid)
        children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    generation = [top]
    while generation:
        generation = [pid for parent in generation for pid in children.get(parent, ()) if pid not in without]
        found.update((pid, groups[pid]) for pid in generation)
    return found


def _everybody() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _parent_and_group(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            _, parent, group, *_ = stat.read().rpartition(b")")[2].split(maxsplit=3)
    except OSError:
        return 0, 0
    return int(parent), int(group)


def _write(group: str, name: str, value: bytes) -> None:
    """Write to a control group; without one, or without its consent, the walk through /proc has to do."""
    with contextlib.suppress(OSError):
        if group:
            with open(f"{group}/{name}", "wb", buffering=0) as file:
                file.write(value)


def _remove(group: str) -> None:
    with contextlib.suppress(OSError):
        if group:
            os.rmdir(group)
