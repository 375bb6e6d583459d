"""Program that parses an HTML page from stdin with selectolax and writes its tree to stdout as JSON.

For some pages (deep nesting, unclosed formatting elements) an HTML5 parser needs time and memory that grow with the
square of the page. A separate process with a memory limit, killed at a deadline, bounds both. The program imports
nothing of toolpost. Its argument is the folder that contains selectolax.
"""

from __future__ import annotations

import json
import sys
from typing import Any

_MAX_DEPTH = 150
_MAX_NODES = 200_000
_MAX_MEMORY = 1 << 30
# fmt: off
_DROPPED = frozenset({
    "script", "style", "iframe", "noembed", "noframes", "xmp", "template", "noscript", "svg", "math",
})
# fmt: on
_ATTRIBUTES = frozenset({"alt", "aria-hidden", "class", "hidden", "href", "src", "start", "style", "type"})


def main(packages: str) -> None:
    """Parse stdin and print the tree; exit with an error if the page needs too much memory."""
    _limit_memory()
    sys.path.insert(0, packages)
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    json.dump(parse(source), sys.stdout)


def parse(source: str) -> list[Any]:
    """Parse a document to `[name, attributes, children]`, the root without a name; a child is a node or a string.

    Scripts, styles and comments are dropped. Elements that are nested too deeply are dropped, but not their text.
    """
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - `main` sets its path

    root: list[Any] = ["", {}, []]
    waiting = [(LexborHTMLParser(source).root, root, 1)]
    for _ in range(_MAX_NODES):
        if not waiting:
            break
        node, parent, depth = waiting.pop()
        if node is None:
            continue
        waiting.append((node.next, parent, depth))
        if node.is_text_node:
            parent[2].append(node.text_content or "")
        elif node.is_element_node and node.tag not in _DROPPED:
            named = node.attributes
            element: list[Any] = [node.tag, {name: named[name] or "" for name in _ATTRIBUTES & named.keys()}, []]
            if depth < _MAX_DEPTH or node.first_child is None:
                parent[2].append(element)
            waiting.append((node.first_child, element if depth < _MAX_DEPTH else parent, depth + 1))
    return root


def _limit_memory() -> None:
    try:
        import resource  # noqa: PLC0415 - not on Windows, where only the deadline limits the program
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MAX_MEMORY if hard == resource.RLIM_INFINITY else min(hard, _MAX_MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    main(sys.argv[1])
