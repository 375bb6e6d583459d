"""`toolpost workflow`: what is wrong with a file, a run of one, and its picture."""

import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.cli.program import Run

FLOW = """
name: twice
side_effects: pure
inputs: {properties: {text: {type: string}}, required: [text]}
steps:
  first: {tool: base64_encode, arguments: {text: "${{ inputs.text }}"}}
  second: {when: steps.first, tool: base64_encode, arguments: {text: "${{ steps.first.encoded }}"}}
outputs: ${{ steps.second.encoded }}
"""


def test_a_workflow_is_run_from_its_file(toolpost: Run, home: Path) -> None:
    (home / "twice.yaml").write_text(FLOW)
    done = toolpost("workflow", "run", "twice.yaml", "text=a", "--json")
    assert (done.code, done.json["content"]) == (0, "WVE9PQ==")


def test_wrong_arguments_of_a_file_are_reported_with_where_to_look(toolpost: Run, home: Path) -> None:
    (home / "twice.yaml").write_text(FLOW)
    done = toolpost("workflow", "run", "twice.yaml", "txt=a")
    assert done.code == 1
    assert "See `inputs` in twice.yaml for the accepted arguments." in done.err
    assert "tools show" not in done.err  # it is in no catalog


def test_a_check_names_what_the_catalog_does_not_have(toolpost: Run, home: Path) -> None:
    wrong = FLOW.replace("first: {tool: base64_encode", "first: {tool: base64_encod")
    (home / "flows").mkdir()
    (home / "flows" / "good.yaml").write_text(FLOW)
    (home / "flows" / "wrong.yaml").write_text(wrong.replace('{text: "${{ steps', '{txt: "${{ steps'))
    done = toolpost("workflow", "check", "flows", "--json")
    assert done.code == 1
    twice = "workflow 'twice' (version 1):"
    good, bad = done.json["workflows"]
    assert good["faults"] == []
    assert bad["faults"] == [
        f"{twice} step 'first' calls 'base64_encod', which is not in the catalog; did you mean 'base64_encode'?",
        f"{twice} step 'second' calls 'base64_encode' without its argument 'text'",
        f"{twice} step 'second' calls 'base64_encode' with 'txt', which it does not accept",
    ]
    (home / "flows" / "none.yaml").write_text("steps: 3")
    shown = toolpost("workflow", "check", "flows").out.splitlines()
    assert shown[0] == "flows/good.yaml: no faults"
    assert shown[1].startswith("flows/none.yaml: name: Field required")
    assert shown[2:] == [f"flows/wrong.yaml: {fault}" for fault in bad["faults"]]


def test_a_picture_shows_the_steps_and_what_needs_what(toolpost: Run, home: Path) -> None:
    (home / "twice.yaml").write_text(FLOW.replace("name: twice", "name: a_name\ndescription: <b>&"))
    done = toolpost("workflow", "graph", "twice.yaml", "-o", "twice.svg")
    drawn = ET.fromstring((home / "twice.svg").read_text())
    texts = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    arrows = [one for one in drawn.iter("{http://www.w3.org/2000/svg}path") if one.get("marker-end")]
    assert done.code == 0
    assert texts == ["workflow 'a_name' (version 1)", "first", "base64_encode", "second (if)", "base64_encode"]
    assert len(arrows) == 1


def test_a_file_that_is_no_workflow_is_reported(toolpost: Run, home: Path) -> None:
    (home / "wrong.yaml").write_text("name: x\nsteps: {a: {tool: t, when: steps.b}}")
    done = toolpost("workflow", "graph", "wrong.yaml")
    assert done.code == 1
    assert "step 'a' refers to the step 'b', which does not exist" in done.err


def test_a_file_is_recognised_and_becomes_a_source(toolpost: Run, home: Path) -> None:
    (home / "twice.yaml").write_text(FLOW)
    done = toolpost("tools", "connect", "twice.yaml", "--name", "flows", "--yes")
    assert done.code == 0
    assert "transport: workflow" in (home / "toolpost.yaml").read_text()
    assert toolpost("tools", "call", "flows.twice", "text=a", "--json").json["content"] == "WVE9PQ=="


def test_a_run_that_waited_continues_after_the_answer(toolpost: Run, home: Path) -> None:
    (home / "tools.py").write_text(
        "from toolpost import tool\n\n@tool(side_effects='write', destructive=True)\n"
        "async def wipe(name: str) -> str:\n    '''Wipe.'''\n    return f'{name} is gone'\n"
    )
    (home / "toolpost.yaml").write_text("sources: [{name: home, transport: python, connection: ./tools.py}]")
    (home / "clean.yaml").write_text(
        "name: clean\nsteps: {wipe: {tool: home.wipe, arguments: {name: old}}}\nmessage: ${{ steps.wipe }}, for good\n"
        "outputs: {done: '${{ steps.wipe }}'}"
    )
    paused = toolpost("workflow", "run", "clean.yaml", "--json")
    asked = paused.json["pending"]["id"]
    assert f"toolpost workflow run clean.yaml --resume {asked}" in paused.err
    toolpost("pending", "approve", asked)
    done = toolpost("workflow", "run", "clean.yaml", "--resume", asked, "--json")
    assert (done.code, done.json["tool_name"], done.json["content"]) == (0, "clean", {"done": "old is gone"})


