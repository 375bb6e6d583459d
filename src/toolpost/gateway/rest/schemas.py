"""JSON Schemas of what the REST interface takes and returns, as the components of its document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from toolpost.contracts.questions import PendingStatus
from toolpost.contracts.spec import ReplayClass, SideEffects, ToolCategory
from toolpost.schema.json_patch import PATCH_SCHEMA

_TEXT: dict[str, Any] = {"type": "string"}
_TIME: dict[str, Any] = {"type": "number", "description": "Unix time in seconds"}
_MAYBE_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_MAYBE_TIME: dict[str, Any] = {"type": ["number", "null"], "description": "Unix time in seconds"}
_OBJECT: dict[str, Any] = {"type": "object"}
_MAYBE_OBJECT: dict[str, Any] = {"type": ["object", "null"]}
_MAYBE_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
_TALLY: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
STATUSES = [*get_args(PendingStatus), "all"]


def _record(required: dict[str, Any], optional: dict[str, Any] | None = None, about: str = "") -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }
    return {**schema, "description": about} if about else schema


def ref(name: str) -> dict[str, Any]:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def resolve(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the component that it refers to."""
    return COMPONENTS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else dict(schema)


def page(name: str) -> dict[str, Any]:
    """Return the schema of a page of items."""
    return _record({"items": {"type": "array", "items": ref(name)}, "next": _MAYBE_TEXT})


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a record that may be null."""
    return {**schema, "type": ["object", "null"]}


_ERROR = _record(
    {
        "type": _TEXT,
        "message": _TEXT,
        "error_code": _TEXT,
        "tool_name": _MAYBE_TEXT,
        "status_code": {"type": ["integer", "null"]},
        "category": _TEXT,
        "is_retryable": {"type": "boolean"},
        "retry_after_seconds": _MAYBE_NUMBER,
    },
    {"issues": {"type": "array", "items": _TEXT}},
)
_QUESTION: dict[str, Any] = {
    "id": _TEXT,
    "tool_name": _TEXT,
    "kind": _TEXT,
    "prompt": _TEXT,
    "reason": _TEXT,
    "arguments": _OBJECT,
    "target": _OBJECT,
    "preview": {},
    "answerers": {"type": ["array", "null"], "items": _TEXT},
    "four_eyes": {"type": "boolean"},
    "person": {"type": "boolean", "description": "A person answers, never the MCP client of the caller"},
}

COMPONENTS: dict[str, Any] = {
    "Problem": _record(
        {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "code": _TEXT, "detail": _TEXT},
        {"errors": {"type": "array", "items": _TEXT}, "run_id": _TEXT},
        "Problem details (RFC 9457); `code` is for programs, `detail` for people",
    ),
    "Tool": _record(
        {
            "name": _TEXT,
            "description": _TEXT,
            "source": _MAYBE_TEXT,
            "category": {"enum": [category.value for category in ToolCategory]},
            "side_effects": {"enum": list(get_args(SideEffects))},
            "replay": {"enum": list(get_args(ReplayClass)), "description": "Whether a call may be made again"},
            "safety": _record(
                {
                    "network": {"type": "boolean"},
                    "file": {"type": "boolean"},
                    "destructive": {"type": ["boolean", "null"], "description": "null: unknown"},
                    "open_world": {"type": "boolean"},
                }
            ),
            "input_schema": _OBJECT,
            "output_schema": _MAYBE_OBJECT,
            "tags": {"type": "array", "items": _TEXT},
            "version": _TEXT,
            "timeout_s": _MAYBE_NUMBER,
            "cost_hint": _MAYBE_TEXT,
            "latency_hint_ms": {"type": ["integer", "null"]},
            "deprecated": {"type": "boolean"},
            "warning": {"type": ["string", "null"], "description": "That its definition changed, until it is accepted"},
        },
        about="A tool of the catalog",
    ),
    "Call": {
        "type": "object",
        "properties": {
            "tool": {"type": "string", "minLength": 1},
            "arguments": {"type": "object", "default": {}},
            "mode": {
                "enum": ["wait", "async", "stream"],
                "default": "wait",
                "description": "Wait for the outcome, get the id of the run at once, or get events as they happen",
            },
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400},
        },
        "required": ["tool"],
        "additionalProperties": False,
    },
    "Outcome": _record(
        {
            "status": {"enum": ["completed", "failed", "paused"]},
            "call_id": _MAYBE_TEXT,
            "run_id": _MAYBE_TEXT,
            "tool_name": _MAYBE_TEXT,
            "content": {"description": "The result; of a large one a preview, and `artifacts` names the whole"},
            "error": _or_null(_ERROR),
            "pending": {
                **_or_null(
                    _record({**_QUESTION, "others": {"type": "array", "items": _record(_QUESTION)}}),
                ),
                "description": "The question that the call waits with, and those of calls inside it",
            },
            "artifacts": {"type": "array", "items": _TEXT},
            "meta": _OBJECT,
            "duration_ms": {"type": "number"},
        },
        about="What came of a call",
    ),
    "Cancelling": _record({"status": {"const": "cancelling"}, "run_id": _TEXT}),
    "Started": _record(
        {"status": {"const": "running"}, "run_id": _TEXT}, about="A call that runs, and where its outcome will be"
    ),
    "Run": _record(
        {
            "run_id": _TEXT,
            "tenant": _TEXT,
            "user": _TEXT,
            "tool_name": _TEXT,
            "status": _TEXT,
            "started_at": _TIME,
            "updated_at": _TIME,
            "events": {"type": "integer"},
            "call_id": _TEXT,
        },
        {
            "log": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
            "artifacts": {"type": "array", "items": {"$ref": "#/components/schemas/Artifact"}},
        },
    ),
    "Event": _record(
        {
            "id": {"type": "integer"},
            "run_id": _TEXT,
            "seq": {"type": "integer", "description": "Without gaps within its run"},
            "code": {"type": "integer"},
            "type": _TEXT,
            "at": _TIME,
            "call_id": _TEXT,
            "tenant": _TEXT,
            "user": _TEXT,
            "payload": _OBJECT,
            "hash": _TEXT,
        },
        {"card": {"$ref": "#/components/schemas/Card"}},
    ),
    "Card": _record(
        {
            "id": _TEXT,
            "status": {"enum": list(get_args(PendingStatus))},
            "kind": {"enum": ["approval", "consent", "input", "restart", "unknown"]},
            "reason": _TEXT,
            "tool_name": _TEXT,
            "prompt": _TEXT,
            "payload": _OBJECT,
            "arguments": {**_OBJECT, "description": "The exact arguments, with secrets masked"},
            "masked": {
                "type": "array",
                "items": _TEXT,
                "description": "JSON Pointers of the arguments that are masked",
            },
            "outcome": {"type": ["object", "null"]},
            "target": {**_OBJECT, "description": "Where the call goes: `kind`, and one line of `summary`"},
            "preview": {
                "type": ["object", "null"],
                "properties": {"kind": {"enum": ["diff", "text", "http_request", "command"]}, "text": _TEXT},
                "required": ["kind", "text"],
            },
            "waits_for": {"enum": ["person", "operator"], "description": "The operator accepts changed definitions"},
            "answers": {
                "type": "array",
                "items": _record({"decision": _TEXT, "schema": _OBJECT}, {"input_schema": _OBJECT}),
                "description": "The possible answers, each with the schema of its body; `modify` with the tool's own",
            },
            "answerers": {"type": ["array", "null"], "items": _TEXT},
            "four_eyes": {"type": "boolean"},
            "call_id": _TEXT,
            "run_id": _TEXT,
            "asked_by": _TEXT,
            "created_at": _TIME,
            "expires_at": _TIME,
            "answer": {
                "type": ["object", "null"],
                "properties": {
                    "decision": _TEXT,
                    "changes": {"type": "array", "items": _record({"op": _TEXT, "path": _TEXT})},
                    "arguments": _OBJECT,
                    "reason": _TEXT,
                },
                "required": ["decision"],
                "description": "What was decided; the paths and the arguments of `modify`, or the reason of `deny`",
            },
            "answered_by": _MAYBE_TEXT,
            "answered_at": _MAYBE_TIME,
        },
        about="A pending action as data: who asks, for what, why, what it would do, and which answers it takes",
    ),
    "Answer": {
        "type": "object",
        "properties": {
            "decision": {"enum": ["approve", "modify", "deny", "answer", "happened", "not_happened", "rerun"]},
            "changes": {**PATCH_SCHEMA, "description": f"Of `modify`: {PATCH_SCHEMA['description']}"},
            "value": {"description": "Of `answer` and `happened`"},
            "reason": {"type": "string", "description": "Of `deny`: the caller is told"},
        },
        "required": ["decision"],
        "additionalProperties": False,
    },
    "Definition": _record(
        {"status": {"enum": ["accepted", "changed"]}},
        {
            "tool": _TEXT,
            "reason": _TEXT,
            "hash": {**_TEXT, "description": "Of the definition as it is now"},
            "new": {"type": "boolean", "description": "It was never accepted"},
            "changes": {
                "type": "array",
                "items": _record({"part": _TEXT, "before": _TEXT, "after": _TEXT}),
            },
            "definition": _OBJECT,
        },
    ),
    "AcceptedDefinition": {
        "type": "object",
        "properties": {"hash": {"type": "string", "description": "Of the definition that was shown"}},
        "required": ["hash"],
        "additionalProperties": False,
    },
    "Artifact": _record(
        {
            "id": _TEXT,
            "sha256": _TEXT,
            "size": {"type": "integer"},
            "media_type": _TEXT,
            "name": _TEXT,
            "tenant": _TEXT,
            "user": _TEXT,
            "run_id": _TEXT,
            "call_id": _TEXT,
            "tool_name": _TEXT,
            "created_at": _TIME,
        }
    ),
    "Account": _record(
        {
            "provider": _TEXT,
            "display_name": _TEXT,
            "status": {"enum": ["connected", "doubtful", "revoked", "missing"]},
            "scopes": {"type": "array", "items": _TEXT},
            "expires_at": _MAYBE_TIME,
            "connected_at": _MAYBE_TIME,
        }
    ),
    "SignIn": _record(
        {"status": {"enum": ["started", "connected"]}, "provider": _TEXT, "url": _MAYBE_TEXT},
        about="Where to send the person's browser",
    ),
    "Source": _record(
        {
            "name": _TEXT,
            "transport": _TEXT,
            "ok": {"type": "boolean"},
            "tools": {"type": "integer"},
            "error": _MAYBE_TEXT,
            "state": {"enum": ["up", "connecting", "down", "idle"]},
        }
    ),
    "Stats": _record(
        {
            "tools": {"type": "integer"},
            "by_category": {"type": "object", "additionalProperties": {"type": "integer"}},
            "calls": {
                "type": "object",
                "additionalProperties": _record(
                    {
                        "count": {"type": "integer"},
                        "failures": {"type": "integer"},
                        "average_ms": {"type": "number"},
                        "misfits": {"type": "integer"},
                    }
                ),
            },
            "accounts": _record(
                {
                    "pauses": _TALLY,
                    "callbacks": _TALLY,
                    "token_hits": _TALLY,
                    "token_misses": _TALLY,
                    "token_hit_rate": {"type": ["number", "null"]},
                    "resumes": {"type": "integer"},
                    "time_to_resume_s": {
                        "type": "object",
                        "description": "The percentiles p50, p95 and p99, in seconds",
                        "additionalProperties": {"type": ["number", "null"]},
                    },
                }
            ),
            "webhooks": {
                "type": "array",
                "items": _record(
                    {
                        "name": {"type": "string"},
                        "state": {"type": "string", "enum": ["ok", "failing", "gone"]},
                        "delivered": {"type": "integer"},
                        "behind": {"type": "integer", "description": "Events in the log that it has not come to"},
                        "failures": {"type": "integer", "description": "In a row"},
                        "error": {"type": ["string", "null"]},
                        "failing_since": {"type": ["number", "null"]},
                        "next_try_at": {"type": ["number", "null"]},
                    }
                ),
            },
        }
    ),
}
