"""`python checkers.py`: parse the expressions on stdin, a JSON list, and print the metrics that each one names.

It runs beside the checkers of the deployment files, which have an environment of their own.
"""

import json
import sys

import promql_parser


def names_in(text: str) -> list[str]:
    """Return the metrics of an expression; ValueError if it is none."""
    found: set[str] = set()

    def walk(node: object) -> None:
        name = getattr(node, "name", None)
        if type(node).__name__ == "VectorSelector" and name:
            found.add(str(name))
        for attribute in ("expr", "lhs", "rhs", "vector_selector", "vs", "param", "args"):
            below = getattr(node, attribute, None)
            for one in below if isinstance(below, list) else [below]:
                if one is not None and not isinstance(one, str | int | float):
                    walk(one)

    walk(promql_parser.parse(text))
    return sorted(found)


if __name__ == "__main__":
    print(json.dumps([names_in(text) for text in json.load(sys.stdin)]))
