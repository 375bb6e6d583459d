"""The one address of a GraphQL API: queries go there with their variables, answers come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.graphql.answers import answer_of
from toolpost.web.encoding import UnsendableError, compact_json
from toolpost.web.multipart import FormPart, multipart_body
from toolpost.web.planned import PlannedRequest
from toolpost.web.presentation import Presentation
from toolpost.web.sending import sender
from toolpost.web.targets import pairs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.graphql.answers import Answer
    from toolpost.web.encoding import Pair
    from toolpost.web.sending import Send
    from toolpost.wire.client import HttpClient

_ACCEPT = ("Accept", "application/graphql-response+json, application/json;q=0.9")
_JSON = ("Content-Type", "application/json")
# A form can come from any web page, so that Apollo and Hot Chocolate want a header that no page can send.
_NO_PAGE = (("Apollo-Require-Preflight", "true"), ("GraphQL-Preflight", "1"))


class Question(NamedTuple):
    """What is asked; `subject` is how an error names it, `files` go beside the variables, by their places in them."""

    subject: str
    query: str
    operation_name: str
    variables: Mapping[str, Any]
    files: Mapping[str, FormPart] = {}
    writes: bool = False


class Endpoint:
    """Asks over a client; the operator's headers and the credential go along."""

    def __init__(self, config: ExternalToolConfig, client: HttpClient) -> None:
        address, _, query = config.connection.partition("#")[0].partition("?")
        self._planned = PlannedRequest("POST", address, query=pairs_of(query))
        self._headers = tuple(config.headers.items())
        self._secrets = tuple(value for name, value in config.headers.items() if is_secret_header(name, value))
        self._write = sender(client)
        self._read = sender(client, reads=True)
        self._read_slowly = sender(client, timeout_s=config.connect_timeout_s, reads=True)

    async def ask(self, question: Question, credential: Credential) -> Answer:
        """Send a query; what is no answer in GraphQL's sense is raised."""
        return await self._ask(question, credential, self._write if question.writes else self._read)

    async def ask_slowly(self, question: Question, credential: Credential) -> Answer:
        """The same with the patience that there is for a schema."""
        return await self._ask(question, credential, self._read_slowly)

    async def _ask(self, question: Question, credential: Credential, send: Send) -> Answer:
        presented = Presentation(headers=tuple(credential.headers.items()))
        headers, body = _packed(question)
        request = self._planned._replace(headers=headers, body=body, presented=presented).with_headers(self._headers)
        return answer_of(question.subject, await send(request), secrets=(*presented.secrets, *self._secrets))


def _packed(question: Question) -> tuple[tuple[Pair, ...], bytes]:
    """The headers and the body; with files a form of the JSON, of where each file belongs in it, and of the files."""
    if not question.files:
        return (_ACCEPT, _JSON), _payload(question)
    places = {part.name: [place] for place, part in question.files.items()}
    first = FormPart("operations", _payload(question)), FormPart("map", compact_json(places).encode())
    body, boundary = multipart_body([*first, *question.files.values()])
    return (_ACCEPT, ("Content-Type", f"multipart/form-data; boundary={boundary}"), *_NO_PAGE), body


def _payload(question: Question) -> bytes:
    payload = {
        "query": question.query,
        "operationName": question.operation_name,
        "variables": dict(question.variables),
    }
    try:
        return compact_json(payload).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"{question.subject} cannot be sent: {error}") from error
