"""Whether a source is trusted: what its tools claim is shown, and a person's yes is written down with their pins."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolpost.catalog.lock import Lock, Pin
from toolpost.catalog.specs import describe_claims, read_claims, trust_loosens
from toolpost.cli.confirmation import at_a_terminal, confirm
from toolpost.cli.output import Output
from toolpost.configuration.file_editor import mark_trusted
from toolpost.contracts.spec import ToolSpec


def offer_trust(name: str, specs: Sequence[ToolSpec], output: Output, *, trust: bool, yes: bool) -> bool:
    """Show what the tools of a source claim, and ask whether that counts; without a yes it does not."""
    loosened = [spec for spec in specs if trust_loosens(read_claims(spec))]
    if loosened:
        show_claims(name, specs, output)
    if trust:
        return True
    if not loosened:
        return False
    if yes or not at_a_terminal():
        told = f"{name} is not trusted: what it claims lets no call run unasked."
        output.note(f"{told} `trust: true` in the configuration, or --trust here, takes its word.")
        return False
    output.status.clear()
    return confirm(f"Trust {name}? Then these claims count, and its tools are pinned as they are now.", yes=False)


def show_claims(name: str, specs: Sequence[ToolSpec], output: Output) -> None:
    """What a source says of each of its tools, for the person who decides."""
    rows = [
        (spec.name, describe_claims(read_claims(spec)) or "nothing", spec.description.partition("\n")[0])
        for spec in specs
    ]
    if output.as_json:
        output.note("\n".join([f"{name} claims of its tools:", *(f"  {tool}: {claims}" for tool, claims, _ in rows)]))
    else:
        output.table(["Tool", f"{name} claims that it", "Description"], rows)


def write_trust(
    name: str, path: Path, pins: dict[str, Pin], lock: Path | None, output: Output, *, secrets: Mapping[str, str]
) -> None:
    """Write a person's yes: `trust: true`, and the tools as they were shown."""
    mark_trusted(path, name, environ={**os.environ, **secrets})
    if lock is None:
        output.note(f"{name} is trusted in {path.name}; `lock: null` there pins nothing.")
        return
    kept = Lock(lock)
    kept.write({**kept.sources, name: pins})
    output.note(f"{name} is trusted in {path.name}; its tools are pinned in {lock.name}, commit both.")


def claim_documents(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """What is claimed of each tool, for programs."""
    return [{"tool": spec.name, "claims": describe_claims(read_claims(spec))} for spec in specs]
