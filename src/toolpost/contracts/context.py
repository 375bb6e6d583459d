"""The context of a running tool: its user, its paths, and the services of the call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

from toolpost.contracts.errors import PauseSignal, ToolError

# Most programs never ask a person, and one that lists tools calls none.
if TYPE_CHECKING:
    from toolpost.contracts.outcomes import Outcome, Paused
    from toolpost.contracts.questions import Answer, CallPreview, Question, QuestionKind

T = TypeVar("T")


class Inherited(Enum):
    """Marker for a setting that is taken from the Toolbox."""

    INHERITED = "inherited"


INHERITED = Inherited.INHERITED


class ProtectedPath(NamedTuple):
    """A file or folder that file tools never change, and read only if it is `readable`; `reason` says what it holds."""

    path: str
    reason: str
    readable: bool = False


def inner_call_question(paused: Sequence[Paused], *, reason: str = "inner_call") -> Question:
    """Return the question of a call that waits for calls inside it; nobody is asked but about those."""
    from toolpost.contracts.outcomes import questions_to_dict  # noqa: PLC0415 - as said above
    from toolpost.contracts.questions import Question  # noqa: PLC0415

    return Question(
        kind="call",
        prompt=f"a call inside it waits: {paused[0].question.prompt}",
        reason=reason,
        payload={
            "calls": [one.call_id for one in paused],
            "waits_for": questions_to_dict([question for one in paused for question in one.questions]),
        },
        key=f"call:{paused[0].call_id}",
    )


class CallServices(Protocol):
    """Services of the runtime for a running call."""

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any:
        """Run `fn` the first time and record its result; return the record ever after."""
        ...

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Emit a progress event."""
        ...

    def stream(self, value: Any) -> None:
        """Emit one value of a stream."""
        ...

    def extend_deadline(self, timeout_s: float) -> None:
        """Give the call this long in all, where that is longer than it has."""
        ...

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        """Emit an event that one provider failed and the next is asked."""
        ...

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str, *, key: str) -> Outcome:
        """Call another tool as part of the same run, under the same policy."""
        ...

    async def save_artifact(self, data: bytes, *, media_type: str, name: str) -> str:
        """Store bytes as an artifact of this call and return its id."""
        ...

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of the call's user; KeyError when there is none."""
        ...


class CallingClient(Protocol):
    """The MCP client that made a call: what a server behind can have of it."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared."""
        ...

    @property
    def interactive(self) -> bool:
        """Whether a person uses the client, who may answer what tools and servers ask."""
        ...

    @property
    def relays(self) -> bool:
        """Whether the result is passed on to the client as the server gave it, not made for a model."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least level of log messages that the client wants; None for none."""
        ...

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """Responses that the client sent with the call, before anything was asked."""
        ...

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Pass on a message of the server's log."""
        ...

    def became_task(self) -> None:
        """Say that the server works on the call in the background."""
        ...


