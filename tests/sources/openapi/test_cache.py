"""APIs that were read once and are found again."""

from pathlib import Path

import pytest

from tests.specs import OWN, no_network
from toolpost.auth.keys import FileCipher
from toolpost.contracts.errors import ToolClientError, ToolConnectionError
from toolpost.sources.openapi.cache import ApiCache
from toolpost.sources.openapi.loader import Fetch, read_api
from toolpost.sources.openapi.models import ApiDescription
from toolpost.sources.openapi.spec import tool_spec
from toolpost.stores.encryption import CacheFolder

SITE = "https://split.example/"


class Site:
    """Documents that are served, changed and gone, with every fetch noted."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.pages = {f"{SITE}{path.name}": path.read_bytes() for path in OWN.glob("*.yaml")}
        self.error: Exception | None = None

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url.removeprefix(SITE))
        if self.error is not None:
            raise self.error
        return self.pages[url]


def cache_in(folder: Path) -> ApiCache:
    return ApiCache(CacheFolder(folder, FileCipher(folder.parent / "key")))


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> ApiCache:
    return cache_in(tmp_path / "cache")


def assert_same(api: ApiDescription, other: ApiDescription) -> None:
    assert (api.title, api.version, api.schemes, api.problems) == (
        other.title,
        other.version,
        other.schemes,
        other.problems,
    )
    assert api.operations == other.operations
    assert [tool_spec(one, source="s") for one in api.operations] == [
        tool_spec(one, source="s") for one in other.operations
    ]


@pytest.mark.parametrize("name", ["shop.yaml", "shop_swagger.yaml", "future.yaml", "split.yaml"])
async def test_an_api_comes_back_as_it_was(cache: ApiCache, name: str) -> None:
    site = Site()
    first = await read_api(SITE + name, fetch=site.fetch, cache=cache)
    again = await read_api(SITE + name, fetch=site.fetch, cache=cache)

    assert again is not first
    assert_same(again, first)


async def test_it_is_not_read_a_second_time(cache: ApiCache, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)
    monkeypatch.setattr("toolpost.sources.openapi.loader.parse_openapi", None)

    assert len((await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)).operations) == 6


async def test_a_document_that_changed_is_read_again_and_takes_the_place_of_the_old(
    cache: ApiCache, tmp_path: Path
) -> None:
    site = Site()
    await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)
    site.pages[f"{SITE}shop.yaml"] = site.pages[f"{SITE}future.yaml"]

    assert (await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)).title == "Future"
    assert len(list((tmp_path / "cache").glob("*.json"))) == 1


async def test_another_base_url_gives_other_servers(cache: ApiCache) -> None:
    for base in ("https://one.example", "https://two.example"):
        api = await read_api(f"{SITE}future.yaml", fetch=Site().fetch, cache=cache, base_url=base)
        assert api.operations[0].servers == (f"{base}/api",)


async def test_a_document_that_is_referred_to_and_changed_is_noticed(cache: ApiCache) -> None:
    site = Site()
    await read_api(f"{SITE}split.yaml", fetch=site.fetch, cache=cache)
    changed = site.pages[f"{SITE}split_paths.yaml"].replace(b"operationId: order", b"operationId: ordered")
    site.pages[f"{SITE}split_paths.yaml"] = changed

    assert (await read_api(f"{SITE}split.yaml", fetch=site.fetch, cache=cache)).operations[0].tool_name == "ordered"


async def test_without_a_network_the_last_copy_serves_and_that_is_reported(cache: ApiCache) -> None:
    site = Site()
    first = await read_api(f"{SITE}split.yaml?key=s3cret", fetch=_ignoring_query(site), cache=cache)
    site.error = ToolConnectionError("no route")
    again = await read_api(f"{SITE}split.yaml?key=s3cret", fetch=site.fetch, cache=cache)

    assert again.operations == first.operations
    assert again.problems == (
        "https://split.example/split.yaml could not be fetched, so its last copy is used: no route",
    )


async def test_where_only_the_other_documents_are_out_of_reach_they_count_as_unchanged(cache: ApiCache) -> None:
    site = Site()
    first = await read_api(f"{SITE}split.yaml", fetch=site.fetch, cache=cache)

    async def first_only(url: str) -> bytes:
        return await (site.fetch if url.endswith("/split.yaml") else no_network)(url)

    assert_same(await read_api(f"{SITE}split.yaml", fetch=first_only, cache=cache), first)


async def test_a_document_that_is_gone_is_gone(cache: ApiCache) -> None:
    site = Site()
    await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)
    site.error = ToolClientError("404 Not Found")

    with pytest.raises(ToolClientError, match="404"):
        await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)


async def test_without_a_copy_the_error_is_reported(cache: ApiCache) -> None:
    with pytest.raises(ToolConnectionError, match="out of reach"):
        await read_api(f"{SITE}shop.yaml", fetch=no_network, cache=cache)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"api": 5}', b"\xff\xfe", b'{"operations": [{}]}'])
async def test_a_damaged_file_counts_as_none(cache: ApiCache, tmp_path: Path, damage: bytes) -> None:
    site = Site()
    await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(damage)

    assert len((await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)).operations) == 6
    site.error = ToolConnectionError("no route")
    assert (await read_api(f"{SITE}shop.yaml", fetch=site.fetch, cache=cache)).title == "Shop"


async def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    api = await read_api(
        str(OWN / "shop.yaml"), fetch=no_network, cache=cache_in(tmp_path / "file"), base_url="https://a.example"
    )

    assert len(api.operations) == 6


async def test_files_are_their_owners_and_encrypted(cache: ApiCache, tmp_path: Path) -> None:
    await read_api(f"{SITE}shop.yaml", fetch=Site().fetch, cache=cache)

    for file in (tmp_path / "cache").iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert not any(word in file.read_bytes() for word in (b"Shop", b"operations", SITE.encode()))


def _ignoring_query(site: Site) -> Fetch:
    async def fetch(url: str) -> bytes:
        return await site.fetch(url.partition("?")[0])

    return fetch
