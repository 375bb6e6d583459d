"""The one context of a running tool: who it is for, what it may see, and how it pauses."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import PauseSignal, ToolError
from toolpost.contracts.outcomes import Completed, Outcome
from toolpost.contracts.questions import Answer


class Services:
    """What a runtime would lend: it writes down what was asked of it."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.told: list[tuple[str, float | None]] = []

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any:
        if key not in self.kept:
            self.kept[key] = await fn()
        return self.kept[key]

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        self.told.append((text, fraction))

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str, *, key: str) -> Outcome:
        return Completed("call_1", "run_1", tool_name, arguments if isinstance(arguments, str) else dict(arguments))

    async def save_artifact(self, data: bytes, *, media_type: str, name: str) -> str:
        self.kept[name] = (data, media_type)
        return "art_1"

    async def read_artifact(self, artifact_id: str) -> bytes:
        raise KeyError(artifact_id)

    def stream(self, value: Any) -> None:
        self.told.append((str(value), None))

    def extend_deadline(self, timeout_s: float) -> None:
        self.told.append((f"{timeout_s} s in all", None))

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        self.told.append((f"{name} failed: {error}; {to} is asked", None))


@pytest.mark.req("PTYPE-04")
def test_a_context_holds_the_task_the_user_and_the_folders() -> None:
    context = ToolContext(
        "task_1", user_id="ann", allowed_paths=["/data"], memory_dir="/data/memory", session_dir="/data/session"
    )

    assert (context.task_id, context.user_id) == ("task_1", "ann")
    assert context.allowed_paths == ("/data",)
    assert (context.memory_dir, context.session_dir) == ("/data/memory", "/data/session")


def test_all_but_the_task_may_be_left_out() -> None:
    context = ToolContext("task_1")

    assert (context.user_id, context.allowed_paths, context.memory_dir, context.session_dir) == (None,) * 4


def test_no_allowed_paths_is_not_the_same_as_none_given() -> None:
    assert ToolContext(allowed_paths=[]).allowed_paths == ()
    assert ToolContext().allowed_paths is None


@pytest.mark.req("STATE-08")
@pytest.mark.parametrize(
    "context",
    [
        ToolContext(user_id="ann"),
        ToolContext(tool_context={"user_id": "ann"}),
        ToolContext(user_id="ann", tool_context={"user_id": "ann"}),
    ],
    ids=["attribute", "tool_context", "both"],
)
def test_the_user_is_the_same_wherever_it_was_given(context: ToolContext) -> None:
    assert (context.user_id, context.tool_context["user_id"]) == ("ann", "ann")


def test_two_different_users_are_refused() -> None:
    with pytest.raises(ValueError, match="'ann' and tool_context\\['user_id'\\] 'bob' differ"):
        ToolContext(user_id="ann", tool_context={"user_id": "bob"})


@pytest.mark.req("STATE-08")
def test_what_a_model_sees_is_read_only_and_what_tools_share_is_not() -> None:
    given = {"goal": "tidy up"}
    context = ToolContext(llm_context=given, tool_context={"session": "s1"})

    given["goal"] = "something else"
    context.tool_context["session"] = "s2"

    assert context.llm_context == {"goal": "tidy up"}
    assert context.tool_context["session"] == "s2"
    with pytest.raises(TypeError):
        context.llm_context["goal"] = "changed"  # type: ignore[index]


@pytest.mark.req("STATE-08")
async def test_the_first_pause_ends_the_attempt_with_a_question() -> None:
    context = ToolContext()

    with pytest.raises(PauseSignal) as raised:
        await context.pause("need_file", {"prompt": "Which file?", "folder": "/data"})

    question = raised.value.question
    assert (question.kind, question.reason, question.prompt) == ("input", "need_file", "Which file?")
    assert question.payload == {"prompt": "Which file?", "folder": "/data"}


@pytest.mark.parametrize(
    ("payload", "prompt", "shown"),
    [
        ({"prompt": "from the payload"}, "said outright", "said outright"),
        ({"prompt": "from the payload"}, None, "from the payload"),
        (None, None, "the_reason"),
    ],
    ids=["prompt", "payload", "reason"],
)
async def test_a_question_is_put_in_the_best_words_there_are(
    payload: dict[str, Any] | None, prompt: str | None, shown: str
) -> None:
    with pytest.raises(PauseSignal) as raised:
        await ToolContext().pause("the_reason", payload, prompt=prompt, kind="consent")

    assert (raised.value.question.prompt, raised.value.question.kind) == (shown, "consent")


@pytest.mark.req("STATE-08")
async def test_a_pause_whose_answer_is_known_returns_it() -> None:
    context = ToolContext(answers={"pause:0": Answer(decision="answer", value="a.txt")})

    assert await context.pause("need_file") == "a.txt"


@pytest.mark.req("STATE-08")
async def test_two_pauses_of_one_tool_are_distinguished() -> None:
    async def tool(context: ToolContext) -> list[Any]:
        return [await context.pause("first"), await context.pause("second")]

    answers: dict[str, Answer] = {}
    for reason, value in [("first", None), ("second", 2)]:
        with pytest.raises(PauseSignal) as raised:
            await tool(ToolContext(answers=answers))
        assert raised.value.question.reason == reason
        answers[raised.value.question.key] = Answer(decision="answer", value=value)

    assert await tool(ToolContext(answers=answers)) == [None, 2]


async def test_services_are_reached_through_the_context() -> None:
    services = Services()
    context = ToolContext(services=services)

    async def charge() -> str:
        return f"charged {len(services.kept)}"

    context.progress("half way", fraction=0.5)
    charged = [await context.once("charge", charge), await context.once("charge", charge)]
    called = await context.call("other.tool", {"a": 1})
    saved = await context.save_artifact(b"data", name="report")

    assert charged == ["charged 0", "charged 0"]
    assert services.told == [("half way", 0.5)]
    assert called == Completed("call_1", "run_1", "other.tool", {"a": 1})
    assert (saved, services.kept["report"]) == ("art_1", (b"data", "application/octet-stream"))


async def test_a_context_outside_a_call_runs_steps_and_tells_no_one() -> None:
    async def step() -> int:
        return 7

    context = ToolContext()
    context.progress("nobody listens")

    assert await context.once("step", step) == 7


async def test_a_context_outside_a_call_says_what_it_cannot_do() -> None:
    with pytest.raises(RuntimeError, match="call the tool through a Toolbox"):
        await ToolContext().call("other.tool")
    with pytest.raises(RuntimeError, match="call the tool through a Toolbox"):
        await ToolContext().save_artifact(b"data")


async def test_a_request_to_sign_in_asks_the_user_of_the_call_for_consent() -> None:
    request = {"display_name": "GitHub", "auth_url": "https://example.invalid/authorize", "scopes": ["repo"]}

    with pytest.raises(PauseSignal) as paused:
        await ToolContext("task_1").pause(auth_request=request)

    question = paused.value.question
    assert (question.kind, question.reason) == ("consent", "external_event")
    assert question.payload == {"pause_type": "oauth", **request}


async def test_a_pause_whose_payload_says_oauth_is_a_sign_in() -> None:
    with pytest.raises(PauseSignal) as paused:
        await ToolContext("task_1").pause("external_event", {"pause_type": "oauth", "provider": "demo"})

    assert paused.value.question.kind == "consent"
