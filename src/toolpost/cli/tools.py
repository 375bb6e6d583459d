"""`toolpost tools`: list, search, show, call, check and export tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.catalog.specs import HIDDEN
from toolpost.cli import completion
from toolpost.cli.arguments import (
    add_pairs,
    convert_values,
    parse_duration_option,
    read_file_args,
    read_json,
    store_files,
)
from toolpost.cli.commands import Commands, CommonOptions, default_user
from toolpost.cli.connect import connect, disconnect, list_presets
from toolpost.cli.output import Output, ToolTokens, format_json, show_tools
from toolpost.cli.runner import INCOMPLETE, has_failed_source, run_command, run_with_box, run_with_catalog, tool_source
from toolpost.configuration.defaults import FILE_NAME
from toolpost.contracts.errors import ToolError
from toolpost.contracts.spec import ToolCategory, ToolSpec

if TYPE_CHECKING:
    from toolpost.catalog.entry import Entry
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.local_tools import LocalCatalog


_COUNTED_CALLS = 1000

app = Commands(help="List, show and call tools.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The tool's name, such as github.create_issue.", autocompletion=completion.tool_names
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="Only the tools of this source.", autocompletion=completion.source_names
    ),
]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only tools with this tag.")]
Collection = Annotated[
    str | None,
    typer.Option("--collection", metavar="NAME", help="Only tools of this collection, configured or built-in."),
]
Category = Annotated[ToolCategory | None, typer.Option("--category", help="Only tools of this category.")]
Tokens = Annotated[
    bool, typer.Option("--tokens", help="Show how many tokens each definition takes in the request of a model.")
]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="Single arguments: a string, or JSON if the schema wants another type."),
]
Args = Annotated[str, typer.Option("--args", metavar="JSON", help="The arguments: JSON, @FILE, or - for stdin.")]
File = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="ARGUMENT=PATH", help="A local file as an argument, such as body.file=a.pdf."),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        help="Run the call at most once per key; repeating the key returns the first outcome.",
    ),
]


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="DURATION", help="Time limit of the call: 30s, 2m.", parser=parse_duration_option
    ),
]


@app.command("list")
def list_tools(
    common: CommonOptions,
    source: Source = None,
    tag: Tag = None,
    category: Category = None,
    collection: Collection = None,
    tokens: Tokens = False,
) -> None:
    """List the tools by source.

    Exits with 4 if a source is down and its tools are missing.
    """

    def wanted(spec: ToolSpec) -> bool:
        return (
            (source is None or spec.source == source)
            and (tag is None or tag in spec.tags)
            and (category is None or spec.category is category)
        )

    async def work(catalog: Toolbox | LocalCatalog, output: Output) -> int:
        specs = [spec for spec in _specs(catalog, collection) if wanted(spec)]
        show_tools(specs, output, tokens=_count_tokens(catalog, specs) if tokens else None)
        return INCOMPLETE if has_failed_source(catalog) else 0

    run_with_catalog(work, common, source=source)


def _count_tokens(catalog: Toolbox | LocalCatalog, specs: list[ToolSpec]) -> ToolTokens:
    from toolpost.catalog.token_counts import find_counter

    counter, names = find_counter(), [spec.name for spec in specs]
    definitions = zip(names, catalog.registry.to_llm_tools(names), strict=True)
    return ToolTokens({name: counter.count(shown) for name, shown in definitions}, counter.tokenizer)


Words = Annotated[
    list[str],
    typer.Argument(
        metavar="WORDS", help="Description of the tool, in any words.", autocompletion=completion.tool_names
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="NUMBER", help="Show at most this many tools.")]


Page = Annotated[int, typer.Option("--page", min=1, metavar="NUMBER", help="Page of results.")]


@app.command("search")
def search_tools(
    common: CommonOptions,
    words: Words,
    limit: Limit = 10,
    page: Page = 1,
    source: Source = None,
    collection: Collection = None,
) -> None:
    """Find tools by description, best match first.

    Exits with 4 if a source is down and its tools are missing.
    """
    query = " ".join(words)

    async def work(catalog: Toolbox | LocalCatalog, output: Output) -> int:
        _specs(catalog, collection)  # an unknown collection is an error
        sources = None if source is None else [source]
        found = await catalog.registry.search(
            query, limit=limit + 1, offset=(page - 1) * limit, sources=sources, collection=collection
        )
        if found or output.as_json:
            show_tools([*found[:limit]], output)
            if len(found) > limit and not output.as_json:
                output.note(f"For more, add --page {page + 1}.")
        elif page > 1:
            output.note(f"Page {page} for {query!r} does not exist.")
        else:
            near = await catalog.registry.correct(query)
            hint = f" Did you mean {near!r}?" if near else ""
            output.note(f"No tools match {query!r}.{hint} `toolpost tools list{output.options}` shows every tool.")
        return INCOMPLETE if has_failed_source(catalog) else 0

    run_with_catalog(work, common, source=source)


@app.command("show")
def show_tool(common: CommonOptions, name: Name) -> None:
    """Show one tool in full."""

    async def work(box: Toolbox, output: Output) -> int:
        await box.wait_for_tool(name)
        entry = box.registry.find(name)
        _show_entry(entry, await _schema_violations(entry, box, common.user), output)
        return 0

    run_with_box(work, common, tool_source(name, called=False))


@app.command("call")
def call_tool(
    common: CommonOptions,
    name: Name,
    pairs: Pairs = None,
    args: Args = "{}",
    file: File = None,
    timeout: Timeout = None,
    idempotency_key: Key = None,
) -> None:
    """Call a tool.

    Arguments are given one by one, as JSON with --args, or both. Exits with 0 if the call completed, 1 if it failed,
    and 3 if it paused until someone answers.
    """
    arguments = read_json(args, option="--args")
    values, files = add_pairs(pairs or (), arguments), read_file_args(file or (), arguments)
    if files and idempotency_key is not None:
        message = "every call stores its files again, so a repeated call would differ from the first"
        raise typer.BadParameter(message, param_hint="--idempotency-key")

    async def work(box: Toolbox, output: Output) -> int:
        from toolpost.cli.prompts import ask_at_terminal, show_outcome

        if values:
            schema = box.registry.find(name).spec.input_schema if box.registry.has(name) else {}
            convert_values(values, arguments, schema)
        run_id = box.router.new_id("run") if files else None
        if run_id is not None:
            await store_files(files, arguments, box, user=common.user, run_id=run_id)
        outcome = await box.call(
            name, arguments, user=common.user, timeout_s=timeout, idempotency_key=idempotency_key, run_id=run_id
        )
        return show_outcome(await ask_at_terminal(outcome, box, output, user=common.user), output)

    run_with_box(work, common, tool_source(name, called=True))


app.command("connect")(connect)
app.command("disconnect")(disconnect)
app.command("presets")(list_presets)


def _specs(catalog: Toolbox | LocalCatalog, collection: str | None) -> list[ToolSpec]:
    """Return the tools of a collection, or all."""
    try:
        return [*catalog.registry.specs(collection)]
    except KeyError as error:
        raise ToolError(str(error.args[0]), code="collection_not_found") from None


async def _schema_violations(entry: Entry, box: Toolbox, user: str) -> dict[str, Any] | None:
    """Count the results of the last calls that violated the tool's output schema, from the events."""
    if entry.spec.output_schema is None:
        return None
    from toolpost.contracts.events import EventCode, EventFilter
    from toolpost.contracts.outcomes import OUTPUT_ISSUES

    done = EventFilter(tool=entry.spec.name, codes=frozenset({EventCode.TOOL_CALL_COMPLETED}))
    calls = await box.events(user=user, limit=_COUNTED_CALLS, only=done, newest=True)
    broken = [event.payload[OUTPUT_ISSUES] for event in calls if OUTPUT_ISSUES in event.payload]
    return {"count": len(broken), "of_calls": len(calls), "last": broken[-1] if broken else []}


