"""The dashboard and the alert rules ask for what a real worker tells, and the guide explains all of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headrace.contrib.prometheus.catalogue import METRICS
from headrace.core.stats.alerts.failures import MIN_DEAD_LETTERS
from tests.contrib.prometheus.pages import samples
from tests.docs import promql
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("operations")]

FOLDER = ROOT / "docs" / "operations"
GUIDE = (ROOT / "docs" / "guides" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds to all it scrapes."""

QUERIES = [(f"panel {panel['title']}", target["expr"]) for panel in PANELS for target in panel["targets"]]
QUERIES += [(f"alert {rule['alert']}", rule["expr"]) for rule in RULES]

FAILED = MIN_DEAD_LETTERS
"""How many jobs fail: enough for an alert."""

SHOP = """
from headrace import App, Retry
app = App("sqlite:///jobs.db")

@app.task
async def add(a: int) -> int:
    return a

@app.task(retry=Retry(max_retries=0))
async def boom() -> None:
    raise ValueError("no")
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[frozenset[tuple[str, str]], float]]]:
    """What a real worker tells when it has completed a job, and others have failed."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    headrace = [sys.executable, "-m", "headrace"]
    for command in (
        [*headrace, "migrate", "--app", "shop"],
        [*headrace, "submit", "add", "a=1", "--app", "shop"],
        [sys.executable, "-c", f"import shop\nfor _ in range({FAILED}): shop.boom.submit_sync()"],
    ):
        subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True, timeout=120)
    worker = subprocess.Popen(
        [*headrace, "worker", "shop:app", "--health", "0"],
        cwd=folder,
        env=clean | {"HEADRACE_BEAT": "1"},  # what it finished is in the metrics after a beat
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        url = next(found[1] for line in worker.stderr if (found := re.search(r"and (http://\S+/metrics)", line)))
        yield until_worked(url)
    finally:
        worker.kill()
        worker.communicate()


_READ = {"headrace_success_ratio", "headrace_utilisation_ratio", "headrace_alerts"}
"""What is read from the store; the last one since so many jobs failed."""


def until_worked(url: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """The page once all jobs have ended, and the store was read and has heard of it."""
    deadline = time.monotonic() + 120
    while True:
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = samples(answer.read().decode())
        ended = sum(found.get("headrace_running_seconds_count", {}).values())
        if ended == FAILED + 1 and found.keys() >= _READ:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


Page = dict[str, dict[frozenset[tuple[str, str]], float]]


def labels_of(page: Page, metric: str) -> dict[str, set[str]]:
    """The labels that all samples of a metric have, with their values."""
    found: dict[str, set[str]] = {}
    for labels in page[metric]:
        for label, value in labels:
            found.setdefault(label, set()).add(value)
    return found


@pytest.mark.parametrize(("where", "text"), QUERIES, ids=[where for where, _ in QUERIES])
def test_every_query_is_about_metrics_and_labels_that_a_worker_tells(page: Page, where: str, text: str) -> None:
    query = promql.read(text)
    assert query.metrics
    assert query.metrics <= page.keys()
    told = {metric: labels_of(page, metric) for metric in query.metrics}
    for metric, label, wanted in query.matched:
        assert label in told[metric].keys() | SCRAPED, f"{metric} has no label {label}"
        if "$" not in wanted:
            assert set(wanted.split("|")) <= told[metric][label], f"{metric}: {label} is never {wanted}"
    assert query.grouped <= set[str]().union(SCRAPED, *told.values())
    assert set(re.findall(r"\$(\w+)", text)) <= {"__rate_interval", *VARIABLES}


def test_a_worker_tells_exactly_the_metrics_of_the_catalogue(page: Page) -> None:
    ends = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
    named = {name + end: metric.labels for name, metric in METRICS.items() for end in ends[metric.kind]}
    assert {name for name in page if name.startswith("headrace_") and not name.endswith("_created")} == named.keys()
    for name, labels in named.items():
        assert labels_of(page, name).keys() - {"le"} == set(labels), name


def test_the_guide_explains_every_metric_and_every_alert() -> None:
    for name, metric in METRICS.items():
        told = name + "_total" if metric.kind == "counter" else name
        [line] = re.findall(rf"^\| `{told}` \|.*$", GUIDE, re.MULTILINE)
        assert all(f"`{label}`" in line for label in metric.labels), line
    for rule in RULES:
        assert re.search(rf"^\| `{rule['alert']}` \| .+ \| .+ \|$", GUIDE, re.MULTILINE), rule["alert"]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_says_what_is_wrong_and_how_bad(page: Page, rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Headrace[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    said = rule["annotations"]
    assert said["summary"]
    assert said["description"].endswith(".")
    kept = promql.read(rule["expr"]).grouped | SCRAPED
    assert set(re.findall(r"\$labels\.(\w+)", said["summary"] + said["description"])) <= kept


def test_the_dashboard_is_whole() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None  # or Grafana takes it for a dashboard that it has
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        if any(re.search(r"_seconds(_bucket)?\{", target["expr"]) for target in panel["targets"]):
            assert panel["fieldConfig"]["defaults"]["unit"] == "s", panel["title"]
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for one in places
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    assert len(set(cells)) == len(cells)  # no panel lies on another
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("name", ["job", "queue", "task"])
def test_what_can_be_chosen_on_the_dashboard_is_told(page: Page, name: str) -> None:
    asked = re.fullmatch(r"label_values\((?P<query>.+), (?P<label>\w+)\)", VARIABLES[name]["query"]["query"])
    assert asked is not None
    query = promql.read(asked["query"])
    [metric] = query.metrics
    assert asked["label"] in labels_of(page, metric).keys() | SCRAPED


def test_queries_are_read_right() -> None:
    query = promql.read(
        'sum by (le, task) (rate(a_bucket{job=~"$job", outcome!="x|y"}[5m])) / on (task) group_left b > 0.5 and c{}'
    )
    assert query.metrics == {"a_bucket", "b", "c"}
    assert query.matched == {("a_bucket", "job", "$job"), ("a_bucket", "outcome", "x|y")}
    assert query.grouped == {"le", "task"}


def test_files_are_where_the_guide_says() -> None:
    hub = (ROOT / "docs" / "guides" / "hub.md").read_text(encoding="utf-8")
    for file in FOLDER.iterdir():
        assert f"../operations/{file.name}" in GUIDE + hub
