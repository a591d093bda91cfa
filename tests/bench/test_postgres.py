"""The comparison on PostgreSQL runs as it stands: a real server, real processes, small numbers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as program
from bench import docs, programs
from bench import plan as plans
from bench.plan import SIDES, Plan
from tests.support.servers.postgres import shared

pytestmark = pytest.mark.timeout(240)


def _tiny() -> Plan:
    few = dict.fromkeys(SIDES["postgres"], 60)
    plan = plans.quick("postgres")
    return replace(plan, one=few, concurrent=few, bulk=few, drain=few, processes=(2,), paced=3, per_second=500.0)


def test_headrace_a_peer_and_the_bare_sql_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = _tiny()
    monkeypatch.setattr(plans, "quick", lambda engine: tiny)
    page, report = tmp_path / "page.md", tmp_path / "bench.json"
    page.write_text("before\n<!-- postgres: begin -->\nold\n<!-- postgres: end -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(docs, "PAGE", page)
    monkeypatch.setattr(docs, "IMAGES", tmp_path)
    words = ["--engine", "postgres", "--quick", "--only", "headrace,pgqueuer,raw", "--measure", "drain,latency"]
    assert program.main([*words, "--dir", str(tmp_path / "stores"), "--json", str(report), "--docs"]) == 0
    shown = capsys.readouterr().out
    assert "fsync=on, synchronous_commit=on" in shown
    assert "drain, against pgqueuer" in shown
    rows = {row["key"]: row["samples"] for row in json.loads(report.read_text(encoding="utf-8"))["rows"]}
    assert {side: rate > 0 for side, (rate,) in rows["drain2"].items()} == {
        "headrace": True,
        "pgqueuer": True,
        "raw": True,
    }
    assert set(rows["p50"]) == {"headrace", "pgqueuer"}
    written = page.read_text(encoding="utf-8")
    assert written.startswith("before\n<!-- postgres: begin -->\nMeasured on ")
    assert "PostgreSQL" in written
    assert "old" not in written
    assert written.endswith("<!-- postgres: end -->\nafter\n")
    assert ET.fromstring((tmp_path / "benchmarks-postgres.svg").read_text(encoding="utf-8")).tag.endswith("svg")
    assert list((tmp_path / "stores").iterdir()) == []


def test_a_worker_warm_on_empty_tables_drains_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = _tiny()
    monkeypatch.setattr(plans, "quick", lambda engine: tiny)
    report = tmp_path / "bench.json"
    words = ["--engine", "postgres", "--quick", "--states", "--only", "headrace", "--measure", "empty"]
    assert program.main([*words, "--dsn", shared().dsn, "--dir", str(tmp_path), "--json", str(report)]) == 0
    assert "a given server" in capsys.readouterr().out
    (row,) = json.loads(report.read_text(encoding="utf-8"))["rows"]
    assert row["key"] == "empty"
    assert row["samples"]["headrace"][0] > 0


def test_who_cannot_run_here_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "NODE_SINCE", (999, 0))
    programs._node.cache_clear()
    plan, facts = program._present(replace(_tiny(), sides=("graphile-worker", "pg-boss")), "nowhere")
    assert plan.sides == ()
    assert facts == dict.fromkeys(["graphile-worker", "pg-boss"], "not run: no Node 999.0 or newer here")
