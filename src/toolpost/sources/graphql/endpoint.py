"""The one address of a GraphQL API: queries go there with their variables, answers come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.secrets import is_secret_name
from toolpost.sources.graphql.answers import answer_of
from toolpost.web.encoding import UnsendableError, compact_json
from toolpost.web.planned import PlannedRequest
from toolpost.web.presentation import Presentation
from toolpost.web.sending import sender
from toolpost.web.targets import pairs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.graphql.answers import Answer
    from toolpost.web.sending import Send
    from toolpost.wire.client import HttpClient

_HEADERS = (
    ("Accept", "application/graphql-response+json, application/json;q=0.9"),
    ("Content-Type", "application/json"),
)


class Question(NamedTuple):
    """What is asked; `subject` is how an error names it."""

    subject: str
    query: str
    operation_name: str
    variables: Mapping[str, Any]


class Endpoint:
    """Asks over a client; the operator's headers and the credential go along."""

    def __init__(self, config: ExternalToolConfig, client: HttpClient) -> None:
        address, _, query = config.connection.partition("#")[0].partition("?")
        self._planned = PlannedRequest("POST", address, query=pairs_of(query), headers=_HEADERS).with_headers(
            tuple(config.headers.items())
        )
        self._secrets = tuple(value for name, value in config.headers.items() if is_secret_name(name))
        self._send = sender(client)
        self._send_slowly = sender(client, timeout_s=config.connect_timeout_s)

    async def ask(self, question: Question, credential: Credential) -> Answer:
        """Send a query; what is no answer in GraphQL's sense is raised."""
        return await self._ask(question, credential, self._send)

    async def ask_slowly(self, question: Question, credential: Credential) -> Answer:
        """The same with the patience that there is for a schema."""
        return await self._ask(question, credential, self._send_slowly)

    async def _ask(self, question: Question, credential: Credential, send: Send) -> Answer:
        presented = Presentation(headers=tuple(credential.headers.items()))
        request = self._planned._replace(body=_body(question), presented=presented)
        return answer_of(question.subject, await send(request), secrets=(*presented.secrets, *self._secrets))


def _body(question: Question) -> bytes:
    payload = {
        "query": question.query,
        "operationName": question.operation_name,
        "variables": dict(question.variables),
    }
    try:
        return compact_json(payload).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"{question.subject} cannot be sent: {error}") from error
