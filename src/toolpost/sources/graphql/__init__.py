"""GraphQL APIs as tools: one read-only tool per query field, one writing tool per mutation field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.base import Detection, ProbeResponse, Transport, is_graphql_path
from toolpost.sources.graphql.options import GraphqlOptions

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.wire.messages import Request

_QUERY = b'{"query":"{__typename}"}'


class GraphqlTransport(Transport):
    """GraphQL over HTTP."""

    name = "graphql"
    options = GraphqlOptions
    source_class = "toolpost.sources.graphql.source:GraphqlSource"
    requires = ("graphql", "graphql")

    def probes(self, url: str) -> Iterator[Request]:
        """Query the name of the query type, which every GraphQL server knows."""
        from toolpost.wire.messages import Request  # noqa: PLC0415 - only detection needs it

        if is_graphql_path(url):
            yield Request("POST", url, headers=(("Content-Type", "application/json"),), body=_QUERY)

    def detect(self, response: ProbeResponse) -> Detection | None:
        """Recognize the response to a query, or a server that requires one."""
        if response.method == "POST":
            because = "it answers a GraphQL query" if _is_query_result(response.body) else None
        else:
            body = response.body.lower()
            asks = response.status != 200 and b"query" in body and b"graphql" in body
            because = "it requires a GraphQL query" if asks else None
        return None if because is None else Detection("a GraphQL API", because)

    def files(self, config: ExternalToolConfig) -> Iterator[str]:
        if (file := config.read_options(GraphqlOptions).schema_file) is not None:
            yield file

    def with_absolute_paths(self, config: ExternalToolConfig, absolute: Callable[[str], str]) -> ExternalToolConfig:
        changed = super().with_absolute_paths(config, absolute)
        file = changed.read_options(GraphqlOptions).schema_file
        return changed if file is None else changed.with_options(schema_file=absolute(file))


def _is_query_result(body: bytes) -> bool:
    try:
        value: object = json.loads(body)
    except ValueError:
        return False
    if not is_object(value):
        return False
    data = value.get("data")
    return (is_object(data) and "__typename" in data) or is_array(value.get("errors"))