def _show_entry(entry: Entry, schema_violations: dict[str, Any] | None, output: Output) -> None:
    spec = entry.spec
    facts = {
        **spec.to_dict(),
        "outputs": None if spec.output_schema is None else entry.output_check,
        "schema_violations": schema_violations,
        "unchecked_patterns": list(entry.unchecked_patterns),
        HIDDEN: spec.extra.get(HIDDEN, []),
    }
    if output.as_json:
        output.document(facts)
        return
    output.table(
        ["", spec.name], [(key, format_json(value)) for key, value in facts.items() if value not in (None, "", [])]
    )
    required = "".join(f" {name}=..." for name in spec.input_schema.get("required", ()))
    output.note(f"`toolpost tools call {spec.name}{required}{output.options}` calls it.")


Folder = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="Folder of a tool or of several. [default: the built-in tools]"),
]


@app.command("check")
def check_tool(common: CommonOptions, folder: Folder = None) -> None:
    """Check that tools ship a document, a schema, tests and budgets.

    Runs nothing. Exits with 1 if something is missing.
    """

    async def work(output: Output) -> int:
        reports = _check_folders(folder)
        broken = any(problems for _, problems in reports)
        if output.as_json:
            tools = [{"folder": str(place), "problems": problems} for place, problems in reports]
            output.document({"status": "failed" if broken else "ok", "tools": tools})
        else:
            output.table(
                ["Folder", "State"], [(str(place), "\n".join(problems) or "ok") for place, problems in reports]
            )
        return int(broken)

    run_command(work, common)


