"""Settings of providers in the configuration file."""

# Annotations are evaluated at run time, as in `contracts.config_model`.
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from toolpost.contracts.config_model import ConfigModel

SearchName = Literal["tavily", "google", "bing", "duckduckgo", "brave", "jina"]
ArgumentName = Literal["query", "count", "url", "filters"]
ProviderName = Literal[SearchName, "direct", "opensearch", "pgvector", "embedded", "mcp"]
# In the short form `tools.webSearch`, a missing key is reported at the first call: it may be set later.
_NEEDED: dict[str, tuple[str, ...]] = {
    "google": ("engine",),
    "opensearch": ("url", "index"),
    "pgvector": ("url", "index", "embeddings"),
    "embedded": ("path",),
    "mcp": ("tool",),
}
_ENGINE_HINT = (
    "engine is the id (cx) of a Programmable Search Engine: create one at https://programmablesearchengine.google.com "
    "and copy its search engine ID; the key alone names no engine"
)


class EmbeddingSettings(ConfigModel):
    """Settings of an endpoint like OpenAI's `/v1/embeddings`, which converts text to vectors."""

    url: str = Field(pattern=r"^https?://\S+$")
    model: str
    api_key: SecretStr | None = None


class ProviderSettings(ConfigModel):
    """Settings of one provider in a chain; a provider ignores those that it does not need."""

    provider: ProviderName
    api_key: SecretStr | None = Field(default=None, description="Its key; for pgvector the password")
    user: str | None = Field(default=None, description="For opensearch, with the key as its password")
    url: str | None = Field(
        default=None, pattern=r"^(https?|postgresql)://\S+$", description="Where it is, if not usual"
    )
    engine: str | None = Field(default=None, description="The id of a search engine of Google's (cx)")
    index: str | None = Field(default=None, description="The index of opensearch, the table of pgvector")
    path: Path | None = Field(default=None, description="The file of the embedded store")
    tool: str | None = Field(default=None, description="The tool that an mcp provider calls, such as web.search")
    arguments: dict[ArgumentName, str] = Field(
        default_factory=dict[ArgumentName, str], description="What that tool calls query, count, url and filters"
    )
    embeddings: EmbeddingSettings | None = Field(default=None, description="Needed by pgvector")
    timeout_s: float = Field(
        default=10.0, gt=0, le=300, description="Timeout in seconds before the next provider is tried"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        missing = [key for key in _NEEDED.get(self.provider, ()) if getattr(self, key) is None]
        if missing:
            hint = f"; {_ENGINE_HINT}" if missing == ["engine"] else ""
            raise ValueError(f"provider={self.provider} requires {' and '.join(missing)}{hint}")
        return self

    @property
    def key(self) -> str:
        """The key without the trailing newline of a secrets file; empty if there is none."""
        return self.api_key.get_secret_value().strip() if self.api_key else ""
