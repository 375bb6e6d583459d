"""File access of a call: every path is opened from the handle of an allowed folder.

Links are resolved first. The resolved path is then opened folder by folder without following any link. A link that is
swapped in during that walk ends it instead of leading outside.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Struct, field
from pydantic import Field

from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.errors import ToolClientError, ToolError, ToolPermissionError, ToolServerError
from toolpost.contracts.spec import ToolCategory
from toolpost.policy.paths import Protection, is_path_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from toolpost.contracts.context import ProtectedPath, ToolContext

file_tool: Callable[..., Callable[[Callable[..., Any]], FunctionTool]] = partial(
    tool, file=True, category=ToolCategory.FILE, tags=("builtin", "file")
)
FilePath = Annotated[str, Field(min_length=1, description="A path, absolute or from the working folder")]

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _CLOEXEC
# Without O_NONBLOCK, opening a FIFO without a writer would block.
READ_FLAGS = os.O_RDONLY | _NOFOLLOW | _CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_LIST = os.O_RDONLY | _NOFOLLOW | _CLOEXEC | getattr(os, "O_DIRECTORY", 0)
_NEVER = "no tool may access it, regardless of tools.allowedPaths; change it manually"
_HAS_HANDLES = os.open in os.supports_dir_fd
_SHOWN = 200
_KINDS = frozenset(
    {
        *("proc", "sysfs", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "pstore", "efivarfs"),
        *("cgroup", "cgroup2", "fusectl", "binfmt_misc", "selinuxfs", "devpts", "mqueue", "rpc_pipefs", "nsfs"),
    }
)
_ERROR_TEXTS = {
    errno.ENOENT: ("file_not_found", "File not found: {path!r}; list_files shows the existing files"),
    errno.ENOTDIR: ("not_a_folder", "A part of {path!r} is not a folder, or is a new link; check the path"),
    errno.ELOOP: ("path_refused", "{path!r} leads through links in a circle, or a new one; check the path"),
    errno.EISDIR: ("is_a_folder", "{path!r} is a folder, not a file; name a file in it, or use list_files"),
    errno.EEXIST: ("file_exists", "{path!r} already exists; choose another name, or set overwrite"),
    errno.ENOTEMPTY: ("folder_not_empty", "{path!r} is not empty; set recursive to delete all of it"),
    errno.ENAMETOOLONG: ("name_too_long", "The path {path!r} is longer than a name may be; shorten it"),
    errno.ENOSPC: ("disk_full", "No space left for {path!r}; nothing was changed, free some space first"),
    errno.EROFS: ("read_only", "{path!r} is on a read-only file system"),
    errno.EINVAL: ("path_refused", "{path!r} cannot be used this way; check both paths"),
}
_NO_FOLDER = ("file_not_found", "Folder not found: {path!r}; write_file creates it with the first file in it")
_MOUNTS = Path("/proc/self/mountinfo")


class Place(NamedTuple):
    """A name in an open folder; `path` is the caller's spelling, `real` the resolved path.

    On systems without handles of folders (Windows), `folder` is None and `name` is the whole path.
    """

    folder: int | None
    name: str
    path: str
    real: str

    @property
    def is_root(self) -> bool:
        """Whether this is an allowed folder itself."""
        return self.name == "."

    def status(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)

    def status_or_none(self) -> os.stat_result | None:
        try:
            return self.status()
        except FileNotFoundError:
            return None


class OpenFile(NamedTuple):
    """An open file or folder."""

    fd: int
    status: os.stat_result
    place: Place

    def read(self) -> bytes:
        with os.fdopen(self.fd, "rb", closefd=False) as file:
            return file.read()


class FileAccess(Struct, frozen=True, kw_only=True):
    """Opens the paths that a call may access; `allowed_paths=None` allows all but the kernel's files.

    Protected paths are always rejected. `writes` means that the tool changes files.
    """

    tool_name: str
    allowed_paths: Sequence[str] | None
    protection: Protection = field(default_factory=Protection)
    writes: bool = False

    @classmethod
    def of(cls, ctx: ToolContext, tool_name: str, *, writes: bool = False) -> FileAccess:
        """Create the access of a tool from the context of its call."""
        protection = Protection(ctx.protected_paths)
        return cls(tool_name=tool_name, allowed_paths=ctx.allowed_paths, protection=protection, writes=writes)

    @contextmanager
    def place(self, path: str, *, follow: bool = True, make: bool = False) -> Generator[Place]:
        """Resolve a path to a name in an open folder, and close the folder at the end.

        With `follow=False`, a link at the end of the path is not followed. `make` creates the parent folders.
        """
        with translate_os_errors(path, tool_name=self.tool_name):
            real = self._resolve(path, follow=follow)
            self._refuse(self.protection.of_path(real, writes=self.writes), path)
            root = self._root_of(real, path)
            folder, name = _descend(root, real, make=make, check=partial(self.check_unprotected, path=path))
            try:
                place = Place(folder, name, path, real)
                self._check_entry(place)
                yield place
            finally:
                if folder is not None:
                    os.close(folder)

    @contextmanager
    def open_file(self, path: str) -> Generator[OpenFile]:
        """Open a regular file for reading; reject folders, devices, FIFOs and the kernel's files."""
        with self.place(path) as place:
            self.check_regular(place, place.status())
            fd = os.open(place.name, READ_FLAGS, dir_fd=place.folder)
            try:
                status = os.fstat(fd)
                self.check_regular(place, status)  # it may have been replaced
                self.check_unprotected(status, path)
                yield OpenFile(fd, status, place)
            finally:
                os.close(fd)

    @contextmanager
    def open_folder(self, path: str) -> Generator[OpenFile]:
        with self.place(path) as place:
            status = place.status()
            if not stat.S_ISDIR(status.st_mode):
                raise self.refusal(
                    f"{display_path(path)!r} is not a folder; name the folder that contains it", "not_a_folder"
                )
            self.check_on_disk(status, path)
            fd = os.open(place.name, _LIST, dir_fd=place.folder)
            try:
                yield OpenFile(fd, status, place)
            finally:
                os.close(fd)

    def check_regular(self, place: Place, status: os.stat_result) -> None:
        """Reject everything except regular files."""
        if stat.S_ISDIR(status.st_mode):
            raise tool_error_from_os(IsADirectoryError(errno.EISDIR, ""), place.path, tool_name=self.tool_name)
        self.check_on_disk(status, place.path)
        if not stat.S_ISREG(status.st_mode):
            kind = _kind_of(status.st_mode)
            raise self.refusal(f"{display_path(place.path)!r} is {kind}, not a plain file", "not_a_file")

    def check_unprotected(self, status: os.stat_result, path: str) -> None:
        """Reject a protected file or folder, regardless of the path that led to it."""
        self._refuse(self.protection.of_status(status, writes=self.writes), path)

    def is_protected(self, status: os.stat_result) -> bool:
        """Return whether a file or folder is protected, regardless of the path that led to it."""
        return self.protection.of_status(status, writes=self.writes) is not None

    def check_holds_nothing(self, place: Place, status: os.stat_result) -> None:
        """Reject moving or deleting a folder or link on the way to a protected path."""
        inside = self.protection.below(place.real, status)
        if inside is not None:
            message = (
                f"{display_path(place.path)!r} holds {inside.path!r}, which is protected: {inside.reason}; {_NEVER}"
            )
            raise ToolPermissionError(message, tool_name=self.tool_name, code="path_protected")

    def _check_entry(self, place: Place) -> None:
        """Reject a protected entry, and a protected name in its folder."""
        status = place.status_or_none()
        if status is not None:
            self.check_unprotected(status, place.path)
        if place.folder is not None and not place.is_root:
            folder = os.fstat(place.folder)
            self._refuse(self.protection.of_name(folder, place.name, writes=self.writes), place.path)

    def _refuse(self, protected: ProtectedPath | None, path: str) -> None:
        if protected is not None:
            message = f"Path {display_path(path)!r} is protected: it is {protected.reason}; {_NEVER}"
            raise ToolPermissionError(message, tool_name=self.tool_name, code="path_protected")

    def start_folder(self, path: str | None) -> str:
        """Return the given folder, else the working folder if allowed, else the first allowed one."""
        if path is not None:
            return path
        if self.allowed_paths and not is_path_allowed(".", self.allowed_paths):
            return self.allowed_paths[0]
        return "."

    def refusal(self, message: str, code: str) -> ToolClientError:
        return ToolClientError(message, tool_name=self.tool_name, code=code)

    def leads_into(self, path: str, folder: str) -> bool:
        """Return whether a path is a folder, given by its real path, or is inside it."""
        return f"{self._resolve(path, follow=False)}{os.sep}".startswith(f"{folder}{os.sep}")

    def _resolve(self, path: str, *, follow: bool) -> str:
        try:
            os.fsencode(path)
            if follow:
                return _check_path(os.path.realpath(path))
            above, name = os.path.split(path.rstrip(os.sep) or path)
            if name in ("", os.curdir, os.pardir):
                raise self.refusal(
                    f"{display_path(path)!r} does not name a file; write the path to its last name", "path_refused"
                )
            return _check_path(f"{os.path.realpath(above or os.curdir).rstrip(os.sep)}{os.sep}{name}")
        except ValueError:
            message = f"the path {display_path(path)!r} contains a character that is invalid in file names, such as NUL"
            raise self.refusal(message, "path_refused") from None

    def _root_of(self, real: str, path: str) -> str:
        if self.allowed_paths is None:
            return os.path.splitdrive(real)[0] + os.sep
        for folder in map(os.path.realpath, self.allowed_paths):
            if real == folder or real.startswith(folder.rstrip(os.sep) + os.sep):
                return folder
        allowed = ", ".join(self.allowed_paths) or "none"
        message = f"Path {display_path(path)!r} not in allowed paths ({allowed}); add its folder to tools.allowedPaths"
        raise ToolPermissionError(message, tool_name=self.tool_name, code="path_refused")

    def check_on_disk(self, status: os.stat_result, path: str) -> None:
        """Reject the kernel's files: they expose processes and their environments, and control the machine."""
        if is_kernel_device(status.st_dev):
            message = (
                f"{display_path(path)!r} is a file of the kernel's, not one on a disk; such files are never opened"
            )
            raise ToolPermissionError(message, tool_name=self.tool_name, code="path_refused")


