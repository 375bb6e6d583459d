"""Chat models: their Protocols, what they answer with, clients of providers, and how a name becomes a model."""

from typing import TYPE_CHECKING

from toolpost.contracts.chat import ChatModel, ModelReply, StreamingChatModel, TextDelta, ToolCallDelta, Usage
from toolpost.contracts.lazy import lazy_attributes

if TYPE_CHECKING:
    from toolpost.agents.models.anthropic_messages import AnthropicMessages
    from toolpost.agents.models.litellm_model import LiteLLMChat
    from toolpost.agents.models.names import open_model
    from toolpost.agents.models.openai import OpenAIChat, OpenAIResponses
    from toolpost.agents.models.replies import request_reply
    from toolpost.schema.provider_schemas import ToolCompiler

__getattr__ = lazy_attributes(
    __name__,
    {
        "agents.models.anthropic_messages": ["AnthropicMessages"],
        "agents.models.litellm_model": ["LiteLLMChat"],
        "agents.models.names": ["open_model"],
        "agents.models.openai": ["OpenAIChat", "OpenAIResponses"],
        "agents.models.replies": ["request_reply"],
        "schema.provider_schemas": ["ToolCompiler"],
    },
)

__all__ = [
    "AnthropicMessages",
    "ChatModel",
    "LiteLLMChat",
    "ModelReply",
    "OpenAIChat",
    "OpenAIResponses",
    "StreamingChatModel",
    "TextDelta",
    "ToolCallDelta",
    "ToolCompiler",
    "Usage",
    "open_model",
    "request_reply",
]


def __dir__() -> list[str]:
    return list(__all__)
