"""The files of a Toolbox that no file tool may change: configuration, lock file, secrets, and the code of tools."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from toolpost.catalog.function import FunctionTool
from toolpost.configuration.defaults import FILE_NAME, LOCK_NAME
from toolpost.configuration.loading import expand_home
from toolpost.configuration.settings import Settings
from toolpost.contracts.context import ProtectedPath
from toolpost.contracts.spec import Tool
from toolpost.policy.paths import is_template
from toolpost.sources.base import is_local_file
from toolpost.sources.registry import describe_transport

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig

_BESIDE = {
    FILE_NAME: "the configuration",
    LOCK_NAME: "the lock file of the tools",
    ".env": "a file of environment variables",
}
# Files that interpreters run; other files in a command are most often data.
_SCRIPTS = frozenset(
    {
        *(".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".cmd"),
        *(".rb", ".pl", ".php", ".lua", ".r", ".jl", ".jar", ".wasm", ".so", ".dll", ".exe"),
    }
)
_INTERPRETERS = re.compile(
    r"(python|pypy|node|deno|bun|ruby|perl|php|lua|uv|npx|uvx|(ba|da|z|fi|k)?sh)[\d.]*", re.IGNORECASE
)
_SUBCOMMANDS = frozenset({"run", "x", "exec", "python", "python3"})  # of programs that start an interpreter
_FROM_FILE = "file:"
_RUNNING = "code that this program runs"
_MOST_MODULES = 1000


class ProtectedFiles:
    """The protected paths of one Toolbox, with the files that sources read and the modules that they import."""

    def __init__(self, settings: Settings, *, config: Path | None, tools: Sequence[Tool]) -> None:
        allowed = map(_fixed_part, settings.tools.allowed_paths or [])
        self._workplaces = [
            folder.absolute() for folder in (Path.cwd(), *allowed, *([] if config is None else [config.parent]))
        ]
        self._fixed = [*_configuration(settings, config), *_tool_code(tools), *_find_installed()]
        self._fixed += _find_search_path(self._workplaces)
        self._python: list[ExternalToolConfig] = []
        self._version = 0  # increased by `add`
        self._known: tuple[object, tuple[ProtectedPath, ...]] = (None, ())  # a state, and the paths at that state
        self._read: frozenset[tuple[str, str]] = frozenset()  # files that sources have read, with the source's name
        for source in settings.all_sources():
            self.add(source)

    def add(self, source: ExternalToolConfig) -> None:
        """Protect the files that a source loads or starts, permanently: calls in flight may outlive the source."""
        named = list(_of_source(source))
        files = [*named, *(path for file in named for path in _find_imported_modules(file))]
        self._fixed = [*self._fixed, *files, *_folders(files, self._workplaces)]
        if describe_transport(source.transport).traits(source).is_own_code:
            self._python = [*self._python, source]
        self._version += 1  # last: another thread may be computing the paths of the version before

    def add_read(self, source: str, files: Collection[str]) -> None:
        """Protect the files that a source has read."""
        self._read = self._read.union((file, source) for file in files)
        self.paths()

    def paths(self) -> tuple[ProtectedPath, ...]:
        """Return the paths that are protected now; the first time after a change takes 20 µs per file."""
        read = self._read
        state = (self._version, len(sys.modules) if self._python else 0, read)
        known, paths = self._known
        if state != known:
            loaded = [path for source in self._python for path in _find_imported(source)]
            files = [_protect(file, f"a file of source {name!r}") for file, name in sorted(read)]
            entries = [*self._fixed, *loaded, *files]
            paths = tuple(dict.fromkeys([*entries, *(path for file in entries for path in _find_compiled(file))]))
            self._known = (state, paths)  # in one step: another thread reads both
        return paths


def _fixed_part(path: Path) -> Path:
    """Return the folder above the first segment that differs by tenant or user; the path itself without one."""
    while is_template(path):
        path = path.parent
    return path


def _configuration(settings: Settings, config: Path | None) -> Iterator[ProtectedPath]:
    if settings.data_dir is not None:
        yield _protect(settings.data_dir, "the data folder, with the key that encrypts it")
    if settings.accounts.key.startswith(_FROM_FILE):
        yield _protect(
            expand_home(settings.accounts.key.removeprefix(_FROM_FILE)), "the key that encrypts the data folder"
        )
    if settings.lock is not None:
        yield _protect(settings.lock, _BESIDE[LOCK_NAME])
    if config is not None:
        yield _protect(config, "the configuration")
    folders = {Path.cwd(), Path.cwd() if config is None else config.absolute().parent}
    for folder in sorted(folders):
        yield from (_protect(folder / name, reason) for name, reason in _BESIDE.items())


def _folders(files: Sequence[ProtectedPath], workplaces: Sequence[Path]) -> Iterator[ProtectedPath]:
    """Yield the folders of scripts: a file beside a script may be loaded instead of the intended one.

    A folder that is also a workplace, such as the project's own, stays writable except for the script itself.
    """
    for file in files:
        folder = Path(file.path).parent
        if Path(file.path).suffix.lower() in _SCRIPTS and not _is_workplace(folder, workplaces):
            yield ProtectedPath(str(folder), f"the folder of {file.path!r}, {file.reason}", readable=True)


def _is_workplace(folder: Path, workplaces: Sequence[Path]) -> bool:
    """Return whether a workplace is the folder or below it."""
    return any(place.is_relative_to(folder) for place in workplaces)


def _find_imported_modules(file: ProtectedPath) -> Iterator[ProtectedPath]:
    """Yield the modules beside a Python script that it imports, directly or indirectly."""
    script = Path(file.path)
    seen, waiting = {script}, [script] if script.suffix == ".py" else []
    while waiting and len(seen) < _MOST_MODULES:
        for module in _find_imports(waiting.pop(), script.parent):
            if module not in seen:
                seen.add(module)
                waiting.append(module)
                yield ProtectedPath(str(module), f"imported by {script.name}, {file.reason}")


def _find_imports(file: Path, folder: Path) -> Iterator[Path]:
    """Yield the files of the modules that a file imports from its package or from the folder of the script."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # reported when the source connects
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(folder, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else folder
            for alias in node.names:
                yield from _files_of(base, f"{node.module}.{alias.name}" if node.module else alias.name)


def _files_of(folder: Path, module: str) -> Iterator[Path]:
    """Yield the files below a folder that importing a module loads, outer packages first."""
    for part in module.split("."):
        candidates = (folder / f"{part}.py", folder / part / "__init__.py")
        yield from (file for file in candidates if file.is_file())
        folder = folder / part


def _find_compiled(file: ProtectedPath) -> Iterator[ProtectedPath]:
    """Yield the files that Python would load instead of a module: bytecode, or a package or extension of its name."""
    path = Path(file.path)
    if path.suffix != ".py" or file.readable:
        return
    names = [path.stem, *(f"{path.stem}{suffix}" for suffix in EXTENSION_SUFFIXES)]
    yield ProtectedPath(str(path.parent / "__pycache__"), f"the bytecode of {file.reason}", readable=True)
    yield from (ProtectedPath(str(path.with_name(name)), f"loaded in place of {file.reason}") for name in names)


def _of_source(source: ExternalToolConfig) -> Iterator[ProtectedPath]:
    """Yield the files that a source loads or starts."""
    reason = f"a file of source {source.name!r}"
    transport = describe_transport(source.transport)
    documents = {source.connection, *transport.files(source)}
    yield from (_protect(document, reason) for document in sorted(documents) if is_local_file(document))
    if source.env_file is not None:
        yield _protect(source.env_file, f"the variables of source {source.name!r}")
    if "command" in transport.forms:
        started = f"a program of source {source.name!r}"
        yield from (_protect(path, started) for path in _scripts(source))
    for value in source.auth_config.values():
        if isinstance(value, str) and value.startswith(_FROM_FILE):
            yield _protect(expand_home(value.removeprefix(_FROM_FILE)), f"a secret of source {source.name!r}")


def _scripts(source: ExternalToolConfig) -> Iterator[Path]:
    """Yield the program of a command, and the scripts among its words."""
    folder = Path(source.cwd or Path.cwd())
    program, *words = _words(source.connection) or [""]
    executable = shutil.which(program) if os.sep not in program else None
    if executable is not None:
        yield Path(executable)
    templates = describe_transport(source.transport).command_words(source)
    for word in [program, *words, *templates]:
        path = folder / Path(word.rpartition("=")[2])
        if path.suffix.lower() in _SCRIPTS or (os.sep in word and _is_program(path)):
            yield path
    if _INTERPRETERS.fullmatch(Path(program).stem):
        yield from _find_interpreted(words, folder)


def _find_interpreted(words: list[str], folder: Path) -> Iterator[Path]:
    """Yield the files that an interpreter runs by a bare name: a script, a folder, or a module after `-m`."""
    named = [word for word in words if word not in _SUBCOMMANDS]
    for option, word in zip(["", *named], named, strict=False):
        if option == "-m":
            module = folder / word.replace(".", os.sep)
            yield from (folder / word.partition(".")[0], module.with_name(f"{module.name}.py"))
            return
        if not word.startswith("-"):
            yield folder / word
            return


def _words(command: str) -> list[str]:
    try:
        return [] if "://" in command.partition(" ")[0] else shlex.split(command)
    except ValueError:  # reported when the source connects
        return []


def _is_program(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return False


def _tool_code(tools: Sequence[Tool]) -> Iterator[ProtectedPath]:
    """Yield the files with the code of tools that were passed to the Toolbox."""
    for tool in tools:
        code: Any = tool.fn if isinstance(tool, FunctionTool) else type(tool)
        file = _file_of(sys.modules.get(getattr(code, "__module__", "")))
        if file is not None:
            yield _protect(file, f"the code of tool {tool.spec.name!r}")


def _find_installed() -> Iterator[ProtectedPath]:
    """Yield the installed packages: a tool that writes there writes code that runs at the next start."""
    install_paths = sysconfig.get_paths()
    folders = [
        str(Path(__file__).parent.parent),
        *(install_paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")),
    ]
    if sys.prefix != sys.base_prefix:
        folders.append(sys.prefix)
    for folder in dict.fromkeys(folders):
        yield ProtectedPath(folder, _RUNNING, readable=True)


def _find_search_path(workplaces: Sequence[Path]) -> Iterator[ProtectedPath]:
    """Yield the other folders of `sys.path`, except workplaces."""
    for folder in (Path(entry) for entry in sys.path if entry):
        works_there = _is_workplace(folder, workplaces) or any(folder.is_relative_to(place) for place in workplaces)
        if folder.is_absolute() and not works_there:
            yield ProtectedPath(str(folder), _RUNNING, readable=True)


def _find_imported(source: ExternalToolConfig) -> Iterator[ProtectedPath]:
    """Yield the module of a Python source, and the modules it has imported from its own folder."""
    own = source.connection if source.connection.endswith(".py") else _file_of(sys.modules.get(source.connection))
    if own is None:
        return
    reason = f"code of source {source.name!r}"
    yield _protect(own, reason)
    package = "" if source.connection.endswith(".py") else source.connection
    folder = _path_prefix(Path(own).absolute().parents[package.count(".")])
    environment = tuple(_path_prefix(path.path) for path in _find_installed())
    for module in list(sys.modules.values()):
        file = _file_of(module)
        if file is None:
            continue
        place = os.path.normcase(os.path.normpath(file))  # a string, not a Path: there are thousands of modules
        if place.startswith(folder) and not place.startswith(environment):
            yield _protect(file, reason)


def _path_prefix(folder: str | Path) -> str:
    """Return how the paths of files below a folder begin."""
    return os.path.join(os.path.normcase(os.path.normpath(folder)), "")  # noqa: PTH118 - a Path has no such end


def _file_of(module: ModuleType | None) -> str | None:
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return file if isinstance(file, str) else None


def _protect(path: str | Path, reason: str) -> ProtectedPath:
    return ProtectedPath(os.path.normpath(Path(path).absolute()), reason)
