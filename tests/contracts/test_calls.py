"""The stages of a call, each made from the one before."""

from typing import Any

from toolpost.contracts.calls import AuthorizedCall, Credential, PermittedCall, RequestedCall, ValidatedCall
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.principal import Principal
from toolpost.contracts.spec import ToolSpec


class Echo:
    spec = ToolSpec(name="echo")

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(success=True, result=params)


def authorized(
    *, idempotency_key: str | None = None, credential: Credential | None = None, user: str = "ann"
) -> AuthorizedCall:
    request = RequestedCall(
        "call_1", "run_1", "echo", {"a": 1}, Principal("acme", user), idempotency_key=idempotency_key
    )
    permitted = PermittedCall(ValidatedCall(request, Echo(), {"a": 1}))
    return AuthorizedCall(permitted, credential or Credential(), ToolContext)


def test_the_last_stage_still_knows_what_was_asked() -> None:
    call = authorized()

    assert (call.request.call_id, call.tool.spec.name, call.arguments) == ("call_1", "echo", {"a": 1})


def test_the_replay_key_is_of_the_callers_key_or_the_call_itself() -> None:
    mine = authorized(idempotency_key="k1").replay_key
    assert mine == authorized(idempotency_key="k1").replay_key
    assert mine != authorized(idempotency_key="k2").replay_key
    assert authorized().replay_key == "call_1"


def test_one_key_of_two_people_is_two_keys_to_the_other_side() -> None:
    ann, bob = (authorized(idempotency_key="order-1", user=user).replay_key for user in ("ann", "bob"))
    assert ann != bob


def test_a_credential_never_shows_its_headers() -> None:
    credential = Credential("github:ann", {"Authorization": "Bearer hunter22"})

    assert "hunter22" not in repr(credential)
    assert "hunter22" not in repr(authorized(credential=credential))
