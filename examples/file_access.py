"""Files within the allowed paths only, subfolders included, and memory that no path escapes.

Prints:
docs/guide/start.md: Welcome.
elsewhere: Permission denied
../secrets.md: Permission denied: Path "../secrets.md" escapes memory directory
a tool of your own: Permission denied: Path not in allowed paths
"""

import asyncio
import tempfile
from pathlib import Path

from toolpost import ToolContext
from toolpost.builtin import memory_read, read_file
from toolpost.errors import ToolPermissionError
from toolpost.sources import is_path_allowed


def check_path(tool_name: str, path: str, context: ToolContext) -> None:
    """Refuse a path that the context does not allow."""
    if not is_path_allowed(path, context.allowed_paths):
        raise ToolPermissionError(tool_name, "Path not in allowed paths")


async def main() -> None:
    """Read what is allowed, and what is not."""
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name).resolve()
        (workspace / "docs" / "guide").mkdir(parents=True)
        (workspace / "docs" / "guide" / "start.md").write_text("Welcome.", encoding="utf-8")
        context = ToolContext(
            "abc123",
            allowed_paths=[str(workspace / "data"), str(workspace / "docs")],
            memory_dir=str(workspace / "data" / "memory"),
        )
        start = await read_file.execute({"path": str(workspace / "docs/guide/start.md")}, context)
        print("docs/guide/start.md:", start.result["content"])
        elsewhere = await read_file.execute({"path": str(workspace / "other.txt")}, context)
        print("elsewhere:", str(elsewhere.error).partition(":")[0])
        escaped = await memory_read.execute({"path": "../secrets.md"}, context)
        print("../secrets.md:", escaped.error)
        try:
            check_path("my_tool", str(workspace / "other.txt"), context)
        except ToolPermissionError as refused:
            print("a tool of your own:", refused)


if __name__ == "__main__":
    asyncio.run(main())
