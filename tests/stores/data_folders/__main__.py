"""Write the data folder of the newest migration: `python -m tests.stores.data_folders`.

Run it once for each new migration. A folder of a released version is never written again: it shows that a data folder
of that version opens.
"""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.stores.data_folders.content import write_content
from toolpost.stores.sqlite.database import MIGRATIONS


def main() -> None:
    newest = max(path.name.split("_")[0] for path in MIGRATIONS.glob("*.sql"))
    folder = Path(__file__).with_name(newest)
    shutil.rmtree(folder, ignore_errors=True)
    asyncio.run(write_content(folder))
    with closing(sqlite3.connect(folder / "toolpost.db")) as db:
        db.execute("VACUUM")
        db.execute("PRAGMA journal_mode = DELETE")  # one file; opening it switches to WAL again
    shutil.rmtree(folder / "owners")
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file())} bytes")


if __name__ == "__main__":
    main()