class ToolContext:
    """The user of a call, the paths it may use, and its services: pause, once, progress, nested calls, artifacts.

    `user_id` is written `tenant:user`, unless the creator of the context wrote it otherwise. `llm_context` is
    read-only and may be shown to a model; `tool_context` is for tools alone. Neither holds credentials, which are
    passed beside the context. `allowed_paths` are by default the Toolbox's, None is no restriction;
    `protected_paths` hold whatever is allowed. `memory_dir` is the memory of the user, `shared_memory_dir` that of the
    tenant. `preview` is the result of the tool's own `preview`, if it has one. `client` is the MCP client that made the
    call, if one did; it does not outlive a pause. `caller` is the id of the gateway's caller, such as `key:ID`, which
    the event of the request records.
    """

    def __init__(  # noqa: PLR0913 - one merged record; all keyword-only
        self,
        task_id: str = "",
        *,
        user_id: str | None = None,
        tenant_id: str | None = None,
        trace_id: str = "",
        correlation_id: str = "",
        call_id: str = "",
        idempotency_key: str | None = None,
        allowed_paths: Sequence[str] | Inherited | None = INHERITED,
        protected_paths: Sequence[ProtectedPath] = (),
        memory_dir: str | None = None,
        shared_memory_dir: str | None = None,
        session_dir: str | None = None,
        llm_context: Mapping[str, Any] | None = None,
        tool_context: dict[str, Any] | None = None,
        answers: Mapping[str, Answer] | None = None,
        services: CallServices | None = None,
        preview: CallPreview | None = None,
        client: CallingClient | None = None,
        caller: str = "",
    ) -> None:
        self.task_id = task_id
        self.tenant_id = tenant_id
        self.trace_id = trace_id
        self.correlation_id = correlation_id
        self.call_id = call_id
        self.idempotency_key = idempotency_key
        self.inherits_paths = isinstance(allowed_paths, Inherited)
        self.allowed_paths = (
            None if allowed_paths is None or isinstance(allowed_paths, Inherited) else tuple(allowed_paths)
        )
        self.protected_paths = tuple(protected_paths)
        self.memory_dir = memory_dir
        self.shared_memory_dir = shared_memory_dir
        self.session_dir = session_dir
        self.llm_context: Mapping[str, Any] = MappingProxyType(dict(llm_context or {}))
        self.tool_context = dict(tool_context or {})
        self.user_id = self._agreed_user(user_id)
        self._answers = dict(answers or {})
        self._services = services
        self.preview = preview
        self.client = client
        self.caller = caller
        self._pauses = 0

    @classmethod
    def of(cls, given: ToolContext | Mapping[str, Any]) -> ToolContext:
        """Return a context as it is, or make one of its members, in camelCase or snake_case; TypeError for others."""
        if isinstance(given, ToolContext):
            return given
        return cls(**{re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): given[name] for name in given})

    def _agreed_user(self, user_id: str | None) -> str | None:
        """Return the user given as an argument or in `tool_context`; ValueError where the two differ."""
        inner = self.tool_context.get("user_id")
        if user_id is not None and inner is not None and user_id != inner:
            msg = f"user_id {user_id!r} and tool_context['user_id'] {inner!r} differ; give one of them"
            raise ValueError(msg)
        agreed = user_id if user_id is not None else inner
        if agreed is not None:
            self.tool_context["user_id"] = agreed
        return agreed

    def has_answer(self, key: str) -> bool:
        """Return whether the question of this key was answered, so that a `pause` with the key returns the answer."""
        return key in self._answers

    async def pause(
        self,
        reason: str = "external_event",
        payload: Mapping[str, Any] | None = None,
        *,
        auth_request: Mapping[str, Any] | None = None,
        prompt: str | None = None,
        kind: QuestionKind = "input",
        key: str | None = None,
        person: bool = False,
    ) -> Any:
        """Ask a person and return the answer.

        The first time this raises PauseSignal, which ends the attempt; once the question is answered, the tool runs
        again from its top and this returns the answer. Wrap effects before it in `once`. Questions are identified by
        their order; one that is not asked again on the second run needs a `key` of its own. `auth_request` is what
        `OAuthManager.get_auth_request` returned. A payload with `pause_type: oauth` asks for consent: only the call's
        own user sees its URL and answers it. With `person` the MCP client that made the call is never asked, even if it
        is interactive: the question waits as an approval does, for those who may approve calls of the tool.
        """
        shown: dict[str, Any] = {} if auth_request is None else {"pause_type": "oauth", **auth_request}
        shown.update(payload or {})
        if shown.get("pause_type") == "oauth":
            kind = "consent"
        if key is None:
            key = f"pause:{self._pauses}"
            self._pauses += 1
        answer = self._answers.get(key)
        if answer is not None:
            return answer.value
        from toolpost.contracts.questions import Question  # noqa: PLC0415 - as said above

        text = prompt or shown.get("prompt") or reason
        raise PauseSignal(Question(kind=kind, prompt=str(text), reason=reason, payload=shown, key=key, person=person))

    @property
    def is_running(self) -> bool:
        """Whether the context is that of a running call, which can store artifacts and make nested calls."""
        return self._services is not None

    async def once(self, key: str, fn: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        """Run `fn` once for this call, however often the tool runs again, and return its result.

        Where `fn` raises an Exception, it did not happen and runs again. If it is cut off, because the process dies or
        by a cancellation, SystemExit and the like, a person is asked whether it happened; one that is `repeatable` runs
        again.
        """
        if self._services is None:
            return await fn()
        result: T = await self._services.once(key, fn, repeatable=repeatable)
        return result

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Emit an event that says what the tool is doing."""
        if self._services is not None:
            self._services.progress(text, fraction=fraction)

    def stream(self, value: Any) -> None:
        """Emit a value before the result, as a generator does with each value that it yields.

        It is emitted as progress, with the value beside its text; of many in a short time some are left out.
        """
        if self._services is not None:
            self._services.stream(value)

    def extend_deadline(self, timeout_s: float) -> None:
        """Give the call this long in all, where that is longer than it has."""
        if self._services is not None:
            self._services.extend_deadline(timeout_s)

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        """Emit an event that one provider failed and the next is asked."""
        if self._services is not None:
            self._services.fell_back(name, to=to, error=error)

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str | None = None, *, key: str = "") -> Outcome:
        """Call another tool as part of this run; the arguments may be JSON text.

        When this tool runs again, a call with the same tool, arguments and `key` is the same call.
        """
        return await self._required_services().call(tool_name, arguments or {}, key=key)

    def wait_for(self, *paused: Paused) -> NoReturn:
        """End this attempt until a person has answered one of these calls, which were made by `call`.

        This tool then runs again from its top, and gets what came of the calls.
        """
        raise PauseSignal(inner_call_question(paused))

    async def save_artifact(self, data: bytes, *, media_type: str = "application/octet-stream", name: str = "") -> str:
        """Store bytes as an artifact of this call and return its id."""
        return await self._required_services().save_artifact(data, media_type=media_type, name=name)

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of the call's user; KeyError when there is none."""
        return await self._required_services().read_artifact(artifact_id)

    def _required_services(self) -> CallServices:
        if self._services is None:
            msg = "this context is not part of a running call; call the tool through a Toolbox"
            raise RuntimeError(msg)
        return self._services