def _check_path(real: str) -> str:
    if "\0" in real:
        raise ValueError(real)
    return real


def _descend(root: str, real: str, *, make: bool, check: Callable[[os.stat_result], None]) -> tuple[int | None, str]:
    """Open the parent folder of `real` from `root` without following links; `check` gets each folder's status."""
    if make and real != root:
        Path(root).mkdir(parents=True, exist_ok=True)
    if not _HAS_HANDLES:  # Untested: Windows has no handles of folders, so the path is only checked.
        if make:
            Path(real).parent.mkdir(parents=True, exist_ok=True)
        return None, real
    *above, name = Path(real).relative_to(root).parts or (os.curdir,)
    folder = os.open(root, _FOLDER)
    try:
        for part in above:
            folder = _step(folder, part, make=make)
            check(os.fstat(folder))
    except (OSError, ToolPermissionError):
        os.close(folder)
        raise
    return folder, name


def _step(folder: int, part: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
    below = os.open(part, _FOLDER | _NOFOLLOW, dir_fd=folder)
    os.close(folder)
    return below


def _kind_of(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISLNK(mode):
        return "a link in a circle, or one that was put there just now"
    return "a device" if sys.platform != "win32" else "something special"


@contextmanager
def translate_os_errors(path: str, *, tool_name: str) -> Generator[None]:
    """Raise an OSError of the block as an error of the tool."""
    try:
        yield
    except OSError as refused:
        raise tool_error_from_os(refused, path, tool_name=tool_name) from refused


def tool_error_from_os(refused: OSError, path: str, *, tool_name: str) -> ToolError:
    """Map an OSError to an error of the tool, with the next action."""
    if refused.errno in (errno.EACCES, errno.EPERM):
        message = f"the system denies this process access to {display_path(path)!r}; check its mode and its owner"
        return ToolPermissionError(message, tool_name=tool_name, code="file_permission")
    no_folder = refused.errno == errno.ENOENT and tool_name in {"list_files", "glob_files"}
    error_text = _NO_FOLDER if no_folder else _ERROR_TEXTS.get(refused.errno or 0)
    if error_text is None:
        message = f"{display_path(path)!r}: {refused.strerror or refused}"
        return ToolServerError(message, tool_name=tool_name, code="file_error")
    code, message = error_text
    return ToolClientError(message.format(path=display_path(path)), tool_name=tool_name, code=code)


def file_changed_error(path: str, *, tool_name: str) -> ToolServerError:
    """Build the error for a file that another program changed concurrently; nothing was written."""
    message = f"{display_path(path)!r} was changed by another program; read it again, then repeat the call"
    return ToolServerError(message, tool_name=tool_name, code="file_changed")


def display_path(path: str) -> str:
    """Shorten a path for a message, and escape characters that UTF-8 cannot encode."""
    text = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}..."
    return text.encode("utf-8", "backslashreplace").decode()


def is_kernel_device(device: int) -> bool:
    """Return whether a device is a file system of the kernel, such as /proc or /sys, at any mount point."""
    if sys.platform != "linux" or os.major(device) != 0:  # real disks have a major number
        return False
    return device in _kernel_devices()


def _kernel_devices() -> set[int]:
    """Read the mounts each time: they change, and few files have such a device."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {folder.stat().st_dev for folder in (Path("/proc"), Path("/sys")) if folder.is_dir()}
    return {_device(line) for line in lines if _file_system_kind(line) in _KINDS}


def _device(line: str) -> int:
    major, _, minor = line.split(" ", 3)[2].partition(":")
    return os.makedev(int(major), int(minor))


def _file_system_kind(line: str) -> str:
    return line.partition(" - ")[2].partition(" ")[0]
