"""OAuth endpoints of services that publish no metadata (RFC 8414) for their APIs, by the name of the service."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

_ENDPOINTS = ("issuer", "auth_url", "token_url")


class ProviderEndpoints(NamedTuple):
    """OAuth endpoints of a service.

    `register_at` is the page for registering an OAuth app. A query in `auth_url` is part of the request: some services
    return a refresh token only if it is requested there.
    """

    display_name: str
    auth_url: str
    token_url: str
    register_at: str
    revocation_url: str = ""
    device_url: str = ""
    issuer: str = ""
    client_auth: Literal["client_secret_basic", "client_secret_post", ""] = ""

    def to_auth_config(self) -> dict[str, str]:
        """Return these endpoints as keys of `auth_config`."""
        fields = self._asdict()
        del fields["register_at"]
        return {key: value for key, value in fields.items() if value}


KNOWN_PROVIDERS: Mapping[str, ProviderEndpoints] = MappingProxyType(
    {
        "asana": ProviderEndpoints(
            "Asana",
            "https://app.asana.com/-/oauth_authorize",
            "https://app.asana.com/-/oauth_token",
            revocation_url="https://app.asana.com/-/oauth_revoke",
            register_at="https://app.asana.com/0/my-apps",
        ),
        "atlassian": ProviderEndpoints(
            "Atlassian",
            "https://auth.atlassian.com/authorize?audience=api.atlassian.com&prompt=consent",
            "https://auth.atlassian.com/oauth/token",
            register_at="https://developer.atlassian.com/console/myapps/",
        ),
        "dropbox": ProviderEndpoints(
            "Dropbox",
            "https://www.dropbox.com/oauth2/authorize?token_access_type=offline",
            "https://api.dropboxapi.com/oauth2/token",
            register_at="https://www.dropbox.com/developers/apps",
        ),
        "github": ProviderEndpoints(
            "GitHub",
            "https://github.com/login/oauth/authorize",
            "https://github.com/login/oauth/access_token",
            device_url="https://github.com/login/device/code",
            register_at="https://github.com/settings/developers",
        ),
        "gitlab": ProviderEndpoints(
            "GitLab",
            "https://gitlab.com/oauth/authorize",
            "https://gitlab.com/oauth/token",
            revocation_url="https://gitlab.com/oauth/revoke",
            device_url="https://gitlab.com/oauth/authorize_device",
            register_at="https://gitlab.com/-/user_settings/applications",
        ),
        "google": ProviderEndpoints(
            "Google",
            "https://accounts.google.com/o/oauth2/v2/auth?access_type=offline&prompt=consent",
            "https://oauth2.googleapis.com/token",
            revocation_url="https://oauth2.googleapis.com/revoke",
            device_url="https://oauth2.googleapis.com/device/code",
            issuer="https://accounts.google.com",
            register_at="https://console.cloud.google.com/apis/credentials",
        ),
        "linear": ProviderEndpoints(
            "Linear",
            "https://linear.app/oauth/authorize",
            "https://api.linear.app/oauth/token",
            revocation_url="https://api.linear.app/oauth/revoke",
            register_at="https://linear.app/settings/api",
        ),
        "microsoft": ProviderEndpoints(
            "Microsoft",
            "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
            "https://login.microsoftonline.com/common/oauth2/v2.0/token",
            device_url="https://login.microsoftonline.com/common/oauth2/v2.0/devicecode",
            register_at="https://entra.microsoft.com",
        ),
        "notion": ProviderEndpoints(
            "Notion",
            "https://api.notion.com/v1/oauth/authorize?owner=user",
            "https://api.notion.com/v1/oauth/token",
            register_at="https://www.notion.so/my-integrations",
            client_auth="client_secret_basic",
        ),
        # The endpoints for tokens of users; those of v2 without `_user` are for bots, and nest the user's token.
        "slack": ProviderEndpoints(
            "Slack",
            "https://slack.com/oauth/v2_user/authorize",
            "https://slack.com/api/oauth.v2.user.access",
            register_at="https://api.slack.com/apps",
            client_auth="client_secret_post",
        ),
    }
)


def with_known_endpoints(config: Mapping[str, Any], provider: str) -> dict[str, Any]:
    """Return `auth_config` with the endpoints of a known service, unless it has its own."""
    endpoints = KNOWN_PROVIDERS.get(provider)
    if endpoints is None or any(config.get(key) for key in _ENDPOINTS):
        return dict(config)
    return {**endpoints.to_auth_config(), **config}
