"""Options of GraphQL sources."""

# Annotations are evaluated as they stand, as in `config_model`.
from pydantic import Field

from toolpost.contracts.config_model import ConfigModel


class GraphqlOptions(ConfigModel):
    """Options of GraphQL; `selections` are keyed by the field's name."""

    depth: int = Field(default=2, ge=0, le=8, description="How deep the default selection goes")
    selections: dict[str, str] = Field(default_factory=dict[str, str])
    schema_file: str | None = Field(default=None, description="SDL or introspection in a file, where a server has none")
