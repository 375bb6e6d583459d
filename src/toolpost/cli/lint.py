"""`toolpost lint`: which tools a model provider rejects as they are, and which cannot be shown to it at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from toolpost.cli import completion
from toolpost.cli.commands import CommonOptions
from toolpost.cli.output import Output
from toolpost.cli.runner import INCOMPLETE, has_failed_source, run_with_catalog
from toolpost.contracts.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.schema.provider_dialects import Provider
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.local_tools import LocalCatalog

_Provider = Annotated[
    str | None,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="Show what this provider rejects: openai, openai-strict, anthropic, gemini, bedrock, mistral, json.",
    ),
]
_Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="Only the tools of this source.", autocompletion=completion.source_names
    ),
]


class _Finding(NamedTuple):
    """A field of a tool's schema that a provider rejects, and whether the tool is left out because of it."""

    tool: str
    source: str
    field: str
    reason: str
    left_out: bool


def lint(common: CommonOptions, provider: _Provider = None, source: _Source = None) -> None:
    """Check the schemas of all tools against the rules of model providers.

    Rejected fields are rewritten for the model, and arguments are converted back. A tool that cannot be shown is left
    out; then the command exits with 1.
    """
    from toolpost.schema.provider_dialects import DIALECTS, dialect_of

    try:
        providers: list[Provider] = [*DIALECTS] if provider is None else [dialect_of(provider).provider]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    async def work(catalog: Toolbox | LocalCatalog, output: Output) -> int:
        findings: dict[Provider, list[_Finding]] = {name: [*_lint(catalog, name, source)] for name in providers}
        total = len([spec for spec in catalog.registry.specs() if source in (None, spec.source)])
        if source is not None and not total:
            raise ToolError(f"there are no tools of the source {source!r}", code="source_not_found")
        left_out = any(finding.left_out for found in findings.values() for finding in found)
        if output.as_json:
            output.document(_document(findings, total, failed=left_out))
        elif provider is None:
            output.table(
                ["Provider", "Tools", "Rewritten", "Left out"], [_row(*one, total) for one in findings.items()]
            )
        else:
            _show_findings(findings[providers[0]], total, output)
        if left_out:
            return 1
        return INCOMPLETE if has_failed_source(catalog) else 0

    run_with_catalog(work, common, source=source)


def _lint(catalog: Toolbox | LocalCatalog, provider: Provider, source: str | None) -> Iterator[_Finding]:
    """Yield the fields of the tools' schemas that a provider rejects."""
    from toolpost.schema.provider_dialects import dialect_of, violations
    from toolpost.schema.provider_schemas import LeftOut, compile_schema

    dialect, registry = dialect_of(provider), catalog.registry
    specs = [spec for spec in registry.specs() if source in (None, spec.source)]
    for spec, shown in zip(specs, registry.to_llm_tools([spec.name for spec in specs]), strict=True):
        compiled = compile_schema(shown.parameters, dialect, name=spec.name)
        if isinstance(compiled, LeftOut):
            yield _Finding(spec.name, spec.source, compiled.field, compiled.reason, left_out=True)
            continue
        for field, reason in violations(shown.parameters, dialect):
            yield _Finding(spec.name, spec.source, field, reason, left_out=False)


def _row(provider: str, findings: list[_Finding], total: int) -> list[str]:
    rewritten = {finding.tool for finding in findings if not finding.left_out}
    left_out = {finding.tool for finding in findings if finding.left_out}
    return [provider, str(total), str(len(rewritten)), ", ".join(sorted(left_out)) or "none"]


def _show_findings(findings: list[_Finding], total: int, output: Output) -> None:
    if findings:
        rows = [
            [one.tool, one.source or "-", one.field, f"{one.reason}: {'left out' if one.left_out else 'rewritten'}"]
            for one in findings
        ]
        output.table(["Tool", "Source", "Field", "Finding"], rows)
    accepted = total - len({one.tool for one in findings})
    output.note(f"{accepted} of {total} tools are accepted as they are.")


def _document(findings: dict[Provider, list[_Finding]], total: int, *, failed: bool) -> dict[str, Any]:
    return {
        "status": "failed" if failed else "ok",
        "tools": total,
        "providers": {provider: [one._asdict() for one in found] for provider, found in findings.items()},
    }
