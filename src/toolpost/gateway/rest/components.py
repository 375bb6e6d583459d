"""Components of the OpenAPI document: the JSON Schemas of the REST interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from toolpost.contracts.callers import SCOPES
from toolpost.contracts.config import OutputCheck
from toolpost.contracts.questions import PendingStatus
from toolpost.contracts.spec import InputValidation, ReplayClass, SideEffects, ToolCategory
from toolpost.gateway.rest.schema_builders import (
    MAYBE_TEXT,
    TEXT,
    array,
    json_text,
    or_null,
    record,
    ref,
    texts,
)
from toolpost.schema.json_patch import PATCH_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIME: dict[str, Any] = {"type": "number", "description": "Unix time in seconds"}
_MAYBE_TIME: dict[str, Any] = {"type": ["number", "null"], "description": "Unix time in seconds"}
_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
_MAYBE_OBJECT: dict[str, Any] = {"type": ["object", "null"], "additionalProperties": True}
_NUMBER: dict[str, Any] = {"type": "number"}
_MAYBE_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
_COUNT: dict[str, Any] = {"type": "integer"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_TALLY: dict[str, Any] = {"type": "object", "additionalProperties": _COUNT}
_SCOPE: dict[str, Any] = {"enum": list(SCOPES)}
_CREDENTIAL: dict[str, Any] = {"enum": ["operator", "key", "token", "session"]}
_ME = record(
    {
        **texts("user", "tenant"),
        "scopes": array(_SCOPE),
        "answers": {**array(TEXT), "description": "Patterns of the tools whose pending actions it may answer"},
        "operator": _FLAG,
        "caller": {
            **record({"id": TEXT, "kind": _CREDENTIAL, "name": TEXT}),
            "description": "The credential of the request, or the one that opened its session",
        },
        "session": or_null(record({"id": TEXT, "expires_at": _TIME})),
        "server": record(
            {
                "version": TEXT,
                "build": {**MAYBE_TEXT, "description": "Hash of the console of this installation"},
                "public_url": TEXT,
                "time": _TIME,
                "oidc": or_null(record({"issuer": TEXT, "sign_in": _FLAG})),
                "features": array(TEXT),
            }
        ),
    },
    about="The caller of a request, and the gateway",
)
_PAIRS = array(record({"name": TEXT, "value": TEXT}))
PREVIEW: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {
        "kind": {"enum": ["diff", "text", "table", "http_request", "command", "graphql", "mcp"]},
        "text": {**TEXT, "description": "The diff or text, or one line about the request or command"},
        "path": TEXT,
        "added": {**_COUNT, "description": "Of a diff: the number of lines"},
        "removed": _COUNT,
        "old_size": {"type": ["integer", "null"]},
        "new_size": {"type": ["integer", "null"]},
        "columns": array(TEXT),
        "rows": array(array({})),
        "total": _COUNT,
        "method": TEXT,
        "url": {**TEXT, "description": "With the arguments filled in"},
        "query": {"anyOf": [_PAIRS, TEXT], "description": "Of a request its parameters, of `graphql` the document"},
        "headers": array(record({"name": TEXT, "value": MAYBE_TEXT, "masked_by": MAYBE_TEXT})),
        "content_type": MAYBE_TEXT,
        "body": {**MAYBE_TEXT, "description": "At most 8,000 bytes of it"},
        "body_size": _COUNT,
        "argv": array(TEXT),
        "cwd": MAYBE_TEXT,
        "env_names": array(TEXT),
        "stdin": MAYBE_TEXT,
        "variables": _OBJECT,
        "server": TEXT,
        "tool": TEXT,
        "arguments": _OBJECT,
    },
    "required": ["kind", "text"],
}
_ERROR = record(
    {
        **texts("type", "message", "error_code"),
        "tool_name": MAYBE_TEXT,
        "status_code": {"type": ["integer", "null"]},
        "category": TEXT,
        "is_retryable": _FLAG,
        "retry_after_seconds": _MAYBE_NUMBER,
    },
    {"issues": {"type": "array", "items": TEXT}},
)
_QUESTION: dict[str, Any] = {
    **texts("id", "tool_name", "kind", "prompt", "reason"),
    "arguments": _OBJECT,
    "target": _OBJECT,
    "preview": {},
    "answerers": {"type": ["array", "null"], "items": TEXT},
    "four_eyes": _FLAG,
    "person": {"type": "boolean", "description": "A person must answer, never the MCP client of the caller"},
}

_PAYLOAD = {
    **record(
        {},
        {
            **texts(
                "tool_name", "correlation_id", "caller", "pending_id", "kind", "prompt", "by", "decision", "reason"
            ),
            **texts("error_code", "error_message", "bound", "output_artifact_id", "artifact_id", "media_type"),
            **texts("source", "state", "detail", "level", "text", "change"),
            "params": {"description": "The redacted arguments as requested"},
            "input": {"description": "The redacted arguments of the tool"},
            "summary": {"description": "The result if it is short, else its shape and size"},
            "value": {"description": "Of a stream"},
            "error": {"description": "The error as text"},
            "arguments": {"description": "Of a question: the redacted arguments of the call"},
            "target": {"description": "Of a question: the destination of the call"},
            **dict.fromkeys(("duration_ms", "wait_s"), _NUMBER),
            "tries": {"description": "The number of the attempt that failed, or the attempts of the call"},
            **dict.fromkeys(("checks_ms", "queue_ms", "auth_ms"), _NUMBER),
            **dict.fromkeys(("size", "left_out"), _COUNT),
            "fraction": _MAYBE_NUMBER,
            **dict.fromkeys(("journaled", "recovered", "blocked"), _FLAG),
        },
        "Depends on the type of the event; these are the most frequent members",
    ),
    "additionalProperties": True,
}
_MAYBE_FLAG: dict[str, Any] = {"type": ["boolean", "null"]}
_ACTION = {"enum": ["allow", "ask", "deny"]}
_APPROVALS = record(
    {"answerers": {"type": ["array", "null"], "items": TEXT}, "four_eyes": _MAYBE_FLAG, "person": _MAYBE_FLAG}
)
_VERDICT: dict[str, Any] = {
    "action": _ACTION,
    "reason": TEXT,
    "answerers": {"type": ["array", "null"], "items": TEXT},
    "four_eyes": _FLAG,
}
_REASONS = {
    "type": "object",
    "additionalProperties": TEXT,
    "description": "Sources that cannot be compared, and why",
}
_CHANGE = record(texts("part", "before", "after"))
_HELD = or_null(
    record(
        {
            "reason": TEXT,
            "hash": {**TEXT, "description": "Hash of the current definition"},
            "new": {**_FLAG, "description": "Whether it was never accepted"},
            "changes": array(_CHANGE),
            "blocks": {**_FLAG, "description": "Whether calls wait until the definition is accepted"},
        }
    )
)
_CALL_STATS = record(
    {"count": _COUNT, "failures": _COUNT, "average_ms": {"type": "number"}, "schema_violations": _COUNT}
)

COMPONENTS: dict[str, Any] = {
    "Problem": record(
        {"type": TEXT, "title": TEXT, "status": _COUNT, "code": TEXT, "detail": TEXT},
        {
            "errors": array(TEXT),
            "run_id": TEXT,
            "card": {**ref("Card"), "description": "Of a refused answer: the pending action as it is now"},
            "answered_by": MAYBE_TEXT,
            "answered_at": _MAYBE_TIME,
            "answerers": {"type": ["array", "null"], "items": TEXT},
            "four_eyes": _FLAG,
            "from": {**_OBJECT, "description": "The target of the call when the question was asked"},
            "to": {**_OBJECT, "description": "The target of the call now"},
        },
        "Problem details (RFC 9457); `code` is for programs, `detail` for people",
    ),
    "Tool": record(
        {
            **texts("name", "description"),
            "source": MAYBE_TEXT,
            "category": {"enum": [category.value for category in ToolCategory]},
            "side_effects": {"enum": list(get_args(SideEffects))},
            "replay": {"enum": list(get_args(ReplayClass)), "description": "Whether a call can be repeated safely"},
            "safety": record(
                {
                    "network": _FLAG,
                    "file": _FLAG,
                    "destructive": {"type": ["boolean", "null"], "description": "null: unknown"},
                    "open_world": _FLAG,
                }
            ),
            "input_schema": _OBJECT,
            "output_schema": _MAYBE_OBJECT,
            "tags": array(TEXT),
            "version": TEXT,
            "timeout_s": _MAYBE_NUMBER,
            "cost_hint": MAYBE_TEXT,
            "latency_hint_ms": {"type": ["integer", "null"]},
            "deprecated": _FLAG,
            "warning": {
                "type": ["string", "null"],
                "description": "States that its definition changed, until it is accepted",
            },
            "target": {
                **or_null(record(texts("kind", "summary"))),
                "description": "The destination of its calls, with secrets masked",
            },
            "origin": {**MAYBE_TEXT, "description": "The source of untrusted content; null for the operator's content"},
            "trust": {"enum": ["trusted", "untrusted", None], "description": "Of its results; null without an origin"},
            "said_by": {
                "enum": ["code", "operator", "protocol", "source", "unknown"],
                "description": "Who declared its effects; `unknown`: no trusted origin",
            },
            "verdict": record(
                {
                    **_VERDICT,
                    "rule": {**_COUNT, "description": "The number of the rule, from 1; 0 is the template"},
                },
                about="What the policy decides about its calls",
            ),
            "held": _HELD,
            "annotations": _MAYBE_OBJECT,
            "outputs": {"enum": list(get_args(OutputCheck))},
            "validate_inputs": {"enum": list(get_args(InputValidation))},
            "model_name": {**TEXT, "description": "The name that models use"},
            "app": {**MAYBE_TEXT, "description": "The `ui://` page of an MCP App that it names"},
        },
        {
            "pinned_hash": {**MAYBE_TEXT, "description": "Hash of the accepted definition"},
            "pinned_at": {**_MAYBE_TIME, "description": "When the file of accepted definitions was last written"},
            "definitions": record(
                {
                    **dict.fromkeys(("openai", "anthropic", "mcp"), _OBJECT),
                    "tokens": {**_COUNT, "description": "Tokens of the definition `openai`"},
                    "tokenizer": {**TEXT, "description": "The vocabulary that counted them, or `estimate`"},
                },
                about="The tool as models and MCP clients see it",
            ),
            "stats": {
                **or_null(_CALL_STATS),
                "description": "Its calls since the start of this worker; null for tenants other than `local`",
            },
        },
        "A tool of the catalog; lists omit `pinned_hash`, `pinned_at`, `definitions` and `stats`",
    ),
    "ToolSummary": {
        **record(
            {
                "name": TEXT,
                "description": {**TEXT, "maxLength": 200},
                "source": TEXT,
                "category": TEXT,
                "side_effects": TEXT,
                "destructive": _MAYBE_FLAG,
                "tags": array(TEXT),
                "deprecated": _FLAG,
                "held": _FLAG,
                "verdict": {"enum": ["allow", "ask", "deny"]},
            },
            about="A tool in a list with `view=summary`",
        ),
        "additionalProperties": False,
    },
    "Collection": record(
        {"name": TEXT, "members": array({**TEXT, "description": "A name with `*`, or `tag:x`"}), "tools": _COUNT}
    ),
    "Tag": record({"tag": TEXT, "tools": _COUNT}),
    "Call": {
        "type": "object",
        "properties": {
            "tool": {"type": "string", "minLength": 1},
            "arguments": {"type": "object", "default": {}},
            "mode": {
                "enum": ["wait", "async", "stream"],
                "default": "wait",
                "description": "Wait for the outcome, get the ID of the run immediately, or get events as they happen",
            },
            "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400},
        },
        "required": ["tool"],
        "additionalProperties": False,
    },
    "Outcome": record(
        {
            "status": {"enum": ["completed", "failed", "paused"]},
            "call_id": MAYBE_TEXT,
            "run_id": MAYBE_TEXT,
            "tool_name": MAYBE_TEXT,
            "content": {
                "description": "The result; for a large result a preview, and `artifacts` has the ID of the full one"
            },
            "error": or_null(_ERROR),
            "pending": {
                **or_null(
                    record({**_QUESTION, "others": {"type": "array", "items": record(_QUESTION)}}),
                ),
                "description": "The open question of the call, and those of its nested calls",
            },
            "artifacts": array(TEXT),
            "meta": _OBJECT,
            "duration_ms": {"type": "number"},
        },
        about="The outcome of a call",
    ),
    "OutcomeNotKept": record(
        {
            "status": {"enum": ["completed", "failed"]},
            **texts("run_id", "call_id", "tool_name"),
            "error_code": MAYBE_TEXT,
            "result": {"const": "not kept"},
        },
        about="The end of a run whose outcome only the caller that waited for it received",
    ),
    "Cancelling": record({"status": {"const": "cancelling"}, "run_id": TEXT}),
    "Started": record(
        {"status": {"const": "running"}, "run_id": TEXT}, about="A running call; its run will have the outcome"
    ),
    "Run": record(
        {
            **texts("run_id", "tenant", "user", "tool_name", "status"),
            "started_at": _TIME,
            "updated_at": _TIME,
            "events": _COUNT,
            "call_id": TEXT,
            "caller": {**MAYBE_TEXT, "description": "The caller of the gateway, such as `key:ID`"},
            "caller_name": {**MAYBE_TEXT, "description": "The name of the caller's key"},
            "source": {**MAYBE_TEXT, "description": "The source in the name of the tool"},
            "error_code": MAYBE_TEXT,
            "duration_ms": {"type": "number", "description": "From the first to the last event"},
            "work_ms": {"type": "number", "description": "The part of it in which the run was running"},
            "waited_ms": {"type": "number", "description": "The part of it in which the run was paused"},
            "pending_ids": array(TEXT),
            "progress": {
                **or_null(record({"text": MAYBE_TEXT, "fraction": _MAYBE_NUMBER})),
                "description": "The last report of an open run",
            },
            "parent_run": {**MAYBE_TEXT, "description": "The run that the correlation ID of its first call names"},
        },
        {
            "result": {
                "enum": ["kept", "not kept", None],
                "description": "Whether its outcome is stored; null while the run is open",
            },
            "log": array(ref("Event")),
            "artifacts": array(ref("Artifact")),
        },
    ),
    "EventPage": record(
        {
            "items": array(ref("Event")),
            "next": {"type": ["integer", "null"], "description": "The event ID from which the next page continues"},
        }
    ),
    "Series": record(
        {
            "step": {"type": "integer", "description": "Seconds per value"},
            "begin": {"type": "integer", "description": "Begin of the first value, in Unix time"},
            "data_since": {"type": ["integer", "null"], "description": "Begin of the first hour with data"},
            "series": array(
                record(
                    {
                        "key": TEXT,
                        "metric": TEXT,
                        "total": {**_MAYBE_NUMBER, "description": "The metric over all values"},
                        "values": array(_MAYBE_NUMBER),
                    }
                )
            ),
        },
        about="Metrics over time; durations are milliseconds, within 5 %, and null without values",
    ),
    "Top": record(
        {
            "begin": _TIME,
            "until": _TIME,
            "total": {"type": "integer", "description": "Number of keys, also of those that are not listed"},
            "items": array(
                record(
                    {
                        "key": {
                            "type": "string",
                            "description": "For `failure`: the tool, a blank, and the error code",
                        },
                        "last_at": _TIME,
                        **dict.fromkeys(("calls", "failed", "asked", "answered", "denied", "expired"), _COUNT),
                        **dict.fromkeys(("p50", "p95", "p99", "answer_p50", "answer_p90"), _MAYBE_NUMBER),
                    }
                )
            ),
        }
    ),
    "Verified": record(
        {
            "status": {"enum": ["verified", "changed"]},
            "problems": {**array(TEXT), "description": "Signs of changes outside Toolpost; empty if there are none"},
            "events": _COUNT,
        },
        about="Whether the events of a run are unchanged",
    ),
    "Event": record(
        {
            "id": _COUNT,
            "run_id": TEXT,
            "seq": {"type": "integer", "description": "Consecutive within its run"},
            "code": _COUNT,
            "type": TEXT,
            "at": _TIME,
            **texts("call_id", "tenant", "user"),
            "payload": _PAYLOAD,
            "hash": TEXT,
        },
        {"card": ref("Card")},
    ),
    "EventMessage": record(
        {"id": TEXT, "event": {**TEXT, "description": "The `type` of the event"}, "data": json_text(ref("Event"))},
        about="A server-sent event; `data` is an `Event` as JSON in one line",
    ),
    "CallMessage": record(
        {
            "event": {**TEXT, "description": "The `type` of the event; the last message is `outcome`"},
            "data": json_text({"oneOf": [ref("Event"), ref("Outcome")]}),
        },
        {"id": TEXT},
        "A server-sent event of a call; `data` is an `Event` as JSON in one line, or the `Outcome` at the end",
    ),
    "Card": record(
        {
            "id": TEXT,
            "status": {"enum": list(get_args(PendingStatus))},
            "kind": {"enum": ["approval", "consent", "input", "restart", "unknown"]},
            **texts("reason", "tool_name", "prompt"),
            "payload": _OBJECT,
            "arguments": {**_OBJECT, "description": "The exact arguments, with secrets masked"},
            "masked": {
                "type": "array",
                "items": TEXT,
                "description": "JSON Pointers of the masked arguments",
            },
            "outcome": _MAYBE_OBJECT,
            "target": {**_OBJECT, "description": "The target of the call: `kind`, and a `summary` of one line"},
            "preview": PREVIEW,
            "waits_for": {"enum": ["person", "operator"], "description": "The operator accepts changed definitions"},
            "answers": {
                "type": "array",
                "items": record({"decision": TEXT, "schema": _OBJECT}, {"input_schema": _OBJECT}),
                "description": "The possible answers with the schema of their body; `modify` also has the input schema",
            },
            "answerers": {"type": ["array", "null"], "items": TEXT},
            "four_eyes": _FLAG,
            **texts("call_id", "run_id", "asked_by"),
            "created_at": _TIME,
            "expires_at": _TIME,
            "truncated": {**_FLAG, "description": "Whether the preview was cut"},
            "rule": or_null(
                {
                    **record(
                        {
                            "index": _COUNT,
                            "of": _COUNT,
                            "action": TEXT,
                            "text": TEXT,
                            "reason": TEXT,
                            "file": {**MAYBE_TEXT, "description": "The configuration file, if the rule is there"},
                            "line": {"type": ["integer", "null"]},
                        },
                    ),
                    "description": "The rule of the policy that requires approval; index 0 is the template",
                }
            ),
            "tool": or_null(
                record(
                    {
                        "description": TEXT,
                        "origin": MAYBE_TEXT,
                        "source": MAYBE_TEXT,
                        "side_effects": {"enum": list(get_args(SideEffects))},
                        "destructive": {"type": ["boolean", "null"], "description": "null: unknown"},
                        "replay": {"enum": list(get_args(ReplayClass))},
                    }
                )
            ),
            "caller": or_null(
                {**record({"kind": _CREDENTIAL, "id": TEXT, "name": TEXT}), "description": "Who made the call"}
            ),
            "passed_on": array(record({"by": TEXT, "to": TEXT, "note": TEXT, "at": _TIME})),
            "answer": {
                "type": ["object", "null"],
                "properties": {
                    "decision": TEXT,
                    "changes": array(record({"op": TEXT, "path": TEXT})),
                    "arguments": _OBJECT,
                    "reason": TEXT,
                },
                "required": ["decision"],
                "description": "The decision; with the paths and arguments of `modify`, or the reason of `deny`",
            },
            "answered_by": MAYBE_TEXT,
            "answered_at": _MAYBE_TIME,
        },
        {
            "viewer": {
                **record({"may": array(TEXT), "why_not": MAYBE_TEXT}),
                "description": "The decisions that the caller may make, and why not the others",
            }
        },
        about="A pending action: its call, the requesting user, the reason, a preview, and the possible answers",
    ),
    "Answer": {
        "type": "object",
        "properties": {
            "decision": {"enum": ["approve", "modify", "deny", "answer", "happened", "not_happened", "rerun"]},
            "changes": {**PATCH_SCHEMA, "description": f"Of `modify`: {PATCH_SCHEMA['description']}"},
            "value": {"description": "Of `answer` and `happened`"},
            "reason": {"type": "string", "description": "Of `deny`: returned to the caller"},
            "mode": {
                "enum": ["wait", "async"],
                "default": "wait",
                "description": "Wait for the outcome of the call, or return when the answer is stored",
            },
        },
        "required": ["decision"],
        "additionalProperties": False,
    },
    "Claimed": record(
        {"status": {"const": "claimed"}, "pending_id": TEXT, "run_id": TEXT},
        about="A stored answer; the pending action will have the outcome of its call",
    ),
    "Definition": record(
        {"status": {"enum": ["accepted", "changed"]}},
        {
            **texts("tool", "reason"),
            "hash": {**TEXT, "description": "Hash of the current definition"},
            "new": {"type": "boolean", "description": "Whether it was never accepted"},
            "changes": array(_CHANGE),
            "definition": _OBJECT,
        },
    ),
    "AcceptedDefinition": {
        "type": "object",
        "properties": {"hash": {"type": "string", "description": "Hash of the definition that was shown"}},
        "required": ["hash"],
        "additionalProperties": False,
    },
    "Artifact": record(
        {
            **texts("id", "sha256"),
            "size": _COUNT,
            **texts("media_type", "name", "tenant", "user", "run_id", "call_id", "tool_name"),
            "created_at": _TIME,
        }
    ),
    "Me": _ME,
    "OpenedSession": record({"token": TEXT, "expires_at": _TIME, "me": ref("Me")}, about="`token` is the bearer"),
    "Sessions": record(
        {
            "items": array(
                record(
                    {
                        **texts("id", "user"),
                        "scopes": array(_SCOPE),
                        "opened_with": record({"kind": _CREDENTIAL, "id": TEXT}),
                        "created_at": _TIME,
                        "last_used_at": _TIME,
                        "expires_at": _TIME,
                        "current": {**_FLAG, "description": "Whether this request has its bearer"},
                    }
                )
            )
        }
    ),
    "Key": record(
        {
            **texts("id", "name"),
            "user": {**TEXT, "description": "The user that its requests run as, `tenant:user`"},
            "scopes": array(_SCOPE),
            "created_at": _TIME,
            "created_by": TEXT,
            "expires_at": _MAYBE_TIME,
            "interactive": _FLAG,
            "person": {**_FLAG, "description": "The key only opens console sessions"},
            "last_used_at": {
                **_MAYBE_TIME,
                "description": "Its last request, or that of a session that it opened; written once a minute",
            },
        }
    ),
    "Keys": record({"items": array(ref("Key"))}),
    "User": record(
        {
            "user": {**TEXT, "description": "`tenant:user`"},
            "tenant": TEXT,
            "last_run_at": {**_MAYBE_TIME, "description": "The begin of the last run"},
            "keys": _COUNT,
            "accounts": {**_COUNT, "description": "Connected accounts at services"},
            "pending": {**_COUNT, "description": "Open pending actions of the user's calls"},
        }
    ),
    "Tenant": record(
        {
            "tenant": TEXT,
            "last_run_at": _MAYBE_TIME,
            **dict.fromkeys(("users", "keys", "accounts", "pending"), _COUNT),
        }
    ),
    "PolicyRule": record(
        {
            "index": {**_COUNT, "description": "From 1"},
            "of": {**_COUNT, "description": "The number of rules"},
            "action": _ACTION,
            **texts("text", "reason"),
            "conditions": record(
                {
                    **dict.fromkeys(("tools", "sources", "tags", "side_effects"), array(TEXT)),
                    "destructive": _MAYBE_FLAG,
                },
                about="A tool matches if it meets all; an empty list matches every tool",
            ),
            "approvals": _APPROVALS,
            "file": MAYBE_TEXT,
            "line": {"type": ["integer", "null"]},
        },
        {"tools": {**_COUNT, "description": "The number of tools that it decides about"}},
    ),
    "Policy": record(
        {
            "template": record({"name": TEXT, "tools": _COUNT}, about="Decides about tools that no rule matches"),
            "approvals": _APPROVALS,
            "rules": array(ref("PolicyRule")),
            "file": {**MAYBE_TEXT, "description": "The configuration file"},
        }
    ),
    "Explanation": record(
        {
            **_VERDICT,
            **texts("tool", "user"),
            "rule": {"oneOf": [ref("PolicyRule"), {"type": "null"}], "description": "null: the template decides"},
            "trace": array(
                record(
                    {
                        "rule": {**_COUNT, "description": "From 1; 0 is the template"},
                        "text": TEXT,
                        "outcome": {"enum": ["decides", "no_match", "not_reached"]},
                        "why": TEXT,
                    },
                    about="The rules in their order, then the template",
                )
            ),
            "issues": {**array(TEXT), "description": "Why the arguments are invalid, or why the preview failed"},
            "preview": PREVIEW,
            "arguments": {**_MAYBE_OBJECT, "description": "With secrets masked"},
            "target": _MAYBE_OBJECT,
            "held": _HELD,
        },
        about="What would happen to a call; nothing was run or recorded",
    ),
    "About": record(
        {
            "version": TEXT,
            "build": {**MAYBE_TEXT, "description": "Of the console"},
            **texts("python", "platform"),
            "extras": {"type": "object", "additionalProperties": _FLAG, "description": "Whether each is installed"},
            "workers": _COUNT,
            "public_url": TEXT,
            **dict.fromkeys(("data_dir", "database", "config", "lock"), MAYBE_TEXT),
            "retention": _OBJECT,
            "policy": {**TEXT, "description": "The template, or `rules`"},
            "commands": {"enum": ["operator", "admin", "never"], "description": "server.console.commands"},
            "problems": {
                **array(TEXT),
                "type": ["array", "null"],
                "description": "Skipped tools and sources, and why; null for tenants other than `local`",
            },
        },
        about="Tenants other than `local` get no paths",
    ),
    "Ticket": record({"ticket": TEXT, "url": TEXT, "expires_at": _TIME}, about="It opens one session"),
    "Account": record(
        {
            **texts("provider", "display_name"),
            "status": {"enum": ["connected", "doubtful", "revoked", "missing"]},
            "scopes": array(TEXT),
            "requested_scopes": {**array(TEXT), "description": "The scopes that a sign-in requests"},
            "expires_at": _MAYBE_TIME,
            "connected_at": _MAYBE_TIME,
            "sources": {**array(TEXT), "description": "The sources that use the account"},
            "tools": {**_COUNT, "description": "The number of their tools"},
            "waiting": {**array(TEXT), "description": "IDs of the caller's pending actions that wait for a sign-in"},
        }
    ),
    "UserAccount": record(
        {
            **texts("user", "provider", "display_name"),
            "status": {"enum": ["connected", "doubtful", "revoked"]},
            "scopes": array(TEXT),
            "expires_at": _MAYBE_TIME,
            "connected_at": _MAYBE_TIME,
        }
    ),
    "SignIn": record(
        {"status": {"enum": ["started", "connected"]}, "provider": TEXT, "url": MAYBE_TEXT},
        about="The URL to open in the user's browser",
    ),
    "Source": record(
        {
            **texts("name", "transport"),
            "ok": _FLAG,
            "tools": _COUNT,
            "error": MAYBE_TEXT,
            "state": {"enum": ["up", "connecting", "down", "idle", "disabled"]},
            "description": TEXT,
            "target": {**TEXT, "description": "The command, URL or file, with secrets masked"},
            "runs_code": {**_FLAG, "description": "Whether it starts a program on the gateway's machine"},
            **dict.fromkeys(("trust", "required", "enabled"), _FLAG),
            "auth_type": TEXT,
            "service": {**MAYBE_TEXT, "description": "The service of the accounts that its users connect"},
            "declared": {**_FLAG, "description": "Whether the configuration file has it"},
            "since": {**_MAYBE_TIME, "description": "When it came up or went down"},
            "last_error_at": _MAYBE_TIME,
            "failures": {**_COUNT, "description": "Consecutive failed attempts to connect"},
            "next_try_at": _MAYBE_TIME,
            "breaker": record({"state": {"enum": ["closed", "open", "half_open"]}, "retry_in_s": _MAYBE_NUMBER}),
            "lock": {
                **or_null(
                    record({**dict.fromkeys(("pinned", "changed", "new", "gone"), _COUNT), "written_at": _MAYBE_TIME})
                ),
                "description": "Its tools, compared with the accepted definitions",
            },
            "problems": array(TEXT),
            "calls_1h": {**_COUNT, "description": "Calls of the tenant in the last hour"},
            "p95_ms": _MAYBE_NUMBER,
        },
        {"yaml": {**MAYBE_TEXT, "description": "Its entry of the configuration, with references instead of secrets"}},
    ),
    "Lock": record(
        {
            "path": TEXT,
            "exists": _FLAG,
            "sources": {**_TALLY, "description": "The number of pinned tools, by source"},
            "unpinned": {**array(TEXT), "description": "Sources that the file lacks"},
            "failed": _REASONS,
        }
    ),
    "LockDiff": record(
        {
            "differences": array(
                record(
                    {
                        **texts("source", "tool"),
                        "kind": {"enum": ["changed", "new", "gone"]},
                        "changes": array(_CHANGE),
                        "pinned": {**_FLAG, "description": "Whether the file has the source"},
                        "hash": {**MAYBE_TEXT, "description": "Of the current definition, for the approval"},
                        "pinned_hash": MAYBE_TEXT,
                    }
                )
            ),
            "failed": _REASONS,
        }
    ),
    "LockApproval": record({"approved": array(TEXT), "path": TEXT}),
    "SourceLog": record(
        {
            "lines": array(
                record({"id": _COUNT, "at": _TIME, "type": TEXT, "level": MAYBE_TEXT, "text": TEXT}),
            ),
            "stderr": {**MAYBE_TEXT, "description": "The end of stderr, at most 64 KB"},
        }
    ),
    "Preset": record(
        {
            **texts("name", "description", "ecosystem", "package"),
            "version": {**MAYBE_TEXT, "description": "null: the package is not published"},
            "reads": array(record({"name": TEXT, "set": _FLAG}, about="A variable that the server reads")),
            "advice": MAYBE_TEXT,
        }
    ),
    "DetectedSource": record(
        {
            "status": {"enum": ["recognized", "guarded", "unknown"]},
            "transport": MAYBE_TEXT,
            "title": MAYBE_TEXT,
            "because": TEXT,
            "kind": MAYBE_TEXT,
            "tried": array(
                record({"url": TEXT, "answer": TEXT}, about="A requested address and its answer, such as `HTTP 404`")
            ),
            "next": {**array(TEXT), "description": "What to do if it is not recognized"},
        }
    ),
    "Variable": record(
        {"name": TEXT, "stands_for": MAYBE_TEXT, "set": _FLAG}, about="A variable that the entry refers to"
    ),
    "SourcePlan": record(
        {
            "source": {**_OBJECT, "description": "The entry, as `POST /sources` takes it"},
            "yaml": {**TEXT, "description": "The lines for the configuration file"},
            "found": {**MAYBE_TEXT, "description": "What was detected at a URL"},
            "command": {
                **or_null(record({"argv": array(TEXT), "cwd": MAYBE_TEXT, "env_names": array(TEXT)})),
                "description": "The program that the source starts",
            },
            "variables": array(ref("Variable")),
            "notes": array(TEXT),
            "missing": {**array(TEXT), "description": "What keeps the source from starting"},
            "exists": {**_FLAG, "description": "Whether there is a source of this name"},
        }
    ),
    "TriedSource": record(
        {
            "name": TEXT,
            "tools": array(
                record(
                    {
                        **texts("name", "description", "side_effects"),
                        "destructive": _MAYBE_FLAG,
                        "said_by": TEXT,
                        "claims": {**TEXT, "description": "What the source claims; it is valid only with trust"},
                        "trust_loosens": {**_FLAG, "description": "Whether trust would make its calls less strict"},
                        "verdict": record({**_VERDICT, "rule": _COUNT}),
                        "hash": MAYBE_TEXT,
                    }
                )
            ),
            "problems": array(TEXT),
        }
    ),
    "ImportPlan": record(
        {
            "sources": array(
                record(
                    {
                        **texts("name", "description", "transport", "mcp_transport", "connection"),
                        "env": array(TEXT),
                        "headers": array(TEXT),
                        "cwd": MAYBE_TEXT,
                        "enabled": _FLAG,
                        "source": _OBJECT,
                        "runs_code": _FLAG,
                    }
                )
            ),
            "yaml": TEXT,
            "skipped": {**array(TEXT), "description": "Names that exist already"},
            "variables": array(ref("Variable")),
            "notes": array(TEXT),
        }
    ),
    "Status": record(
        {
            "status": {
                "enum": ["ready", "degraded", "unavailable", "stopping"],
                "description": "`degraded`: there are problems, and calls are accepted; `unavailable`: they are not",
            },
            "problems": {**array(TEXT), "description": "What is wrong, one sentence each"},
            "version": TEXT,
            "at": _TIME,
            "started_at": {**_TIME, "description": "The start of this worker, in Unix time"},
            "workers": _COUNT,
            "store": record(
                {
                    "writable": _FLAG,
                    "reason": {**MAYBE_TEXT, "description": "Why calls cannot be recorded"},
                    "write_failures": _COUNT,
                    "event_lag_s": {**_MAYBE_NUMBER, "description": "The age of the oldest unprocessed event"},
                }
            ),
            "disk": or_null(record({"free_bytes": _COUNT, "total_bytes": _COUNT}, about="Of the data folder")),
            "sources": array(
                record(
                    {
                        **texts("name", "transport"),
                        "state": {"enum": ["up", "connecting", "down", "idle"]},
                        "tools": _COUNT,
                        "error": MAYBE_TEXT,
                    }
                )
            ),
            "owners": {
                **array(
                    record(
                        {
                            "id": TEXT,
                            "alive": _FLAG,
                            "host": MAYBE_TEXT,
                            "pid": {"type": ["integer", "null"]},
                            "version": MAYBE_TEXT,
                            "started_at": _MAYBE_TIME,
                            "unfinished": {**_COUNT, "description": "Calls and answers that it works on"},
                        }
                    )
                ),
                "description": "The processes that have the store open, and ended ones that left unfinished work",
            },
            "queues": array(
                record(
                    {
                        "name": TEXT,
                        "waiting": {**_COUNT, "description": "Entries that wait"},
                        "running": {**_COUNT, "description": "Jobs that run"},
                        "oldest_s": {**_MAYBE_NUMBER, "description": "The age of the oldest one, if it is known"},
                    }
                )
            ),
            "runs": record({"running": _COUNT, "paused": _COUNT}),
            "silent": {
                **array(record({**texts("run_id", "tenant", "tool_name", "owner"), "updated_at": _TIME})),
                "description": "Running calls without an event for an hour, at most 20",
            },
            "pending": record({"open": _COUNT, "oldest_s": _NUMBER}, about="Pending actions of all tenants"),
        },
        about="The status of the gateway and its store",
    ),
    "DownloadLink": record(
        {"url": {"type": "string", "description": "Downloads the artifact once, without a bearer"}, "expires_at": _TIME}
    ),
    "AppLink": record(
        {"url": {"type": "string", "description": "Opens the page once, without a bearer"}, "expires_at": _TIME}
    ),
    "Stats": record(
        {
            "tools": _COUNT,
            "by_category": _TALLY,
            "since": {"type": "number", "description": "The start of this worker, in Unix time"},
            "durations": {
                "type": "object",
                "description": "Percentiles per tool in milliseconds, since the hour of `since`, of all processes",
                "additionalProperties": record(dict.fromkeys(("p50", "p95", "p99"), _MAYBE_NUMBER)),
            },
            "calls": {
                "type": "object",
                "description": "Of the gateway; tenants other than `local` get their own calls, "
                "since the hour of `since`",
                "additionalProperties": record(
                    {
                        "count": _COUNT,
                        "failures": _COUNT,
                        "average_ms": _MAYBE_NUMBER,
                        "schema_violations": {"type": ["integer", "null"]},
                    }
                ),
            },
            "accounts": or_null(
                record(
                    {
                        "pauses": _TALLY,
                        "callbacks": _TALLY,
                        "token_hits": _TALLY,
                        "token_misses": _TALLY,
                        "token_hit_rate": _MAYBE_NUMBER,
                        "resumes": _COUNT,
                        "time_to_resume_s": {
                            "type": "object",
                            "description": "The percentiles p50, p95 and p99, in seconds",
                            "additionalProperties": _MAYBE_NUMBER,
                        },
                    }
                )
            ),
            "webhooks": {
                "description": "Empty for tenants other than `local`",
                "type": "array",
                "items": record(
                    {
                        "name": TEXT,
                        "state": {"type": "string", "enum": ["ok", "failing", "gone"]},
                        "delivered": _COUNT,
                        "behind": {"type": "integer", "description": "Events in the log that are not delivered yet"},
                        "failures": {"type": "integer", "description": "Consecutive failures"},
                        "error": MAYBE_TEXT,
                        "failing_since": _MAYBE_NUMBER,
                        "next_try_at": _MAYBE_NUMBER,
                    }
                ),
            },
        }
    ),
}


def resolve(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the component that it refers to."""
    return COMPONENTS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else dict(schema)
