"""Texts as vectors, by an endpoint of the shape that OpenAI's `/v1/embeddings` has."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.api import Api, objects
from toolpost.contracts.errors import ToolServerError
from toolpost.schema.jsontypes import is_array

if TYPE_CHECKING:
    from toolpost.builtin.web_access import Web


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingApi:
    """Asks for the vector of one text at a time."""

    web: Web
    url: str
    model: str
    key: str = field(default="", repr=False)

    async def __call__(self, text: str) -> list[float]:
        """The vector of a text."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        secrets = (self.key,) if self.key else ()
        api = Api(name="embeddings", web=self.web, url=self.url, headers=headers, secrets=secrets)
        found = objects(await api.post("", {"model": self.model, "input": text}), "data")
        vector = found[0].get("embedding") if found else None
        if not is_array(vector) or not vector or not all(map(_is_number, vector)):
            message = f"the embeddings API answered without a vector; check its URL and its model {self.model!r}"
            raise ToolServerError(message, code="answer_unreadable")
        return [float(value) for value in vector]

    async def close(self) -> None:
        """Close the connections."""
        await self.web.close()


def _is_number(value: Any) -> bool:
    """Whether it is a number that fits; NaN is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