def _check_folders(folder: Path | None) -> list[tuple[Path, list[str]]]:
    from toolpost.builtin.standard_check import check_builtin_folders, check_folder

    if folder is None:
        return check_builtin_folders()
    return [(place, check_folder(place)) for place in _folders(folder)]


def _folders(place: Path) -> list[Path]:
    """Return the folder of one tool, or the folders of the tools in it."""
    from toolpost.builtin.standard_check import CASES, DOCUMENT, SCHEMA

    if not place.is_dir() or any((place / name).exists() for name in (DOCUMENT, SCHEMA, CASES)):
        return [place]
    inner = sorted(one for one in place.iterdir() if one.is_dir() and (one / DOCUMENT).exists())
    return inner or [place]


Utcp = Annotated[bool, typer.Option("--utcp", help="Write a UTCP manual.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="URL", help="Call tools with POST requests below this URL, instead of by command."
    ),
]


@app.command("export")
def export_tools(common: CommonOptions, utcp: Utcp = False, source: Source = None, address: Address = None) -> None:
    """Print the tools as a manual; by default each is called through this program, under its policy."""
    if not utcp:
        raise typer.BadParameter("give a format: --utcp", param_hint="--utcp")
    if address is not None and not _is_base_url(address):
        raise typer.BadParameter("give an http or https URL without a query", param_hint="--address")
    path = common.config or Path(FILE_NAME)
    written = str(path.absolute()) if path.exists() else None
    caller = "" if common.user == default_user() else common.user  # the local user calls

    async def work(catalog: Toolbox | LocalCatalog, output: Output) -> int:
        from toolpost.configuration.secret_extraction import references
        from toolpost.sources.utcp.export import command_route, export_manual, http_route, serialize_manual

        specs = [spec for spec in catalog.registry.specs() if source is None or spec.source == source]
        env = [] if written is None else references(path.read_text(encoding="utf-8"))
        route = http_route(address) if address else command_route(config=written, user=caller, env=env)
        output.text(serialize_manual(export_manual(specs, route)))
        return 0

    run_with_catalog(work, common, source=source)


def _is_base_url(address: str) -> bool:
    """Return whether the address is an HTTP URL without query and fragment."""
    return address.startswith(("http://", "https://")) and not any(mark in address for mark in "?# ")
