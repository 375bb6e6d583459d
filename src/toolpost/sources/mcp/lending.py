"""What a server may borrow from us without asking a person: the allowed folders, and a chat model if one is set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mcp_types import CreateMessageResult, ErrorData, ListRootsResult

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.sources import ChatModel

_NOT_SUPPORTED = -32600


class Lending:
    """Answers a server's requests for roots and for a model's words; sampling is off unless a model is given."""

    def __init__(self, roots: Sequence[str] | None, model: ChatModel | None) -> None:
        self._roots = roots
        self._model = model

    def callbacks(self) -> dict[str, Any]:
        """The session callbacks of what is on offer; the rest is not announced to the server at all."""
        offered: dict[str, Any] = {}
        if self._roots is not None:
            offered["list_roots_callback"] = self._list_roots
        if self._model is not None:
            offered["sampling_callback"] = self._sample
        return offered

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The reply to a request that came inside an answer; None for what is not on offer."""
        match request.get("method"):
            case "roots/list" if self._roots is not None:
                return self.roots()
            case "sampling/createMessage" if self._model is not None:
                return await self._words(self._model, cast("dict[str, Any]", request.get("params") or {}))
            case _:
                return None

    def roots(self) -> dict[str, Any]:
        """The folders, as file URIs."""
        folders = [Path(folder).resolve() for folder in self._roots or ()]
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]}

    async def _list_roots(self, context: Any) -> ListRootsResult:
        return ListRootsResult.model_validate(self.roots())

    async def _sample(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        if self._model is None:
            return ErrorData(code=_NOT_SUPPORTED, message="sampling is off")
        raw = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        return CreateMessageResult.model_validate(await self._words(self._model, raw))

    async def _words(self, model: ChatModel, params: Mapping[str, Any]) -> dict[str, Any]:
        """What the model says to the server's messages."""
        messages: list[dict[str, Any]] = []
        if params.get("systemPrompt"):
            messages.append({"role": "system", "content": params["systemPrompt"]})
        messages += [{"role": m["role"], "content": _text(m.get("content"))} for m in params.get("messages", [])]
        reply = await model.complete(messages)
        content = {"type": "text", "text": str(reply.get("content") or "")}
        name = str(reply.get("model") or type(model).__name__)
        return {"role": "assistant", "content": content, "model": name, "stopReason": "endTurn"}


def _text(content: Any) -> str:
    blocks = content if is_array(content) else [content]
    held = [block.get("text") for block in blocks if is_object(block)]
    return "\n".join(str(text) for text in held if text)
