"""The files in packaging/deploy: manifests, the compose file, their configuration, alerts and the dashboard."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.serving import served
from tests.parts import ROOT, found
from toolpost import Toolbox, tool
from toolpost.configuration.lint import lint_settings
from toolpost.configuration.loading import load_settings
from toolpost.stores.object_storage import BucketPlace

DEPLOY = ROOT / "packaging" / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
MONITORING = DEPLOY / "monitoring"
RUNBOOK = ROOT / "docs" / "runbook.md"
SECRETS = frozenset({"DB_PASSWORD", "POSTGRES_PASSWORD", "TOOLPOST_KEY", "TOOLPOST_TOKEN", "AWS_SECRET_ACCESS_KEY"})
VALUES = {
    "DB_PASSWORD": "canary-password-of-the-database",
    "TOOLPOST_KEY": "Y2FuYXJ5LWtleS1vZi10aGUtZGVwbG95bWVudC0wMSE=",
    "TOOLPOST_TOKEN": "canary-token-of-the-operator-of-this-deployment",
    "PUBLIC_URL": "https://toolpost.example.com",
    "AWS_SECRET_ACCESS_KEY": "canary-secret-of-the-bucket",
}
OF_PROMETHEUS = frozenset({"up"})


def manifests() -> list[dict[str, Any]]:
    return [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests() if one["kind"] == kind}


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in of_kind("StatefulSet").items():
        yield name, one["spec"]["template"]["spec"]


def check(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.req("OPS-12")
@pytest.mark.programs
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_takes_every_manifest(path: Path) -> None:
    check(found(".parts/deploy/bin/kubernetes-validate"), "--strict", "--quiet", path)


@pytest.mark.req("OPS-12")
@pytest.mark.programs
def test_the_compose_file_follows_its_specification() -> None:
    checker = found(".parts/deploy/bin/check-jsonschema")
    check(checker, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.programs
def test_a_linter_finds_nothing_in_the_containerfile() -> None:
    check(found(".parts/deploy/bin/hadolint"), ROOT / "packaging" / "Containerfile")


async def test_the_configuration_that_is_mounted_loads_without_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(DEPLOY / "toolpost.yaml").settings
    here = settings.model_copy(update={"data_dir": tmp_path, "database": None, "artifacts": None})
    async with Toolbox(settings=here) as box:
        found_problems = [finding.text for finding in lint_settings(settings, box.registry, {}, str)]

    assert found_problems == []
    assert settings.artifacts is not None
    assert BucketPlace.parse(settings.artifacts).scheme == "s3"
    assert VALUES["DB_PASSWORD"] in (settings.database or "")
    assert of_kind("ConfigMap")["toolpost-config"]["data"]["toolpost.yaml"] == (DEPLOY / "toolpost.yaml").read_text()


def test_every_variable_of_the_configuration_is_given_to_gateways_and_workers() -> None:
    text = (DEPLOY / "toolpost.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"\$\{(\w+)\}", text)) | set(re.findall(r"env:(\w+)", text)) | {"AWS_SECRET_ACCESS_KEY"}
    given = [
        {one["name"] for one in pod["containers"][0]["env"]} for name, pod in pods() if name.startswith("toolpost")
    ]
    services = compose()["services"]
    given += [set(services[name]["environment"]) for name in ("gateway", "worker")]

    assert len(given) == 4
    assert [named - one for one in given] == [set()] * 4


def test_secrets_are_references_only() -> None:
    variables = [one for _, pod in pods() for one in pod["containers"][0]["env"] if one["name"] in SECRETS]
    texts = [
        value
        for service in compose()["services"].values()
        for name, value in service.get("environment", {}).items()
        if name in SECRETS
    ]

    assert variables
    assert [one["name"] for one in variables if "secretKeyRef" not in one.get("valueFrom", {})] == []
    assert not of_kind("Secret")
    assert texts
    assert [text for text in texts if not re.fullmatch(r"\$\{\w+:\?.+\}", text)] == []


def test_containers_have_few_rights() -> None:
    for _, pod in pods():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= set(container["resources"])
    services = compose()["services"]
    assert [services[name]["read_only"] for name in ("gateway", "worker")] == [True, True]
    assert services["gateway"]["ports"] == ["127.0.0.1:7300:7300"]


def test_the_user_of_the_pods_is_that_of_the_image() -> None:
    text = (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")
    user = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    of_pods = {str(pod["securityContext"]["runAsUser"]) for name, pod in pods() if name.startswith("toolpost")}

    assert user == ["10001"]
    assert of_pods == {"10001"}
    assert compose()["services"]["gateway"]["user"] == "10001:10001"


def test_a_process_that_stops_has_time_to_end_its_calls() -> None:
    for name, pod in pods():
        if not name.startswith("toolpost"):
            continue
        [container] = pod["containers"]
        limit = int(container["args"][container["args"].index("--shutdown-limit") + 1])
        before = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert pod["terminationGracePeriodSeconds"] > limit + int(before[1])
    for name in ("gateway", "worker"):
        service = compose()["services"][name]
        limit = int(service["command"][service["command"].index("--shutdown-limit") + 1])
        assert int(service["stop_grace_period"].removesuffix("s")) > limit


def test_a_gateway_has_probes() -> None:
    [container] = of_kind("StatefulSet")["toolpost-gateway"]["spec"]["template"]["spec"]["containers"]

    assert container["startupProbe"]["httpGet"]["path"] == container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.programs
def test_the_commands_have_the_options_that_they_are_given() -> None:
    commands = [pod["containers"][0]["args"] for name, pod in pods() if name.startswith("toolpost")]
    commands += [compose()["services"][name]["command"] for name in ("gateway", "worker")]
    for command, *arguments in commands:
        asked = [sys.executable, "-m", "toolpost", command, "--help"]
        shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert [option for option in arguments if option.startswith("--") and option not in shown] == []


def test_every_workload_has_a_service_and_a_disruption_budget_that_select_it() -> None:
    services, budgets = of_kind("Service"), of_kind("PodDisruptionBudget")
    for name, one in of_kind("StatefulSet").items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        chosen = [
            one["spec"]["selector"]["matchLabels"],
            budgets[name]["spec"]["selector"]["matchLabels"],
            services[one["spec"]["serviceName"]]["spec"]["selector"],
        ]
        assert all(selector.items() <= labels.items() for selector in chosen)


def test_the_hosts_of_the_configuration_are_services() -> None:
    hosts = {"postgres", "objects"}

    assert hosts <= set(of_kind("Service"))
    assert hosts <= set(compose()["services"])


@tool(side_effects="pure")
async def nothing() -> None:
    """Do nothing."""


def alerts() -> list[dict[str, Any]]:
    text = (MONITORING / "alerts.yaml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m") for text in (*shown, *(rule["expr"] for rule in alerts()))]


@pytest.mark.req("OPS-13")
@pytest.mark.programs
async def test_every_expression_parses_and_names_metrics_that_a_gateway_has(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [nothing]) as gate:
        await gate.http.post("/api/v1/calls", json={"tool": "nothing"})
        text = (await gate.http.get("/metrics")).text
    kinds: dict[str, str] = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    parts = [
        f"{name}_{part}" for name, kind in kinds.items() if kind == "histogram" for part in ("bucket", "sum", "count")
    ]
    program = [str(found(".parts/deploy/bin/python")), str(Path(__file__).with_name("checkers.py"))]
    asked = json.dumps(expressions())
    parsed = subprocess.run(program, input=asked, capture_output=True, text=True, check=False, env={**os.environ})
    assert parsed.returncode == 0, parsed.stderr
    named = {name for names in json.loads(parsed.stdout) for name in names}

    assert named
    assert named - set(kinds) - set(parts) - OF_PROMETHEUS == set()


@pytest.mark.req("OPS-13")
def test_alerts_lead_to_a_section_of_the_runbook() -> None:
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}

    for rule in alerts():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (ROOT / page) == RUNBOOK
        assert anchor in anchors


@pytest.mark.req("OPS-13")
def test_the_runbook_diagnoses_and_fixes_its_problems() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    wanted = ("Full disk", "Crash", "Unknown outcome", "Lost key", "Stuck queue", "Upgrade")

    assert [heading for heading in wanted if f"\n## {heading}\n" not in text] == []
