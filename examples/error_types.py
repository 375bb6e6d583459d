"""Errors of tools, and whether the call can be repeated.

Prints:
ToolNotFoundError: Tool "read_fil" not found. Did you mean "read_file"?
ToolValidationError: Parameter validation failed: $: missing required "path"
ToolTimeoutError: Tool execution timed out after 30000ms
ToolPermissionError: Permission denied: Path not in allowed paths
ToolRateLimitError: retryable_rate, again after 1.0 s
ToolConnectionError: network, is_retryable=True
"""

import asyncio

from toolpost import Failed, Settings, Toolbox
from toolpost.compat.penguiflow.tools import ToolRateLimitError, adapt_exception
from toolpost.errors import ToolError, ToolPermissionError, ToolTimeoutError


async def main() -> None:
    """Print an error of each kind."""
    async with Toolbox(builtins=["read_file"], settings=Settings(data_dir=None)) as box:
        for name in ("read_fil", "read_file"):
            outcome = await box.call(name, {})
            if isinstance(outcome, Failed):
                told = str(outcome.error).partition(" (")[0]
                print(f"{type(outcome.error).__name__}: {told}")
    raised: list[ToolError] = [
        ToolTimeoutError(timeout_ms=30_000),
        ToolPermissionError("read_file", "Path not in allowed paths"),
    ]
    for error in raised:
        print(f"{type(error).__name__}: {error}")
    limited = ToolRateLimitError("slow down", status_code=429)
    print(f"{type(limited).__name__}: {limited.category}, again after {limited.retry_after_seconds} s")
    adapted = adapt_exception(ConnectionResetError("reset"), "mcp")
    print(f"{type(adapted).__name__}: {adapted.category}, is_retryable={adapted.is_retryable}")


if __name__ == "__main__":
    asyncio.run(main())
