"""Options of webhook sources."""

# Annotations are evaluated as they stand, as in `config_model`.
from typing import Literal

from pydantic import Field

from toolpost.contracts.config import HEADER_NAME, DeclaredTool
from toolpost.contracts.config_model import ConfigModel


class WebhookTool(DeclaredTool):
    """A webhook: the arguments are the body of the request, or the query where the method has no body."""

    url: str = Field(default="", description="A path below the connection, or a whole URL; empty is the connection")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    idempotency_header: str | None = Field(
        default=None,
        pattern=HEADER_NAME,
        description="Where a key is sent that stays the same however often a call is tried",
    )


class WebhookSignature(ConfigModel):
    """Signature of the body: an HMAC in a header."""

    secret: str = Field(min_length=1, repr=False)
    header: str = Field(default="X-Signature-256", pattern=HEADER_NAME)
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    timestamp_header: str | None = Field(default=None, pattern=HEADER_NAME)


class WebhookOptions(ConfigModel):
    """Options of webhooks; `n8n` lists the tools by n8n's public API."""

    kind: Literal["auto", "plain", "n8n"] = "auto"
    tools: dict[str, WebhookTool] = Field(default_factory=dict[str, WebhookTool])
    signature: WebhookSignature | None = None
