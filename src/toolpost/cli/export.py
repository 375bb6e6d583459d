"""`toolpost tools export`: the catalog as a manual for other people's clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.opening import one_source
from toolpost.cli.options import Config, Json, User, default_user
from toolpost.cli.output import Output
from toolpost.cli.session import run_with_box

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_USUAL_FILE = Path("toolpost.yaml")

Utcp = Annotated[bool, typer.Option("--utcp", help="Write a UTCP manual.")]
Source = Annotated[str | None, typer.Option("--source", help="Only the tools of this source.")]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="URL", help="Tools are called by a POST below this URL, not by command."),
]


def export_tools(
    utcp: Utcp = False,
    source: Source = None,
    address: Address = None,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Print the tools as a manual; by itself each is called through this program, under its policy."""
    if not utcp:
        raise typer.BadParameter("say in which format: --utcp", param_hint="--utcp")
    if address is not None and not _is_base(address):
        raise typer.BadParameter("give an http or https URL without a query", param_hint="--address")
    written = _written(config)
    said = "" if user == default_user() else user  # whoever calls is the person at their own machine

    async def work(box: Toolbox, output: Output) -> int:
        from toolpost.sources.utcp.export import command_route, export_manual, http_route, serialize_manual

        specs = [spec for spec in box.registry.specs() if source is None or spec.source == source]
        route = http_route(address) if address else command_route(config=written, user=said, env=_variables(written))
        output.text(serialize_manual(export_manual(specs, route)))
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=one_source(source))


def _is_base(address: str) -> bool:
    """Whether addresses below it can be made of it."""
    return address.startswith(("http://", "https://")) and not any(mark in address for mark in "?# ")


def _written(config: Path | None) -> str | None:
    """The configuration as others find it, whatever folder they run in."""
    path = config or _USUAL_FILE
    return str(path.absolute()) if path.exists() else None


def _variables(config: str | None) -> list[str]:
    """The variables that a configuration takes from the environment."""
    from toolpost.configuration.secret_extraction import references

    return [] if config is None else references(Path(config).read_text(encoding="utf-8"))
