"""The unit, the compose file and the manifests: their commands can be typed, and their times fit one another."""

from __future__ import annotations

import configparser
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml

from headrace.cli.commands.hub import hub
from headrace.cli.root import cli
from headrace.core.times import duration
from headrace.hub.operations import OPERATIONS
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "operations"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8")))
KEDA: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "keda.yaml").read_text(encoding="utf-8")))
SCALED_POD: dict[str, Any] = KEDA[0]["spec"]["template"]["spec"]
POD: dict[str, Any] = MANIFESTS[0]["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign, assignment]  # names have capitals
    parser.read_string((FOLDER / "headrace-hub.service").read_text(encoding="utf-8"))
    return parser


def typed(words: Sequence[str]) -> dict[str, Any]:
    """The flags of a command line, which must be one of ours."""
    name, *rest = words
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command.make_context(name, list(rest), parent=click.Context(cli)).params


def of_unit() -> list[str]:
    return shlex.split(unit()["Service"]["ExecStart"])[1:]


COMMANDS = {
    "systemd": of_unit(),
    "compose hub": COMPOSE["services"]["hub"]["command"],
    "compose worker": COMPOSE["services"]["worker"]["command"],
    "kubernetes": CONTAINER["command"][1:],
    "keda": SCALED_POD["containers"][0]["command"][1:],
}


@pytest.mark.parametrize("where", COMMANDS)
def test_the_command_can_be_typed(where: str) -> None:
    assert typed(COMMANDS[where])["grace"] > 0


def test_whoever_stops_it_is_more_patient_than_its_grace() -> None:
    assert float(unit()["Service"]["TimeoutStopSec"]) > typed(of_unit())["grace"]
    for name in ("hub", "worker"):
        service = COMPOSE["services"][name]
        assert duration(service["stop_grace_period"]) > typed(service["command"])["grace"]
    flags = typed(CONTAINER["command"][1:])
    assert POD["terminationGracePeriodSeconds"] > flags["grace"] + flags["linger"] + 5
    assert SCALED_POD["terminationGracePeriodSeconds"] > typed(COMMANDS["keda"])["grace"] + 5


def test_a_service_turns_away_while_the_hub_lingers() -> None:
    probe = CONTAINER["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] < typed(CONTAINER["command"][1:])["linger"]


def test_the_probes_ask_for_what_is_there() -> None:
    paths = {operation.path for operation in OPERATIONS if operation.scope is None}
    for name, path in PROBES.items():
        assert CONTAINER[name]["httpGet"] == {"path": path, "port": "http"}
        assert path in paths, "without a key"
    asked = COMPOSE["services"]["hub"]["healthcheck"]["test"][-1]
    assert ":8470/readyz" in asked
    compile(asked, "healthcheck", "exec")


def test_ports_are_the_default_one() -> None:
    default = next(one.default for one in hub.params if one.name == "port")
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": default}]
    assert COMPOSE["services"]["hub"]["ports"] == [f"127.0.0.1:{default}:{default}"]


def test_there_are_files_for_all_sockets() -> None:
    default = next(one.default for one in hub.params if one.name == "sockets")
    assert isinstance(default, int)
    assert int(unit()["Service"]["LimitNOFILE"]) > default
    assert COMPOSE["services"]["hub"]["ulimits"]["nofile"]["soft"] > default


def test_the_manifests_belong_together() -> None:
    deployment, service, budget = MANIFESTS
    labels = {"app": "headrace-hub"}
    assert [one["kind"] for one in MANIFESTS] == ["Deployment", "Service", "PodDisruptionBudget"]
    assert (
        deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"] == labels
    )
    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]


def test_what_compose_says_of_its_services_is_there() -> None:
    services = COMPOSE["services"]
    for one in services.values():
        assert set(one.get("depends_on", {})) <= set(services)
        assert {name.partition(":")[0] for name in one.get("volumes", ())} <= set(COMPOSE["volumes"])
    assert services["hub"]["environment"]["HEADRACE_URL"].startswith("postgresql://")


def test_keda_scales_the_workers_by_what_the_hub_advises() -> None:
    """What it does with these is in tests/hub/api/test_scale.py."""
    deployment, authentication, scaled = KEDA
    assert [one["kind"] for one in KEDA] == ["Deployment", "TriggerAuthentication", "ScaledObject"]
    assert "replicas" not in deployment["spec"], "or each rollout would set them back"
    assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaled["spec"]["minReplicaCount"] == 0
    [trigger] = scaled["spec"]["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("metrics-api", "AverageValue")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    flags, about = typed(COMMANDS["keda"]), trigger["metadata"]
    assert int(about["targetValue"]) == flags["concurrency"]
    url = urlsplit(about["url"])
    assert url.hostname is not None
    assert url.hostname.partition(".")[0] == MANIFESTS[1]["metadata"]["name"]
    assert (url.port or 80) == MANIFESTS[1]["spec"]["ports"][0]["port"]
    assert "/api/scale/{queue:path}" in {operation.path for operation in OPERATIONS if operation.scope == "read"}
    assert url.path.rpartition("/") == ("/api/scale", "/", *flags["queues"])
