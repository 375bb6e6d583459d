"""Options of sources that call a REST API."""

# Annotations are evaluated as they stand, as in `config_model`.
from pydantic import Field

from toolpost.contracts.config import HEADER_NAME
from toolpost.contracts.config_model import ConfigModel


class HttpOptions(ConfigModel):
    """Options of REST APIs."""

    idempotency_header: str | None = Field(
        default=None,
        pattern=HEADER_NAME,
        description="Header with a key that identifies a repeated call; calls with effects may then be retried",
    )
