"""YAML read strictly: errors name the line and quote nothing of the file, and no key is there twice."""

from __future__ import annotations

from typing import Any

import yaml

from toolpost.contracts.errors import ConfigError


def parse(text: str, shown: str) -> Any:
    """Return the data of a text; ConfigError names what is wrong in the file `shown`, RecursionError a deep one."""
    # The message of a YAML error quotes the file, which may hold secrets; only its problem and line are reported.
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader, only stricter
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{shown}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or number that Python cannot hold
        raise ConfigError(f"{shown} is not valid YAML: {getattr(error, 'reason', error)}") from None


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that rejects duplicate keys, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - yaml's signature
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                problem = f"key {key.value!r} is there twice (first in line {seen[key.value]}); keep one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen[key.value] = line
        return super().construct_mapping(node, deep)
