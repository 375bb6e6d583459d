"""What is wrong with a workflow is said before it runs, with the name of the workflow and the step."""

from pathlib import Path

import pytest

from toolpost.errors import ConfigError
from toolpost.sources import Workflow

STEP = "steps: {a: {tool: t}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "is not a mapping"),
        ("name: x\nsteps: {a: {tool: t}", "is not YAML"),
        ("steps: {a: {tool: t}}", "name: Field required"),
        ("name: x", "steps: Field required"),
        ("name: x\nsteps: {}", "steps: Dictionary should have at least 1 item"),
        (f"name: x\nfromat: 1\n{STEP}", "fromat is unknown; did you mean format?"),
        (f"name: x\nname: y\n{STEP}", "the key 'name' occurs twice"),
        (f"name: x\ninputs: &a {{}}\noutputs: *a\n{STEP}", "aliases are not allowed"),
        (f"format: 2\nname: x\n{STEP}", "has format 2 of a newer Toolpost; this one supports up to 1"),
        (f"format: new\nname: x\n{STEP}", "format is 'new', not a number"),
        ("name: x\nsteps: {a-b: {tool: t}}", "steps.a-b is not a valid name for expressions"),
        (f"name: x\ninputs: {{type: array}}\n{STEP}", "inputs is not a JSON Schema of an object"),
        (f"name: x\ninputs: {{properties: {{a: {{type: strin}}}}}}\n{STEP}", "workflow 'x' (version 1): inputs "),
        ("name: x\nsteps: {a: {tool: t, after: [b]}, b: {tool: t, after: [a]}}", "in a circle: a → b → a"),
        (
            "name: x\nversion: 2\nsteps:\n  fetch: {tool: t}\n  b: {tool: t, when: steps.fech}",
            "workflow 'x' (version 2): step 'b' refers to the step 'fech', which does not exist; did you mean 'fetch'?",
        ),
        ("name: x\nsteps: {a: {tool: t, after: [z]}}", "step 'a', after refers to the step 'z', which does not exist"),
        (f"name: x\noutputs: '${{{{ steps.z }}}}'\n{STEP}", "outputs refers to the step 'z'"),
        ("name: x\nsteps: {a: {tool: t, when: 'length('}}", "step 'a', when 'length(' is not JMESPath"),
        ("name: x\nsteps: {a: {tool: t, when: input.n}}", "begins with 'input', not with inputs, steps"),
        ("name: x\nsteps: {a: {tool: t, when: '@'}}", "uses @ for everything"),
        ("name: x\nsteps: {a: {tool: t, when: '!steps.a'}}", "must name one of the steps"),
        (
            "name: x\nsteps: {a: {tool: t, arguments: {v: '${{ item }}'}}}",
            "uses item or index and the step has no for_",
        ),
        ("name: x\nsteps: {a: {tool: t, for_each: item.n}}", "for_each uses item or index"),
        ("name: x\nsteps: {a: {tool: t, arguments: {v: '${{ inputs.n'}}}", "does not close it"),
        (f"name: x\nmessage: '${{{{ ports.p }}}}'\n{STEP}", "message refers to the input port 'p'"),
        (
            f"name: x\nports: {{inputs: {{p: {{columns: {{a: int}}}}}}}}\n{STEP}",
            "ports.inputs.p.columns.a: Input should",
        ),
        (
            f"name: x\n{STEP}\ninputs: {{properties: {{p: {{}}}}}}\nports: {{inputs: {{p: {{columns: {{a: bool}}}}}}}}",
            "ports.inputs.p has the name of an input",
        ),
    ],
)
def test_a_fault_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Workflow.parse(text)
    assert message in refused.value.message


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        Workflow.read(tmp_path / "none.yaml")
    (tmp_path / "huge.yaml").write_text(f"name: x\n{STEP}\n#" + "x" * 2_000_000)
    with pytest.raises(ConfigError, match=r"huge\.yaml has 2000\d+ bytes"):
        Workflow.read(tmp_path / "huge.yaml")


def test_only_true_and_false_are_booleans_and_dates_are_texts() -> None:
    found = Workflow.parse("name: on\nsteps: {a: {tool: t, arguments: {d: 2026-11-17, n: no, y: true}}}")
    assert found.name == "on"
    assert found.data.steps["a"].arguments == {"d": "2026-11-17", "n": "no", "y": True}


def test_a_workflow_is_packed_into_bytes_and_read_again() -> None:
    text = """
    name: report
    version: 7
    inputs: {properties: {n: {type: integer, default: 3}}}
    steps:
      b: {tool: t, arguments: {v: "${{ steps.a }}"}}
      a: {tool: t}
    message: "${{ steps.b }}"
    """
    workflow = Workflow.parse(text)
    again = Workflow.unpack(workflow.pack())
    assert again.data == workflow.data
    assert list(again.steps) == ["a", "b"]
    assert again.pack() == workflow.pack()


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (b"\x00\x01", "its 2 bytes are not JSON"),
        (b"{}", "it was not packed by Toolpost"),
        (b'{"toolpost_workflow": 9}', "has format 9 of a newer Toolpost"),
        (b'{"toolpost_workflow": 1, "workflow": "{}", "sha256": "0"}', "is damaged"),
    ],
)
def test_bytes_that_are_no_packed_workflow_are_refused(packed: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Workflow.unpack(packed)
    assert message in refused.value.message


def test_a_truncated_package_is_refused() -> None:
    packed = Workflow.parse(f"name: x\n{STEP}").pack()
    with pytest.raises(ConfigError, match="not JSON"):
        Workflow.unpack(packed[:-10])
