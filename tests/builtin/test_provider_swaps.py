"""Providers swapped by configuration alone: one program, and for each provider other lines of YAML."""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.builtin.recorded import KEY, recorded
from tests.wire.site import Received, Site, reply
from toolpost import ConfigError, Toolbox
from toolpost.builtin.providers.document_stores import EmbeddedRetriever, StoredDocument
from toolpost.configuration.loading import load_settings
from toolpost.contracts.outcomes import Completed

LIBRARIAN = Path(__file__).with_name("librarian.py")
PAGE = b"<title>Tea &amp; time</title><main><h1>Tea</h1><p>Drink from cups.</main>"


async def called(folder: Path, yaml: str, tool: str, arguments: dict[str, Any]) -> Completed:
    """The program: it names a tool, and nobody who answers."""
    file = folder / "toolpost.yaml"
    file.write_text(f"data_dir: null\nbuiltins: [{tool}, artifact_read]\n{yaml}", encoding="utf-8")
    environ = {"PROVIDER_KEY": KEY, "LIBRARIAN": shlex.join(warm.command(LIBRARIAN)) if "LIBRARIAN" in yaml else ""}
    async with Toolbox(settings=load_settings(file, environ=environ).settings) as box:
        outcome = await box.call(tool, arguments, timeout_s=100)
    assert isinstance(outcome, Completed), outcome
    return outcome


SEARCHES = {
    "brave": "tools: {webSearch: {provider: brave, apiKey: '${PROVIDER_KEY}', url: '{URL}'}}",
    "tavily": "tools: {webSearch: {provider: tavily, apiKey: '${PROVIDER_KEY}', url: '{URL}'}}",
    "google": "tools: {webSearch: {provider: google, apiKey: '${PROVIDER_KEY}', engine: e1, url: '{URL}'}}",
    "bing": "tools: {webSearch: {provider: bing, apiKey: '${PROVIDER_KEY}', url: '{URL}'}}",
    "jina": "tools: {webSearch: {provider: jina, apiKey: '${PROVIDER_KEY}', url: '{URL}'}}",
    "duckduckgo": "tools: {webSearch: {provider: duckduckgo, url: '{URL}'}}",
    "mcp": """
sources: [{name: library, transport: mcp, connection: '${LIBRARIAN}', trust: true, connect_timeout_s: 60}]
tools: {webSearch: {chain: [{provider: mcp, tool: library.search, timeout_s: 60}]}}
""",
}


@pytest.mark.programs
@pytest.mark.req("NPRV-01", "NPRV-02", "NPRV-03")
@pytest.mark.parametrize("name", sorted(SEARCHES))
async def test_who_searches_is_a_matter_of_configuration(name: str, tmp_path: Path) -> None:
    async with Site(answer=b"" if name == "mcp" else recorded(f"{name}/found")) as there:
        outcome = await called(
            tmp_path, SEARCHES[name].replace("{URL}", there.url), "web_search", {"query": "tea", "limit": 2}
        )

    assert outcome.content["provider"] == ("library.search" if name == "mcp" else name)
    assert [(one["title"], one["url"], one["content"]) for one in outcome.content["results"]] == [
        ("Tea & time", "https://tea.example/", "All about tea, the leaf that wasn't picked"),
        ("Pots", "https://pots.example/", "Pots"),
    ]
    assert outcome.meta["trust"] == "untrusted"
    assert [one["url"] for one in outcome.meta["citations"]] == ["https://tea.example/", "https://pots.example/"]


READERS = {
    "direct": ("network: {allow_hosts: ['{HOST}'], allow_ip_literals: true}", "{URL}/"),
    "jina": (
        """
network: {allow_ip_literals: true}
tools: {webFetch: {chain: [{provider: jina, apiKey: '${PROVIDER_KEY}', url: '{URL}'}]}}
""",
        "https://93.184.215.14/",
    ),
    "mcp": (
        """
network: {allow_ip_literals: true}
sources: [{name: library, transport: mcp, connection: '${LIBRARIAN}', trust: true, connect_timeout_s: 60}]
tools: {webFetch: {chain: [{provider: mcp, tool: library.fetch, timeout_s: 60}]}}
""",
        "https://93.184.215.14/",
    ),
}


