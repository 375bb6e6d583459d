"""`toolpost keys`: the key that seals what is kept in the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.commands import Commands
from toolpost.cli.opening import no_source
from toolpost.cli.options import Config, Json, User
from toolpost.cli.session import FAILED, run_with_box

if TYPE_CHECKING:
    from toolpost.cli.output import Output
    from toolpost.toolbox.box import Toolbox

app = Commands(help="Rotate the key that seals the data folder.", no_args_is_help=True)

Retire = Annotated[
    bool,
    typer.Option("--retire", help="Delete the older keys afterwards; stop other processes on this folder before."),
]


@app.callback()
def _group() -> None:
    """Rotate the key that seals the data folder."""


@app.command("rotate")
def rotate_key(retire: Retire = False, config: Config = None, user: User = "", json: Json = False) -> None:
    """Create a sealing key, and seal everything in the data folder with it.

    Older keys are kept, so that nothing is lost, unless --retire deletes them. Exits 1 when something does not open.
    """

    async def work(box: Toolbox, output: Output) -> int:
        counts = await box.store.rotate_key(retire=retire)
        unreadable = counts.pop("unreadable", 0)
        retired = retire and not unreadable
        if output.as_json:
            status = "failed" if unreadable else "ok"
            output.document({"status": status, "sealed": counts, "unreadable": unreadable, "retired": retired})
        else:
            output.table(["Kind", "Sealed anew"], [(kind, str(count)) for kind, count in sorted(counts.items())])
            if unreadable:
                output.note(f"{unreadable} values open with no key: they were moved or changed. Older keys are kept.")
            else:
                older = "are deleted" if retired else "are kept, and open what they sealed"
                output.note(f"A new key seals everything now. The older ones {older}.")
        return FAILED if unreadable else 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)
