"""An outcome, shown: the object for programs, what to do next for people, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from toolpost.cli.answers import form_lines
from toolpost.cli.output import Output, pretty
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.contracts.questions import QuestionKind

EXIT_CODES = {"completed": 0, "failed": 1, "paused": 3}

_NEXT: dict[QuestionKind, str] = {
    "approval": "`toolpost pending approve {id}{again}` runs it, `toolpost pending deny {id}{again}` does not.",
    "consent": "`toolpost accounts connect {service}{again}` signs you in; the call then goes on by itself.",
    "input": "`toolpost pending answer {id} VALUE{again}` goes on with your answer.",
    "unknown": "`toolpost pending answer {id} --decision happened{again}` (or not_happened, or rerun) settles it.",
}


def show_outcome(outcome: Outcome, output: Output) -> int:
    """Show it and return the code to leave with."""
    if output.as_json:
        output.document(outcome_to_dict(outcome))
    else:
        _tell(outcome, output)
    return EXIT_CODES[outcome.status]


def next_step(kind: QuestionKind, pending_id: str, payload: Mapping[str, Any], *, again: str) -> str:
    """How a question of this kind is answered, by commands with the options `again`."""
    step = _NEXT[kind].format(id=pending_id, service=payload.get("provider", "SERVICE"), again=again)
    link = payload.get("auth_url") if kind == "consent" else None
    return f"{step}\nOr open {link}" if link else step


def _tell(outcome: Outcome, output: Output) -> None:
    match outcome:
        case Completed():
            output.text(pretty(outcome.content))
            if said := outcome.meta.get("note") or (outcome.text if outcome.content is None else None):
                output.note(str(said))
            output.note(f"completed: {outcome.tool_name} in {outcome.duration_ms:.1f} ms (run {outcome.run_id})")
            for artifact in outcome.artifacts:
                save = f"`toolpost artifacts save {artifact} FILE{output.again}`"
                output.note(f"{save} makes a file of what was kept; the tool artifact_read reads it.")
        case Failed(error=error):
            output.explain(error)
        case Paused(question=question):
            step = next_step(question.kind, outcome.pending_id, question.payload, again=output.again)
            fields = form_lines(question.answer_schema)
            output.text("\n".join([f"paused: {question.prompt}", *fields, step]))
        case _:
            assert_never(outcome)
