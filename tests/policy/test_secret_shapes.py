"""Secrets in free text that nobody has configured are masked by their shapes, and ordinary text is not."""

import pytest

from toolpost import Completed, EventCode, Settings, Toolbox, tool
from toolpost.policy.redaction import Redactor
from toolpost.policy.secret_shapes import MASK, mask_secret_shapes

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN {0}PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq\nq9Zs3+/x==\n-----END {0}PRIVATE KEY-----"
# The text, and what must not be in it any more.
SECRETS = [
    ("api_key=sk-abcdef1234567890abcdef", "abcdef"),
    ("error: api_key=9f8e7d6c5b4a is wrong", "9f8e7d6c5b4a"),
    ("my Password: hunter2", "hunter2"),
    ("--password=hunter2! --verbose", "hunter2"),
    ("password = 'tr0ub4dor'", "tr0ub4dor"),
    ('{"password": "letmein"}', "letmein"),
    ('{"password": "correct horse battery", "user": "ann"}', "battery"),
    (r'"{\"password\": \"correct horse battery\"}"', "battery"),
    (r'"{\"client_secret\": \"letmein\"}"', "letmein"),
    ('secret := "letmein"', "letmein"),
    ("DB_PASSWORD=letmein", "letmein"),
    ("Server=db;User Id=sa;Password=letmein;", "letmein"),
    ("DefaultEndpointsProtocol=https;AccountKey=abcDEFghi==;EndpointSuffix=x", "abcDEFghi"),
    ("clientSecret: a8f5f167f44f4964e6c998dee827110c", "a8f5f167"),
    ("the key is sk-proj-abc123DEF456ghi789, keep it", "abc123DEF"),
    ("sk-ant-api03-AbCdEfGhIjKlMnOp", "AbCdEfGh"),
    ("sk_live_abcdefghij1234567890", "abcdefghij"),
    ("push with ghp_abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijkl"),
    ("github_pat_11ABCDEFG0abcdefghij_klmnop", "11ABCDEFG0"),
    ("glpat-abcdefghij1234567890", "abcdefghij"),
    ("xoxb-123456789012-abcdefABCDEF", "abcdefABCDEF"),
    ("id AKIAIOSFODNN7EXAMPLE of a user", "IOSFODNN7"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "1234567890abc"),
    (f"the token {JWT} has expired", "eyJzdWIi"),
    (f"the token {JWT[:40]}", "eyJzdWIi"),
    ("Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ('"authorization": "Token abcdefghijk"', "abcdefghijk"),
    ("it sent Bearer abcd1234efgh5678", "abcd1234"),
    (PEM.format("RSA "), "MIIEow"),
    (PEM.format("").replace("\n", "\\n"), "MIIEow"),
    (PEM.format("ENCRYPTED ")[:60], "MIIEow"),
    ("postgres://app:s3cr3t@db.example.com/main", "s3cr3t"),
    ("redis://:s3cr3t@cache:6379/0", "s3cr3t"),
]
HARMLESS = [
    "The password is required and must be changed: see the handbook.",
    "password: required",
    "token: the value that the server returned",
    "Bearer of bad news; bearer authentication is used",
    "a basic understanding of tokens: none is needed",
    "the secretary: Ann Miller",
    "secret: true",
    "api_key: <your key here>",
    "PASSWORD=$PASSWORD",
    "password: ${DB_PASSWORD}",
    "password: str | None = None",
    "def sign_in(token: str, password: str = '') -> None:",
    "token = next(tokens)",
    "if token == expected: return self.token",
    "Client(api_key=settings.api_key, token=token, password=get_password())",
    "max_tokens=4096000, token_count: 12345678, next_page_token: abc123def456",
    "primary_key=id12345; tokenizer=bert-base-uncased2; keyboard: qwerty1234",
    "key: 5f4dcc3b5aa765d61d8327deb882cf99",
    "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 3a3a2ef8c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6",
    "550e8400-e29b-41d4-a716-446655440000",
    "run_1a1eee034f29b2ff06d000000",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5E",
    "https://example.com:8443/path?page=2&sort=asc#top",
    "git@github.com:acme/repo.git and ann@example.com",
    "sk-learn-compatible-estimators for a task-oriented desk-research",
    "the Asia-Pacific region, 12:30:45",
    '{"type": "object", "properties": {"token": {"type": "string"}}}',
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_what_has_the_shape_of_a_secret_is_masked(text: str, secret: str) -> None:
    masked = Redactor().redact(text)

    assert secret not in masked
    assert MASK in masked
    assert Redactor().redact(masked) == masked


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redactor().redact(text) == text


@pytest.mark.parametrize(
    "text", ["password=" * 20_000, "key:" * 50_000, "a=aaaa" * 30_000 + "key", "eyJaaaaaaaa." * 20_000]
)
def test_a_hostile_text_is_searched_in_linear_time(text: str) -> None:
    assert len(mask_secret_shapes(text)) > 0


async def test_a_secret_in_free_text_is_in_no_event_and_the_call_gets_and_gives_it_unchanged() -> None:
    text = "use api_key=sk-abcdef1234567890abcdef for it"

    @tool(side_effects="write", destructive=True)
    async def note(text: str) -> str:
        """Write a note."""
        return f"noted: {text}"

    async with Toolbox(tools=[note], settings=Settings(data_dir=None)) as box:
        paused = await box.call("note", {"text": text}, user="acme:ann")
        [action] = await box.pending.list(by="acme:ann")
        card = box.pending.card(action)
        done = await box.approve(action.id, by="acme:ann")
        events = await box.events(user="acme:ann", run_id=paused.run_id)

    assert isinstance(done, Completed)
    assert done.content == f"noted: {text}"
    assert action.arguments == {"text": text}
    assert (card["arguments"], card["masked"]) == ({"text": f"use api_key={MASK} for it"}, ["/text"])
    assert EventCode.TOOL_CALL_COMPLETED in [event.code for event in events]
    assert "sk-abcdef" not in str([event.to_dict() for event in events])
