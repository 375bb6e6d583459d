"""Which store a setting opens, and who closes it."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from toolpost import Settings, Toolbox, tool
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.contracts.storage import IdKind, Store
from toolpost.contracts.store_status import StoreInspection
from toolpost.policy.secret_shapes import MASK
from toolpost.stores import registry
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.registry import StoreCheck, StoreOptions, find_backend
from toolpost.stores.sqlite.store import SQLiteStore


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Plugged:
    """A backend of a plug-in."""

    opened: StoreOptions | None = None

    async def open(self, options: StoreOptions) -> Store:
        Plugged.opened = options
        return MemoryStore()

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        return [f"{kind} {prefix} {tenant} {limit} {options.database}"]

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        yield StoreCheck("ok", options.database)

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        return None


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> type[Plugged]:
    point = EntryPoint("odb", f"{__name__}:Plugged", registry.STORES_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: Plugged)
    monkeypatch.setattr(registry, "entry_points", lambda **_: EntryPoints([point]))
    return Plugged


async def test_the_default_is_sqlite_in_the_data_folder_and_memory_without_one(tmp_path: Path) -> None:
    async with Toolbox(settings=Settings(data_dir=tmp_path)) as on_disk:
        assert isinstance(on_disk.store, SQLiteStore)
    async with Toolbox(settings=Settings(data_dir=None)) as in_memory:
        assert isinstance(in_memory.store, MemoryStore)


async def test_a_database_in_memory_leaves_the_data_folder_to_files(tmp_path: Path) -> None:
    async with Toolbox(settings=Settings(data_dir=tmp_path, database="memory")) as box:
        assert isinstance(box.store, MemoryStore)

    assert not (tmp_path / "toolpost.db").exists()


@pytest.mark.parametrize(
    ("database", "folder", "said"),
    [
        (
            "mysql://ann:s3cret@db/x",
            "data",
            "there is no store 'mysql'; there are: memory, postgres, postgresql, sqlite",
        ),
        ("sqlite:///elsewhere.db", "data", "takes no address"),
        ("sqlite", None, "needs a data folder"),
    ],
)
async def test_a_database_that_cannot_be_opened_is_refused(
    tmp_path: Path, database: str, folder: str | None, said: str
) -> None:
    settings = Settings(data_dir=None if folder is None else tmp_path / folder, database=database)

    with pytest.raises(ConfigError, match=said) as refused:
        async with Toolbox(settings=settings):
            pass

    assert "s3cret" not in str(refused.value)


async def test_a_plug_in_opens_the_urls_of_its_scheme(tmp_path: Path, plugged: type[Plugged]) -> None:
    url = "odb://ann:s3cret-word@host/db"
    async with Toolbox(tools=[add], settings=Settings(data_dir=tmp_path, database=url)) as box:
        done = await box.call("add", {"a": 1, "b": 2}, user="acme:ann")
        hidden = box.redactor.redact("s3cret-word")

    assert plugged.opened is not None
    assert (plugged.opened.database, plugged.opened.data_dir) == (url, tmp_path)
    assert getattr(done, "content", None) == 3
    assert hidden == MASK


def test_a_plug_in_that_does_not_load_is_named(plugged: type[Plugged], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: EntryPoint) -> None:
        raise ImportError("no driver")

    monkeypatch.setattr(EntryPoint, "load", load)

    with pytest.raises(ConfigError, match="'odb' does not load: ImportError: no driver"):
        find_backend("odb://host")


async def test_a_store_that_was_given_is_used_and_not_closed() -> None:
    async with MemoryStore() as mine:
        async with Toolbox(tools=[add], settings=Settings(data_dir=None), store=mine) as box:
            assert box.store is mine
            await box.call("add", {"a": 1, "b": 2}, user="acme:ann")
        [run] = await mine.events.runs()

    assert run.tool_name == "add"


async def test_a_given_sqlite_store_outlives_two_toolboxes(sqlite: SQLiteStore) -> None:
    for _ in range(2):
        async with Toolbox.open(builtins="none", tools=[add], store=sqlite) as box:
            await box.call("add", {"a": 1, "b": 2}, user="acme:ann")

    assert len(await sqlite.events.runs()) == 2


async def test_a_store_of_the_settings_is_closed_with_its_toolbox(tmp_path: Path) -> None:
    async with Toolbox(settings=Settings(data_dir=tmp_path)) as box:
        store = box.store

    with pytest.raises(StoreError, match="is closed"):
        await store.events.runs()
