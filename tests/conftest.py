"""What holds for the whole suite."""

import gc
import os
import pkgutil
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests import requirements
from tests.left_out import is_left_out, unwanted_marks
from tests.parts import MEASURED, PartMissingError, leave_programs_unmeasured
from tests.postgres.databases import drop_database, new_database
from tests.postgres.in_place_of_sqlite import InPlaceOfSQLite
from tests.postgres.server import NotStartedError, PostgreSQL, running
from tests.process_state import ProcessState
from tests.programs import UNMARKED, WATCH, keep_modules
from toolpost import __path__
from toolpost.catalog.threads import idle_workers
from toolpost.contracts.errors import ConfigError
from toolpost.stores import registry

# How long an example takes says how busy the machine is. What CI says must depend on the change alone; elsewhere every
# run may find something new.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.register_profile("quick", settings.get_profile("here"), max_examples=25)
settings.load_profile("ci" if os.environ.get("CI") else "here")
OF_POSTGRES = Path(__file__).parent / "postgres"
WATCH.begin()
keep_modules()


@pytest.fixture(scope="session", autouse=True)
def _programs_start_unmeasured() -> Iterator[None]:
    """Coverage makes every program start slower, and most are servers of others; the few it is about ask for it."""
    leave_programs_unmeasured()
    yield
    os.environ.update(MEASURED)


@pytest.fixture
def one_segment_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are not written before somebody waits for it: on a busy machine those of a call may be two segments."""
    monkeypatch.setattr("toolpost.stores.writer.LINGER_S", 60.0)


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Set up before and ended after every other fixture of a test, whose own changes are thereby undone."""
    before = ProcessState()
    yield
    if changes := before.restore():
        pytest.fail(f"This test leaves the process changed for the next one: {'; '.join(changes)}", pytrace=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that a test can fill."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"NOT TESTED on a real full disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgreSQL]:
    """One server for all tests of a worker."""
    try:
        with running(request.config.getoption("postgres_version")) as server:
            yield server
    except PartMissingError as missing:
        pytest.skip(f"NOT TESTED against a real PostgreSQL: {missing}")
    except NotStartedError as refused:
        pytest.skip(f"NOT TESTED against a real PostgreSQL, which cannot start here: {refused}")


@pytest.fixture
def postgres_url(postgres: PostgreSQL) -> Iterator[str]:
    """A new database with empty tables of Toolpost."""
    url = new_database(postgres)
    yield url
    drop_database(postgres, url)


@pytest.fixture(autouse=True)
def _store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With `--store postgres`, let PostgreSQL take the place of SQLite in every Toolbox of this process.

    The tests of PostgreSQL itself name their databases.
    """
    if request.config.getoption("store") != "postgres" or request.path.is_relative_to(OF_POSTGRES):
        yield
        return
    if request.node.get_closest_marker("programs") and "postgres_url" not in request.fixturenames:
        pytest.skip("other processes would open SQLite")
    if request.node.get_closest_marker("sqlite"):
        pytest.skip("about SQLite")
    InPlaceOfSQLite.server = request.getfixturevalue("postgres")
    WATCH.take()  # the server is a program of the worker, not of this test
    place = f"{InPlaceOfSQLite.__module__}:{InPlaceOfSQLite.__name__}"
    monkeypatch.setitem(registry.BUILT_IN, "sqlite", place)
    yield
    InPlaceOfSQLite.forget()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=["sqlite", "postgres"], help="run tests of Toolboxes on this store")
    parser.addoption("--postgres-version", type=int, help="the major version of PostgreSQL, else the newest installed")
    parser.addoption("--third-store", action="store_true", help="run tests/life_of_a_call on a slow store, not SQLite")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return is_left_out(collection_path, unwanted_marks(config.option.markexpr)) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Ten thousand tests stay to the end: no garbage collection looks at them, neither now nor later."""
    gc.disable()
    if Coverage.current() is not None and not has_workers(session.config):
        import_every_module()
    try:
        with unmeasured():
            return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)  # as often as usual, a seventh of the time of all tests is spent on it


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Measure no coverage of the process that hands tests out and prints what comes back."""
    if has_workers(session.config):
        with unmeasured():
            return (yield)
    return (yield)


def has_workers(config: pytest.Config) -> bool:
    """Whether tests are collected and run by other processes than this one."""
    return config.getoption("dist", "no") != "no"


def import_every_module() -> None:
    """Run what coverage is about in the import of tests, so that none of it is measured in the hundreds of others."""
    for module in pkgutil.walk_packages(__path__, "toolpost."):
        if not module.name.endswith(".__main__"):
            with suppress(ImportError, ConfigError):  # nodes of KNIME, and adapters of frameworks that are not here
                import_module(module.name)


@contextmanager
def unmeasured() -> Generator[None]:
    """Measure no coverage, which makes everything that runs about twice as slow."""
    stopped: list[Coverage] = []
    while (measuring := Coverage.current()) is not None:  # a worker has two: as a program, and as a part of the run
        measuring.stop()
        stopped.append(measuring)
    kept = list(idle_workers)
    if stopped:
        idle_workers.clear()  # a thread that begins now is never measured, and is not to serve other tests
    try:
        yield
    finally:
        for measuring in reversed(stopped):
            measuring.start()
        if stopped:
            leave_programs_unmeasured()  # a start asks for it anew
            idle_workers.clear()
            idle_workers.extend(kept)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no coverage of large and of generated inputs: the same lines have to be covered by smaller tests."""
    if item.get_closest_marker("slow") or is_hypothesis_test(getattr(item, "obj", None)):
        with unmeasured():
            return (yield)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    WATCH.take()  # what was started between two tests is not this one's


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if WATCH.take() and report.passed and item.get_closest_marker("programs") is None:
        report.outcome, report.longrepr = "failed", UNMARKED
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed, skipped = (
        [report.nodeid for report in terminalreporter.stats.get(how, ())] for how in ("passed", "skipped")
    )
    items, unproved = requirements.load(), requirements.only_skipped(passed, skipped)
    proved = [id_ for id_, item in items.items() if item.status == "proved" and id_ not in unproved]
    terminalreporter.write_line(f"requirements proved: {len(proved)} of {len(items)}")
    if unproved:
        terminalreporter.write_line(f"NOT PROVED HERE, every test was skipped: {', '.join(unproved)}", red=True)