@pytest.mark.programs
@pytest.mark.req("NPRV-01", "NPRV-02", "NPRV-03")
@pytest.mark.parametrize("name", sorted(READERS))
async def test_who_reads_pages_is_a_matter_of_configuration(name: str, tmp_path: Path) -> None:
    yaml, url = READERS[name]
    page = recorded("jina/page") if name == "jina" else reply(200, PAGE, content_type="text/html")
    async with Site(answer=page) as there:
        yaml = yaml.replace("{URL}", there.url).replace("{HOST}", f"127.0.0.1:{there.port}")
        url = url.replace("{URL}", there.url)
        outcome = await called(tmp_path, yaml, "web_fetch", {"url": url})

    assert outcome.content["provider"] == ("library.fetch" if name == "mcp" else name)
    assert (outcome.content["status"], outcome.content["url"]) == (200, url)
    assert outcome.content["content"].startswith("# ")
    assert outcome.meta["trust"] == "untrusted"


@pytest.mark.req("NPRV-01", "NPRV-02", "NPRV-03")
@pytest.mark.parametrize("name", ["opensearch", "embedded"])
async def test_who_retrieves_is_a_matter_of_configuration(name: str, tmp_path: Path) -> None:
    store = EmbeddedRetriever(tmp_path / "docs.db")
    await store.add([StoredDocument("7", "Steep green tea at 80 °C.", "https://tea.example/green", {"lang": "en"})])
    await store.close()
    links = {
        "opensearch": "{provider: opensearch, index: docs, apiKey: '${PROVIDER_KEY}', url: '{URL}'}",
        "embedded": f"{{provider: embedded, path: '{tmp_path}/docs.db'}}",
    }
    async with Site(answer=recorded("opensearch/found")) as there:
        yaml = f"tools: {{retrieval: {{chain: [{links[name].replace('{URL}', there.url)}]}}}}"
        outcome = await called(tmp_path, yaml, "retrieve", {"query": "green tea", "filters": {"lang": "en"}})

    (chunk,) = outcome.content["chunks"]
    assert outcome.content["provider"] == name
    assert (chunk["id"], chunk["text"], chunk["source"]) == (
        "7",
        "Steep green tea at 80 °C.",
        "https://tea.example/green",
    )
    assert chunk["metadata"]["lang"] == "en"


def searching(site: Site, name: str) -> dict[str, Any]:
    return {"provider": name, "apiKey": KEY, "url": site.url}


@pytest.mark.req("NPRV-03")
@pytest.mark.parametrize("way", ["code", "file"])
async def test_who_searches_changes_while_the_program_runs(way: str, tmp_path: Path) -> None:
    file = tmp_path / "toolpost.yaml"

    def write(link: dict[str, Any]) -> None:
        facts = {"data_dir": None, "builtins": ["web_search"], "tools": {"webSearch": link}}
        file.write_text(yaml.safe_dump(facts), encoding="utf-8")

    async with Site(recorded("brave/found")) as old, Site(recorded("jina/found")) as new:
        write(searching(old, "brave"))
        async with Toolbox.open(file) as box:
            before: Any = await box.call("web_search", {"query": "tea"})
            if way == "code":
                await box.use_providers(web_search=searching(new, "jina"))
            else:
                write(searching(new, "jina"))
                reload = await box.reload()
                assert (reload.applied, reload.restart) == (["tools.web_search"], [])
            after: Any = await box.call("web_search", {"query": "tea"})
            assert await old.all_closed()
            with pytest.raises(ConfigError, match="provider"):
                await box.use_providers(web_search={"chain": [{"provider": "embedded", "path": "x.db"}]})
            still: Any = await box.call("web_search", {"query": "tea"})
    assert [one.content["provider"] for one in (before, after, still)] == ["brave", "jina", "jina"]
    assert (len(old.requests), len(new.requests)) == (1, 2)


@pytest.mark.req("NPRV-03")
async def test_a_call_in_progress_finishes_with_the_providers_that_it_began_with() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(received: Received, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await go_on.wait()
        writer.write(recorded("brave/found"))

    async with Site(slow) as old, Site(recorded("jina/page")) as new:
        tools = {"webSearch": searching(old, "brave")}
        async with Toolbox(settings={"data_dir": None, "tools": tools}, builtins=["web_search", "web_fetch"]) as box:
            calling = asyncio.create_task(box.call("web_search", {"query": "tea"}))
            await asked.wait()
            await box.use_providers(
                web_search=searching(new, "jina"), web_fetch={"chain": [{"provider": "jina", "url": new.url}]}
            )
            go_on.set()
            outcome: Any = await calling
            page: Any = await box.call("web_fetch", {"url": "https://localhost.invalid/"})
    assert outcome.content["provider"] == "brave"
    assert box.settings.tools.web_fetch.chain[0].provider == "jina"
    assert page.status == "failed"  # the name does not exist, so nobody is told of it
