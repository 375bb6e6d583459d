"""The key of the data folder, from the command line."""

import json
from pathlib import Path

from tests.cli.program import Run


def test_what_was_encrypted_before_the_key_was_rotated_opens_afterwards(toolpost: Run, home: Path) -> None:
    waiting = toolpost("tools", "call", "local.wipe", "name=disk", "--json")
    key = home / ".toolpost" / "key"
    before = key.read_bytes()

    rotated = toolpost("keys", "rotate", "--retire", "--json")
    shown = toolpost("pending", "show", waiting.json["pending"]["id"], "--json")
    done = toolpost("pending", "approve", waiting.json["pending"]["id"], "--json")

    assert (rotated.code, rotated.json["status"], rotated.json["retired"]) == (0, "ok", True)
    assert rotated.json["sealed"]["pending"] > 0
    assert before not in key.read_bytes()
    assert shown.json["arguments"] == {"name": "disk"}
    assert done.json["status"] == "completed"


def test_older_keys_are_kept_unless_they_are_retired(toolpost: Run) -> None:
    toolpost("tools", "call", "local.wipe", "name=disk", "--json")

    rotated = toolpost("keys", "rotate")

    assert rotated.code == 0
    assert "The older keys were kept and still decrypt data that they encrypted." in rotated.err


def test_a_key_of_a_caller_is_shown_once_listed_without_its_secret_and_revoked(toolpost: Run) -> None:
    created = toolpost("keys", "create", "bot", "--expires", "90d", "--json")
    listed = toolpost("keys", "list", "--json")
    table = toolpost("keys", "list")
    revoked = toolpost("keys", "revoke", created.json["id"], "--json")
    again = toolpost("keys", "revoke", created.json["id"], "--json")

    assert created.json["scopes"] == ["call"]
    assert created.json["key"].startswith(f"tpk_{created.json['id']}_")
    assert [(key["id"], key["last_used_at"]) for key in listed.json] == [(created.json["id"], None)]
    assert "never" in table.out
    assert created.json["key"] not in listed.out + table.out
    assert (revoked.code, again.code, again.json["error"]["error_code"]) == (0, 1, "key_not_found")


def test_a_key_is_revoked_by_how_its_id_begins_or_by_itself_and_its_secret_is_not_repeated(toolpost: Run) -> None:
    first, second = [toolpost("keys", "create", name, "--json").json for name in ("bot", "bee")]

    begun = toolpost("keys", "revoke", first["id"][:6], "--json")
    whole = toolpost("keys", "revoke", second["key"])
    again = toolpost("keys", "revoke", second["key"])

    assert begun.json == {"status": "revoked", "id": first["id"]}
    assert whole.out == f"revoked: {second['id']}.\n"
    assert (again.code, second["id"] in again.err) == (1, True)
    assert second["key"].rpartition("_")[2] not in again.out + again.err
    assert toolpost("keys", "list", "--json").json == []


def test_of_a_key_of_another_tenant_it_is_said_where_it_is_listed(toolpost: Run) -> None:
    created = toolpost("keys", "create", "bot", "--for", "acme:bot")
    key_id = created.out.split("_")[1]
    missed = toolpost("keys", "revoke", key_id)

    assert "`toolpost keys list --user acme:bot` shows the keys of its tenant." in created.err
    assert "the tenant 'local' has no key" in missed.err
    assert "--user TENANT:USER" in missed.err
    assert toolpost("keys", "revoke", key_id, "--user", "acme:ann").code == 0


def test_a_key_for_a_client_that_a_person_uses_says_so(toolpost: Run) -> None:
    created = toolpost("keys", "create", "desk", "--interactive", "--json")
    plain = toolpost("keys", "create", "bot", "--json")
    refused = toolpost("keys", "create", "boss", "--scope", "answer", "--interactive", "--json")
    listed = toolpost("keys", "list", "--json")

    assert (created.json["interactive"], plain.json["interactive"]) == (True, False)
    assert (refused.code, refused.json["error"]["error_code"]) == (1, "key_scopes")
    assert [key["interactive"] for key in listed.json] == [True, False]
    assert "call (interactive)" in toolpost("keys", "list").out


def test_a_key_for_an_agent_cannot_have_the_scope_to_answer(toolpost: Run) -> None:
    both = toolpost("keys", "create", "bot", "--scope", "call", "--scope", "answer", "--json")
    unknown = toolpost("keys", "create", "bot", "--scope", "calls")

    assert (both.code, both.json["error"]["error_code"]) == (1, "key_scopes")
    assert (unknown.code, "not a scope" in unknown.err) == (2, True)


def test_it_is_reported_whose_keys_are_listed_and_how_to_see_those_of_others(toolpost: Run) -> None:
    nothing = toolpost("keys", "list")
    toolpost("keys", "create", "ours")
    toolpost("keys", "create", "bot", "--for", "acme:bot")
    ours = toolpost("keys", "list")
    theirs = toolpost("keys", "list", "--user", "acme:ann")

    assert "The tenant 'local' has no caller keys" in nothing.out
    assert ("ours" in ours.out, "bot" in ours.out) == (True, False)
    assert "the tenant 'local'. --user TENANT:USER shows the keys of another tenant." in ours.err
    assert ("ours" in theirs.out, "bot" in theirs.out) == (False, True)
    assert "the tenant 'acme'." in theirs.err


def test_who_created_and_revoked_a_key_is_in_the_record_of_its_tenant_and_the_key_is_not(toolpost: Run) -> None:
    created = toolpost("keys", "create", "bot", "--for", "acme:bot", "--expires", "90d", "--json").json
    missed = toolpost("keys", "revoke", created["id"])
    toolpost("keys", "revoke", created["id"], "--user", "acme:ann")
    shown = toolpost("events", "--user", "acme:ann", "--json")
    text = toolpost("events", "--user", "acme:ann", "--type", "caller-key-revoked")

    made, revoked = [json.loads(line) for line in shown.out.splitlines()]
    key = {"key_id": created["id"], "name": "bot", "user": "acme:bot", "scopes": ["call"]}
    assert (made["type"], revoked["type"]) == ("CALLER_KEY_CREATED", "CALLER_KEY_REVOKED")
    assert made["payload"].items() >= {**key, "expires_at": created["expires_at"], "by": created["created_by"]}.items()
    assert revoked["payload"].items() >= {**key, "by": "acme:ann"}.items()
    assert missed.code == 1
    assert created["key"].rpartition("_")[2] not in shown.out + text.out
    assert 'by="acme:ann"' in text.out
    assert toolpost("runs", "verify", "--user", "acme:ann").code == 0


def test_a_key_of_a_person_signs_in_to_the_console_and_may_combine_scopes(toolpost: Run) -> None:
    created = toolpost("keys", "create", "desk", "--person", "--json")
    admin = toolpost("keys", "create", "boss", "--person", "--scope", "call", "--scope", "admin")
    refused = toolpost("keys", "create", "both", "--person", "--interactive", "--json")
    table = toolpost("keys", "list")

    assert (created.json["person"], created.json["scopes"]) == (True, ["call", "answer"])
    assert "sign in to the console with it" in admin.err
    assert (refused.code, refused.json["error"]["error_code"]) == (1, "key_scopes")
    assert "answer call (person)" in table.out