def test_a_workflow_that_calls_itself_ends_and_says_so(toolpost: Run, home: Path) -> None:
    (home / "circle.yaml").write_text("name: circle\nsteps: {again: {tool: circle}}\n")
    done = toolpost("workflow", "run", "circle.yaml", "--json")
    assert (done.code, done.json["status"]) == (1, "failed")
    assert "calls are nested more than 20 deep; does 'circle' call itself?" in done.json["error"]["message"]


def test_a_picture_that_cannot_be_written_is_reported_with_its_place(toolpost: Run, home: Path) -> None:
    (home / "twice.yaml").write_text(FLOW)
    done = toolpost("workflow", "graph", "twice.yaml", "-o", "nowhere/twice.svg")
    assert done.code == 1
    assert "failed: nowhere/twice.svg cannot be written: No such file or directory; give another" in done.err


def test_a_run_that_takes_too_long_is_reported_where_to_give_it_longer(toolpost: Run, home: Path) -> None:
    (home / "slow.yaml").write_text(
        "name: slow\ntimeout_s: 0.05\nsteps: {wait: {tool: local.wait, arguments: {seconds: 60}}}\n"
    )
    done = toolpost("workflow", "run", "slow.yaml")
    assert (done.code, done.err.splitlines()[-1]) == (1, "To allow more time, raise `timeout_s` in slow.yaml.")


def test_the_usage_names_what_is_repeated_once(toolpost: Run) -> None:
    assert "workflow check [OPTIONS] FILE|FOLDER...\n" in toolpost("workflow", "check", "-h").out


PAIR = """
name: pair
steps:
  first: {tool: local.wipe, arguments: {name: a}}
  second: {tool: local.wipe, arguments: {name: b}}
"""


def test_a_workflow_that_waits_for_several_answers_names_them_all(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(
        "sources:\n"
        "  - {name: local, transport: python, connection: ./tools.py}\n"
        "  - {name: flows, transport: workflow, connection: ./flows}\n"
    )
    (home / "flows").mkdir()
    (home / "flows" / "pair.yaml").write_text(PAIR)
    paused = toolpost("tools", "call", "flows.pair")
    listed = toolpost("pending", "list", "--json").json
    done = [toolpost("pending", "approve", card["id"], "--json").json for card in listed]

    assert sorted(card["arguments"]["name"] for card in listed) == ["a", "b"]
    assert all(f"`toolpost pending approve {card['id']}` runs it" in paused.out for card in listed)
    assert "It also waits for local.wipe: Allow local.wipe?" in paused.out
    other = done[0]["pending"]
    assert (other["id"], other["tool_name"], other["others"]) == (listed[1]["id"], "local.wipe", [])
    assert done[1]["content"] == {"first": "wiped a", "second": "wiped b"}


SIGN_IN = """
from toolpost import ToolContext, tool

@tool
async def mail(ctx: ToolContext) -> str:
    \"\"\"Read the mail of whoever has signed in.\"\"\"
    await ctx.pause("sign in", auth_request={"auth_url": "https://login.example/start", "provider": "mail"})
    return "no news"
"""


def test_where_to_sign_in_for_a_call_inside_a_workflow_is_said_as_for_the_call_alone(toolpost: Run, home: Path) -> None:
    (home / "mail.py").write_text(SIGN_IN)
    (home / "toolpost.yaml").write_text("sources: [{name: local, transport: python, connection: ./mail.py}]\n")
    (home / "flow.yaml").write_text("{name: flow, steps: {mail: {tool: local.mail}}}")
    alone, inside = toolpost("tools", "call", "local.mail"), toolpost("workflow", "run", "flow.yaml")

    assert "`toolpost accounts connect mail` signs you in" in inside.out
    assert "Or open https://login.example/start" in inside.out
    assert inside.out == alone.out


def test_a_no_to_one_call_of_a_workflow_says_what_was_not_run_and_what_came_of_it(toolpost: Run, home: Path) -> None:
    with (home / "toolpost.yaml").open("a") as config:
        config.write("  - {name: flows, transport: workflow, connection: ./pair.yaml}\n")
    (home / "pair.yaml").write_text(PAIR)
    toolpost("tools", "call", "flows.pair")
    second, first = toolpost("pending", "list", "--json").json
    toolpost("pending", "approve", first["id"])
    denied = toolpost("pending", "deny", second["id"], "--reason", "still needed")

    assert denied.code == 0
    assert denied.out == "denied: local.wipe was not run, and its caller is notified.\n"
    assert "failed: workflow 'pair' (version 1): step 'second': local.wipe:" in denied.err


def test_the_command_that_continues_with_a_workflow_says_whose_it_is(toolpost: Run, home: Path) -> None:
    (home / "my flow.yaml").write_text("{name: flow, steps: {ask: {tool: local.ask}}}")
    paused = toolpost("workflow", "run", "my flow.yaml", "--user", "acme:ann")
    command = shlex.split(paused.err.partition("To resume after the answer: toolpost ")[2].splitlines()[0])
    waiting = toolpost("pending", "list", "--json", "--user", "acme:ann").json
    toolpost("pending", "answer", waiting[0]["id"], "red", "--user", "acme:ann")
    done = toolpost(*command, "--json")

    assert (done.code, done.json["content"]) == (0, "painted red")
