"""The benchmark runs as it stands: real processes, small numbers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as program
from bench import plan as plans
from bench.harness import measure, steps
from bench.plan import SIDES, EngineName, Plan
from bench.report import lines
from bench.stores import Files

pytestmark = pytest.mark.timeout(240)


def _tiny(engine: EngineName = "sqlite") -> Plan:
    few = dict.fromkeys(SIDES[engine], 100)
    plan = plans.quick(engine)
    return replace(plan, one=few, concurrent=few, bulk=few, drain=few, paced=3, per_second=500.0)


def test_every_side_takes_every_place() -> None:
    plan = replace(_tiny(), repeat=len(SIDES["sqlite"]), measures=("one",))
    order = [step.side for step in steps(plan) if not step.sync]
    assert {order[turn * len(plan.sides)] for turn in range(plan.repeat)} == set(plan.sides)


def test_drains_are_planned_for_every_number_of_threads_or_processes() -> None:
    huey = replace(_tiny(), sides=("huey",), threads=(1, 4), measures=("drain",))
    assert [(step.threads, step.processes, step.key) for step in steps(huey)] == [(1, 1, "drain"), (4, 1, "drain4")]
    saq = replace(_tiny("postgres"), sides=("saq",), measures=("drain", "full"))
    assert [(step.processes, step.key) for step in steps(saq)] == [(1, "drain"), (2, "drain2"), (1, "full")]


def test_one_by_one_on_sqlite_is_measured_with_a_loop_and_without(tmp_path: Path) -> None:
    plan = replace(_tiny(), sides=("headrace", "huey"), measures=("one",))
    figures = measure(plan, Files(tmp_path))
    assert {key: set(found) for key, found in figures.samples.items()} == {
        "one": {"headrace", "huey"},
        "sync": {"headrace", "huey"},
    }
    assert figures.samples["one"]["huey"] == figures.samples["sync"]["huey"]
    assert figures.samples["one"]["headrace"] != figures.samples["sync"]["headrace"]
    assert [step.key for step in steps(replace(plan, engine="postgres", sides=("headrace",)))] == ["one"]


def test_it_measures_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = _tiny()
    monkeypatch.setattr(plans, "quick", lambda engine: tiny)
    report, chart = tmp_path / "bench.json", tmp_path / "bench.svg"
    words = ["--quick", "--only", "headrace,raw", "--measure", "bulk,drain,latency", "--dir", str(tmp_path / "stores")]
    assert program.main([*words, "--json", str(report), "--svg", str(chart)]) == 0
    shown = capsys.readouterr().out
    assert "synchronous FULL" in shown
    assert "drain, against huey default" in shown
    rows = {row["key"]: row["samples"] for row in json.loads(report.read_text(encoding="utf-8"))["rows"]}
    assert rows["drain"]["headrace"][0] > 0
    assert rows["drain"]["raw"][0] > 0
    assert rows["p50"]["headrace"][0] < 60_000
    assert ET.fromstring(chart.read_text(encoding="utf-8")).tag.endswith("svg")
    assert list((tmp_path / "stores").iterdir()) == []


class _Nowhere(Files):
    @contextmanager
    def fresh(self) -> Iterator[str]:
        yield str(self._home / "no" / "such" / "folder" / "jobs.db")


def test_a_side_that_breaks_down_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    plan = replace(_tiny(), sides=("raw",), measures=("one", "drain"))
    figures = measure(plan, _Nowhere(tmp_path))
    assert figures.samples == {}
    assert [one.partition(" client")[0] for one in figures.broken] == ["one: raw SQL: raw", "drain: raw SQL: raw"]
    assert "broke down" in list(lines(plan, figures, {"machine": "a"}))


def test_an_unknown_side_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--only", "celery"])
    assert "choose from headrace, huey, huey-off, raw" in capsys.readouterr().err


def test_questions_to_postgres_are_refused_on_sqlite(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--states"])
    assert "--engine postgres" in capsys.readouterr().err
