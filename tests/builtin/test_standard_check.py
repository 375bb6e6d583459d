"""Every built-in tool ships a document, a schema, tests and budgets; a folder of anybody's is held to the same."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hatchling.build import build_wheel

from tests.builtin.caller import Caller
from toolpost.builtin.loader import BuiltinParts, Builtins
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.providers.protocols import Chain, SearchResult, SearchResults
from toolpost.builtin.specs import SPECS_FILE, read_specs, schema_document
from toolpost.builtin.standard_check import STANDARD, check_builtin_folders, check_folder, front_matter
from toolpost.builtin.web_tools import web_search_tools
from toolpost.contracts.context import ToolContext
from toolpost.stores.memory.store import MemoryStore
from tools.builtin_specs import dump_specs

ROOT = Path(__file__).parents[2]


def builtins() -> Builtins:
    docs = ProviderSettings(provider="embedded", path=Path("docs.db"))
    return Builtins(BuiltinParts(store=MemoryStore, retrieve=[docs]))


class Encyclopedia:
    """A provider that has as many results as are asked for."""

    name = "encyclopedia"

    async def search(self, query: str, count: int) -> SearchResults:
        found = SearchResult(title=query, url=f"https://example.org/{query}", content="", score=None)
        return SearchResults(query=query, provider=self.name, results=(found,) * count)

    async def close(self) -> None: ...


TOOLS = {tool.spec.name: tool for tool in builtins().load_all()}
FOLDERS = sorted(TOOLS)
CASES = [
    pytest.param(name, case, id=f"{name}: {case['name']}")
    for name in FOLDERS
    for case in json.loads((STANDARD / name / "tests.json").read_text(encoding="utf-8"))
]


@pytest.mark.req("NSTD-01", "NSTD-03", "NSTD-04")
def test_each_tool_ships_what_the_standard_asks_for() -> None:
    assert check_builtin_folders() == [(STANDARD / name, []) for name in FOLDERS]


def test_there_is_no_folder_without_a_tool() -> None:
    assert {path.name for path in STANDARD.iterdir()} == set(FOLDERS)


def test_the_specs_that_ship_are_those_of_the_tools() -> None:
    shipped = SPECS_FILE.read_text(encoding="utf-8")

    assert shipped == dump_specs(TOOLS[name].spec for name in TOOLS), "run: python -m tools.builtin_specs"
    assert read_specs() == {name: tool.spec for name, tool in TOOLS.items()}


@pytest.mark.req("NSTD-02")
@pytest.mark.parametrize("name", FOLDERS)
def test_the_schema_that_ships_is_the_one_that_a_model_sees(name: str) -> None:
    entry = Caller([TOOLS[name]]).registry.find(name)

    shipped = schema_document(read_specs()[name])

    assert shipped == {"input_schema": entry.shown_schema, "output_schema": entry.spec.output_schema}


@pytest.mark.req("NSTD-02")
def test_the_wheel_holds_a_schema_file_for_each_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TOOLPOST_CONSOLE", "skip")
    wheel = build_wheel(str(tmp_path))

    with ZipFile(tmp_path / wheel) as files:
        for name, tool in TOOLS.items():
            shipped = json.loads(files.read(f"toolpost/builtin/standard/{name}/schema.json"))
            assert shipped == schema_document(tool.spec)
        pages = {Path(name).name for name in files.namelist() if name.startswith("toolpost/documents/")}
        assert pages == {page.name for page in (ROOT / "docs").rglob("*.md")}


@pytest.mark.req("MISC-20")
@pytest.mark.parametrize(
    ("tool", "record", "fields"),
    [
        ("list_files", "FileInfo", {"name", "path", "is_dir", "size", "modified"}),
        ("web_search", "SearchResult", {"title", "url", "content"}),
    ],
)
def test_files_and_search_results_are_records_with_a_schema(tool: str, record: str, fields: set[str]) -> None:
    schema = TOOLS[tool].spec.output_schema
    assert schema is not None

    assert fields <= schema["$defs"][record]["properties"].keys()
    assert fields <= set(schema["$defs"][record]["required"])


@pytest.mark.req("NSTD-04")
@pytest.mark.parametrize("name", FOLDERS)
def test_the_budgets_that_ship_are_those_that_hold(name: str) -> None:
    facts, spec = front_matter(STANDARD / name), TOOLS[name].spec

    assert (facts["budgets"]["timeout_s"], facts["side_effects"]) == (spec.timeout_s, spec.side_effects)


@pytest.mark.req("NSTD-01", "DOC-08")
@pytest.mark.parametrize("name", FOLDERS)
def test_every_argument_is_described(name: str) -> None:
    text = (STANDARD / name / "tool.md").read_text(encoding="utf-8")
    schema = schema_document(TOOLS[name].spec)["input_schema"]

    assert [word for word in schema["properties"] if f"`{word}`" not in text] == []


@pytest.mark.programs
@pytest.mark.req("TEST-07")
@pytest.mark.parametrize(("name", "case"), CASES)
async def test_the_cases_that_ship_hold(
    name: str, case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, text in case.get("files", {}).items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    made = builtins()
    tools = web_search_tools(Chain([Encyclopedia()])) if name == "web_search" else made.tools([name])
    caller = Caller(tools)
    caller.context = ToolContext(
        allowed_paths=[str(tmp_path)], memory_dir=f"{tmp_path}/memory", session_dir=f"{tmp_path}/sessions"
    )

    result = await caller.ask(name, case["arguments"])
    await made.close()

    if "error" in case:
        assert case["error"] in (result.error or "")
    else:
        assert result.success, result.error
        assert holds(result.result, case["result"], exactly=name == "json_parse")


def holds(found: Any, wanted: Any, *, exactly: bool) -> bool:
    """Whether a result has all that a case says of it."""
    return bool(wanted.items() <= found.items() if isinstance(wanted, dict) and not exactly else found == wanted)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "greet"
    made.mkdir()
    sections = "\n".join(f"## {name}\n\ntext\n" for name in ("Purpose", "Inputs", "Outputs", "Examples"))
    (made / "tool.md").write_text(f"---\nname: greet\nbudgets: {{timeout_s: 5}}\n---\n# greet\n\n{sections}")
    (made / "schema.json").write_text('{"input_schema": {"type": "object", "properties": {}}}')
    (made / "test_greet.py").write_text("def test_it(): assert True")
    return made


@pytest.mark.req("NSTD-05")
def test_a_folder_of_ones_own_is_held_to_it(folder: Path) -> None:
    assert check_folder(folder) == []


@pytest.mark.req("NSTD-05")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tool.md", None, "tool.md cannot be read"),
        ("tool.md", "# greet", "no facts between two lines of ---"),
        ("tool.md", "---\nname: other\nbudgets: {timeout_s: 5}\n---\n", "`name` is 'other'"),
        ("tool.md", "---\nname: greet\nbudgets: {timeout_s: 0}\n---\n", "`budgets.timeout_s` must be a number"),
        ("tool.md", "---\nname: greet\n---\n## Purpose\n\nx\n", "no text under `## Examples`"),
        ("tool.md", "---\nname: [\n---\n", "no facts"),
        ("schema.json", None, "schema.json cannot be read"),
        ("schema.json", "{", "schema.json cannot be read"),
        ("schema.json", "[]", "no `input_schema`"),
        ("schema.json", '{"input_schema": 3}', "must be an object"),
        ("schema.json", '{"input_schema": {"type": "nonsense"}}', "input_schema: "),
        ("test_greet.py", None, "there are no tests"),
        ("tests.json", "[]", "at least one case"),
        ("tests.json", '[{"name": "x"}]', "case 1: must have"),
        ("tests.json", '[{"name": "x", "arguments": {}, "result": {}, "error": "x"}]', "case 1: must have"),
    ],
)
def test_what_is_missing_or_wrong_is_reported(folder: Path, name: str, text: str | None, said: str) -> None:
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)

    assert any(said in problem for problem in check_folder(folder)), check_folder(folder)


def test_a_case_that_the_schema_refuses_contradicts_it(folder: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    (folder / "schema.json").write_text(json.dumps({"input_schema": schema}))
    refused = {"name": "odd", "arguments": {"n": "x"}}
    (folder / "tests.json").write_text(json.dumps([{**refused, "error": "n"}, {**refused, "result": {}}]))

    (problem,) = check_folder(folder)

    assert problem.startswith("tests.json: case 2: it expects a result, but schema.json refuses its arguments: $.n")


def test_a_path_that_is_not_a_folder_is_reported(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "missing") == [
        f"{tmp_path / 'missing'} is not a folder; name the folder of one tool"
    ]
