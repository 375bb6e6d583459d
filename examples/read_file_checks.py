"""Checks of the built-in tool `read_file`: content, a missing file, and a path that is not allowed.

Prints:
should read file content: ok
should fail on non-existent file: ok
should reject unauthorized paths: ok
"""

import asyncio
import tempfile
from pathlib import Path

from toolpost import ToolContext
from toolpost.builtin import read_file


async def should_read_file_content(folder: Path) -> bool:
    """Read a file."""
    (folder / "test.txt").write_text("hello", encoding="utf-8")
    result = await read_file.execute({"path": str(folder / "test.txt")}, ToolContext("test", allowed_paths=None))
    return result.success and "content" in result.result


async def should_fail_on_non_existent_file(folder: Path) -> bool:
    """Read a file that is not there."""
    result = await read_file.execute({"path": str(folder / "nonexistent.txt")}, ToolContext("test", allowed_paths=None))
    return not result.success and "not found" in str(result.error)


async def should_reject_unauthorized_paths(folder: Path) -> bool:
    """Read a file outside of the allowed paths."""
    result = await read_file.execute({"path": "/etc/passwd"}, ToolContext("test", allowed_paths=[str(folder)]))
    return not result.success and "Permission denied" in str(result.error)


async def main() -> None:
    """Run the three checks."""
    checks = (should_read_file_content, should_fail_on_non_existent_file, should_reject_unauthorized_paths)
    with tempfile.TemporaryDirectory() as name:
        for check in checks:
            held = await check(Path(name))
            print(
                f"{check.__name__.replace('_', ' ').replace('non existent', 'non-existent')}:", "ok" if held else "no"
            )


if __name__ == "__main__":
    asyncio.run(main())
