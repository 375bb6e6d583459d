"""GraphQL APIs as tools: one read-only tool per query field, one writing tool per mutation field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from toolpost.schema.json_values import is_array, is_object
from toolpost.transports.base import Detection, ProbeResponse, Transport, is_graphql_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.wire.messages import Request

_QUERY = b'{"query":"{__typename}"}'


class GraphqlTransport(Transport):
    """GraphQL over HTTP."""

    name = "graphql"
    source_class = "toolpost.sources.graphql.source:GraphqlSource"
    requires = ("graphql", "graphql")

    def probes(self, url: str) -> Iterator[Request]:
        """Query the name of the query type, which every GraphQL server knows."""
        from toolpost.wire.messages import Request  # noqa: PLC0415 - only detection needs it

        if is_graphql_path(url):
            yield Request("POST", url, headers=(("Content-Type", "application/json"),), body=_QUERY)

    def detect(self, response: ProbeResponse) -> Detection | None:
        """Recognise the answer to a query, or a server that asks for one."""
        if response.method == "POST":
            because = "it answers a GraphQL query" if _is_query_result(response.body) else None
        else:
            body = response.body.lower()
            asks = response.status != 200 and b"query" in body and b"graphql" in body
            because = "it asks for a GraphQL query" if asks else None
        return None if because is None else Detection("a GraphQL API", because)

    def files(self, config: ExternalToolConfig) -> Iterator[str]:
        """Return the file of the schema."""
        if config.graphql.schema_file is not None:
            yield config.graphql.schema_file


def _is_query_result(body: bytes) -> bool:
    try:
        value: object = json.loads(body)
    except ValueError:
        return False
    if not is_object(value):
        return False
    data = value.get("data")
    return (is_object(data) and "__typename" in data) or is_array(value.get("errors"))
