"""The context of a running tool: its user, its paths, and the services of the call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

from toolpost.contracts.errors import PauseSignal, ToolError

# Most programs have no questions, and a program that lists tools makes no calls.
if TYPE_CHECKING:
    from toolpost.contracts.outcomes import Outcome, Paused
    from toolpost.contracts.questions import Answer, CallPreview, Question, QuestionKind

T = TypeVar("T")


class Inherited(Enum):
    """Marker for a setting of the Toolbox."""

    INHERITED = "inherited"


INHERITED = Inherited.INHERITED


class ProtectedPath(NamedTuple):
    """A file or folder that file tools never change, and read only if it is `readable`; `reason` describes it."""

    path: str
    reason: str
    readable: bool = False


def inner_call_question(paused: Sequence[Paused], *, reason: str = "inner_call") -> Question:
    """Return the question of a call that waits for nested calls; only their questions are shown."""
    from toolpost.contracts.outcomes import questions_to_dict  # noqa: PLC0415 - see TYPE_CHECKING
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
    """Services of the runtime for a running call, documented by the methods of `ToolContext`."""

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any: ...
    def progress(self, text: str, *, fraction: float | None = None) -> None: ...
    def stream(self, value: Any) -> None: ...
    def extend_deadline(self, timeout_s: float) -> None: ...
    def fell_back(self, name: str, *, to: str, error: ToolError) -> None: ...
    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str, *, key: str) -> Outcome: ...
    async def save_artifact(self, data: bytes, *, media_type: str, name: str) -> str: ...
    async def read_artifact(self, artifact_id: str) -> bytes: ...


class CallingClient(Protocol):
    """The MCP client that made a call, as far as an upstream server can use it."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The declared capabilities of the client."""
        ...

    @property
    def interactive(self) -> bool:
        """Whether a person uses the client, who may answer questions of tools and servers."""
        ...

    @property
    def relays(self) -> bool:
        """Whether the result is passed through to the client unchanged, not prepared for a model."""
        ...

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages for the client; None for no messages."""
        ...

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """Responses that the client sent with the call, before any question."""
        ...

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Forward a log message of the server."""
        ...

    def became_task(self) -> None:
        """Report that the server runs the call in the background."""
        ...


class ToolContext:
    """The user of a call, the paths it may use, and its services: pause, once, progress, nested calls, artifacts.

    `user_id` has the form `tenant:user`, unless the creator of the context chose another. `llm_context` is read-only
    and may be shown to a model; `tool_context` is only for tools. Neither contains credentials, which are passed beside
    the context. `allowed_paths` are by default those of the Toolbox; None means no restriction. `protected_paths` apply
    regardless of the allowed paths. `memory_dir` is the memory of the user, `shared_memory_dir` that of the tenant.
    `preview` is the result of the tool's `preview`, if it has one. `client` is the MCP client that made the call, if
    one did; it does not outlive a pause. `caller` is the id of the gateway's caller, such as `key:ID`, which the event
    of the request records.
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
        """Return a context unchanged, or create one from members in camelCase or snake_case; TypeError for others."""
        if isinstance(given, ToolContext):
            return given
        return cls(**{re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): given[name] for name in given})

    def _agreed_user(self, user_id: str | None) -> str | None:
        """Return the user given as an argument or in `tool_context`; ValueError if the two differ."""
        inner = self.tool_context.get("user_id")
        if user_id is not None and inner is not None and user_id != inner:
            raise ValueError(f"user_id {user_id!r} and tool_context['user_id'] {inner!r} differ; give one of them")
        agreed = user_id if user_id is not None else inner
        if agreed is not None:
            self.tool_context["user_id"] = agreed
        return agreed

    def has_answer(self, key: str) -> bool:
        """Return whether the question of this key was answered: a `pause` with the key then returns the answer."""
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
        """Pause the call for a question to a person, and return the answer.

        The first time this raises PauseSignal, which ends the attempt. After the answer, the tool runs again from its
        start, and this returns the answer. Wrap effects before it in `once`. Questions are identified by their order; a
        question that may be skipped on the second run needs a unique `key`. `auth_request` is the result of
        `OAuthManager.get_auth_request`. A payload with `pause_type: oauth` requests consent: only the user of the call
        sees its URL and answers it. With `person`, the question is never sent to the MCP client that made the call,
        even if it is interactive: it waits like an approval, for the approvers of the tool.
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
        from toolpost.contracts.questions import Question  # noqa: PLC0415 - see TYPE_CHECKING

        text = prompt or shown.get("prompt") or reason
        raise PauseSignal(Question(kind=kind, prompt=str(text), reason=reason, payload=shown, key=key, person=person))

    @property
    def is_running(self) -> bool:
        """Whether the context is that of a running call, which can store artifacts and make nested calls."""
        return self._services is not None

    async def once(self, key: str, fn: Callable[[], Awaitable[T]], *, repeatable: bool = False) -> T:
        """Run `fn` once for this call, even if the tool runs again, and return its result.

        If `fn` raises an Exception, it counts as not run and runs again. If it is interrupted, because the process is
        killed, by a cancellation or by SystemExit, the call pauses for a person to say whether it happened; if it is
        `repeatable`, it runs again.
        """
        if self._services is None:
            return await fn()
        result: T = await self._services.once(key, fn, repeatable=repeatable)
        return result

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Emit an event with the progress of the tool."""
        if self._services is not None:
            self._services.progress(text, fraction=fraction)

    def stream(self, value: Any) -> None:
        """Emit a value before the result, as a generator does with each value that it yields.

        It is emitted as progress, with the value beside its text. Values above a rate limit are dropped.
        """
        if self._services is not None:
            self._services.stream(value)

    def extend_deadline(self, timeout_s: float) -> None:
        """Extend the deadline of the call to this many seconds from its start, if that is later."""
        if self._services is not None:
            self._services.extend_deadline(timeout_s)

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        """Emit an event that one provider failed and the next is used."""
        if self._services is not None:
            self._services.fell_back(name, to=to, error=error)

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str | None = None, *, key: str = "") -> Outcome:
        """Call another tool as part of this run; the arguments may be JSON text.

        When this tool runs again, a call with the same tool, arguments and `key` is the same call.
        """
        return await self._required_services().call(tool_name, arguments or {}, key=key)

    def wait_for(self, *paused: Paused) -> NoReturn:
        """End this attempt until one of these calls, which were made by `call`, has an answer.

        This tool then runs again from its start, and gets the outcomes of the calls.
        """
        raise PauseSignal(inner_call_question(paused))

    async def save_artifact(self, data: bytes, *, media_type: str = "application/octet-stream", name: str = "") -> str:
        """Store bytes as an artifact of this call and return its id."""
        return await self._required_services().save_artifact(data, media_type=media_type, name=name)

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of the call's user; KeyError if there is none."""
        return await self._required_services().read_artifact(artifact_id)

    def _required_services(self) -> CallServices:
        if self._services is None:
            raise RuntimeError("this context is not part of a running call; call the tool through a Toolbox")
        return self._services
