"""Search providers that are exchanged by configuration; the tool and its result stay the same.

Prints:
brave: The Book of Tea
jina: The Book of Tea
"""

import asyncio

from toolpost import Completed, Settings, Toolbox, tool


@tool(side_effects="read")
async def brave(query: str) -> list[dict[str, str]]:
    """Search as the one provider does."""
    return [{"title": "The Book of Tea", "url": "https://books.example/tea", "snippet": query}]


@tool(side_effects="read")
async def jina(query: str) -> list[dict[str, str]]:
    """Search as the other provider does."""
    return [{"title": "The Book of Tea", "url": "https://books.example/tea", "snippet": query}]


async def main() -> None:
    """Search with the one provider, then with the other."""
    for provider in ("brave", "jina"):
        chain = [{"provider": "mcp", "tool": provider}]  # or {"provider": "brave", "apiKey": "${BRAVE_API_KEY}"}
        settings = Settings.model_validate({"data_dir": None, "tools": {"webSearch": {"chain": chain}}})
        async with Toolbox(tools=[brave, jina], builtins=["web_search"], settings=settings) as box:
            found = await box.call("web_search", {"query": "tea"})
            if isinstance(found, Completed):
                print(f"{found.content['provider']}: {found.content['results'][0]['title']}")


if __name__ == "__main__":
    asyncio.run(main())
