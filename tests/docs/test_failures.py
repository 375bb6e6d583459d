"""Every row of docs/failures.md names what a test proves."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failures.md"
PROOFS = {
    "a process is killed while a call runs": (
        "tests/life_of_a_call/test_crashes.py::"
        "test_an_approved_call_killed_inside_becomes_unknown_and_never_runs_by_itself"
    ),
    "a process is killed while a call waits for an answer": (
        "tests/postgres/test_state_store.py::test_a_call_paused_by_a_process_that_was_killed_is_resumed_once_by_another"
    ),
    "a process is killed between an answer and its call": (
        "tests/runtime/test_jobs.py::test_an_answer_whose_process_is_killed_is_carried_out_by_another_once"
    ),
    "a process is killed during a call with an idempotency key": (
        "tests/stores/test_sqlite.py::test_a_key_reserved_by_a_killed_process_says_so"
    ),
    "a process is stopped for longer than its lease, and continues": (
        "tests/postgres/test_leases.py::test_a_stopped_process_that_wakes_does_nothing_twice"
    ),
    "a worker of `toolpost up` ends": (
        "tests/gateway/test_workers.py::"
        "test_a_worker_that_dies_is_started_again_and_all_end_with_the_one_that_started_them"
    ),
    "the process of an agent is killed during a run": (
        "tests/agents/test_planner_elsewhere.py::test_a_kill_in_the_middle_of_resume_loses_nothing_and_repeats_nothing"
    ),
    "a process is killed that holds slots of a shared limit": (
        "tests/stores/test_limits.py::test_the_slots_of_a_killed_process_are_free"
    ),
    "a process is killed while it refreshes a token": (
        "tests/auth/test_refresh_race.py::test_a_process_killed_while_it_renews_leaves_a_question_and_no_second_request"
    ),
    "the PostgreSQL server restarts or is killed": (
        "tests/postgres/test_server_kills.py::test_calls_continue_after_the_server_was_killed"
    ),
    "the PostgreSQL server stops answering, such as on a frozen machine": (
        "tests/postgres/test_lost_connections.py::test_a_store_closes_although_its_server_does_not_answer"
    ),
    "a connection is lost during a commit": (
        "tests/postgres/test_lost_connections.py::test_a_commit_whose_answer_is_lost_is_looked_up"
    ),
    "a connection pooler drops notifications": (
        "tests/postgres/test_copies.py::test_a_check_finds_a_pooler_that_drops_notifications"
    ),
    "the disk is full": "tests/gateway/test_full_disk.py::test_a_full_disk_is_reported_and_over_once_there_is_room",
    "object storage cannot be reached, or refuses the credentials": (
        "tests/objects/trial_failures.py::test_a_bucket_that_disappears_is_reported_and_other_calls_continue"
    ),
    "a process is killed while it uploads an artifact": (
        "tests/objects/trial_failures.py::test_a_killed_process_loses_nothing_and_leaves_nothing"
    ),
    "a writer is killed during a transaction": (
        "tests/stores/test_sqlite.py::test_a_killed_writer_leaves_whole_chains_and_loses_nothing_it_was_promised"
    ),
    "the encryption key is missing or wrong": (
        "tests/auth/test_keys.py::test_a_database_does_not_open_without_its_key_and_no_other_is_made"
    ),
    "`toolpost db move` is killed": "tests/postgres/test_copies.py::test_a_move_that_is_killed_changes_nothing",
    "an MCP server ends during a call": (
        "tests/gateway/test_bad_requests.py::test_a_server_that_dies_during_a_call_is_an_error_of_that_call_alone"
    ),
    "an MCP server ends between calls": (
        "tests/sources/mcp/test_reconnects.py::test_a_server_that_died_between_calls_is_started_again_unseen"
    ),
    "a source cannot be reached": (
        "tests/toolbox/test_startup.py::test_a_source_that_was_down_is_tried_again_by_a_call"
    ),
    "a service fails again and again": (
        "tests/life_of_a_call/test_shared_upstreams.py::test_one_process_probes_and_closes_the_breaker_for_all"
    ),
    "the supervisor of a program is killed": (
        "tests/processes/test_process_supervisor.py::"
        "test_a_server_dies_with_supervisor_and_worker_even_without_a_control_group"
    ),
    "the issuer of sign-ins cannot be reached": (
        "tests/gateway/test_callers.py::test_an_issuer_that_is_down_is_no_fault_of_the_caller"
    ),
    "the receiver of an event webhook cannot be reached": (
        "tests/toolbox/test_wiring_webhooks.py::test_a_receiver_gets_every_event_in_order_and_continues_after_a_restart"
    ),
    "a client ends its connection to the event stream": (
        "tests/gateway/test_worker_processes.py::test_a_listener_continues_at_the_other_worker_without_a_gap"
    ),
}


def test_every_failure_of_the_page_has_a_proof() -> None:
    tables = PAGE.read_text(encoding="utf-8").split("| What fails | What happens | What you do |\n|---|---|---|\n")[1:]
    rows = [line.split(" | ")[0].removeprefix("| ") for table in tables for line in table.split("\n\n")[0].splitlines()]

    assert rows == list(PROOFS)


@pytest.mark.parametrize("proof", PROOFS.values())
def test_a_proof_is_a_test(proof: str) -> None:
    path, _, name = proof.partition("::")
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))

    assert name in [node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
