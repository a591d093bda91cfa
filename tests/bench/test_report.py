from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import docs
from bench import plan as plans
from bench.chart import svg
from bench.churn import Sizes, churn_lines, trend
from bench.figures import TARGETS, Figures, targets
from bench.flat import Case, flat_lines
from bench.idle import idle_lines
from bench.plan import Plan
from bench.report import document, lines, markdown, page, tables, text


def _plan(*, many: bool) -> Plan:
    plan = plans.quick("postgres")
    return plan if many else replace(plan, sides=("headrace", "pgqueuer", "raw"))


def _figures() -> Figures:
    figures = Figures()
    for rate in (40_000.0, 36_000.0):
        figures.add("drain", "headrace", rate)
    figures.add("drain", "pgqueuer", 20_000.0)
    figures.add("drain", "graphile-worker", 50_000.0)
    figures.add("drain", "raw", 80_000.0)
    figures.add("p50", "headrace", 2.0)
    figures.add("p50", "pgqueuer", 3.0)
    figures.add("empty", "headrace", 30_000.0)
    figures.add("empty", "pgqueuer", 25_000.0)
    return figures


def test_few_sides_are_columns_with_ratios_beside_them() -> None:
    (table,) = tables(_plan(many=False), _figures())
    assert table[0] == ["best (worst) of 1", "headrace", "pgqueuer", "raw SQL", "vs pgqueuer", "vs raw"]
    drain = ["drain, one worker process, jobs/s", "40,000 (36,000)", "20,000", "80,000", "2.00×", "0.50×"]
    assert table[1] == drain
    assert table[2] == ["latency p50 at 50 jobs/s, ms", "2.0", "3.0", "–", "1.50×", "–"]


def test_many_sides_are_lines_and_the_ratios_a_table_of_their_own() -> None:
    rates, ratios = tables(_plan(many=True), _figures())
    assert rates[0] == ["best (worst) of 1", "drain, jobs/s", "p50, ms", "analyzed empty, jobs/s"]
    assert rates[1] == ["headrace", "40,000 (36,000)", "2.0", "30,000"]
    assert ["saq", "–", "–", "–"] in rates
    assert ratios[0] == ["headrace against", "drain", "p50", "analyzed empty"]
    assert ["graphile-worker", "0.80×", "–", "–"] in ratios


def test_a_table_as_text_and_as_markdown() -> None:
    table = [["what", "a"], ["one by one", "1,000"]]
    assert list(text(table)) == ["what            a", "──────────  ─────", "one by one  1,000"]
    assert list(markdown(table)) == ["| what | a |", "|---|---:|", "| one by one | 1,000 |"]


def test_targets_are_those_of_the_engine_and_bare_sql_is_no_peer() -> None:
    said = list(lines(_plan(many=False), _figures(), {"machine": "a"}))
    (pgqueuer,) = [line for line in said if "drain, against pgqueuer" in line]
    (graphile,) = [line for line in said if "drain, against graphile-worker" in line]
    (latency,) = [line for line in said if "p50, against the best" in line]
    (state,) = [line for line in said if "analyzed empty, against pgqueuer" in line]
    assert [line.split()[0] for line in (pgqueuer, graphile, latency, state)] == ["✓", "✗", "✓", "✗"]
    met = {one["title"]: one["met"] for one in document(_plan(many=False), _figures(), {})["targets"]}
    assert met["bulk submit, against the best"] is None


def test_targets_of_what_was_not_asked_for_are_left_out() -> None:
    states = Figures()
    states.add("empty", "headrace", 1.0)
    assert {"never", "analyzed"} == {target.title.split()[1] for target in targets("postgres", states)}
    figures = Figures()
    figures.add("drain", "headrace", 1.0)
    assert targets("postgres", figures) == TARGETS["postgres"]


def test_the_page_has_the_tables_then_the_facts() -> None:
    said = "\n".join(page(_plan(many=True), _figures(), {"server": "PostgreSQL 18"}))
    assert said.startswith("| best (worst) of 1 |")
    assert "```text\nserver  PostgreSQL 18\n\ntargets" in said


def test_a_chart_has_a_bar_for_each_side_that_was_measured() -> None:
    drawn = svg(_plan(many=True), _figures())
    assert drawn.count("<rect") == 6  # four drains, two in a state; latencies are no rates
    assert "graphile-worker" in drawn


def test_a_section_of_a_page_is_written_anew_and_the_rest_is_left(tmp_path: Path) -> None:
    there = tmp_path / "page.md"
    there.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n", encoding="utf-8")
    for _ in range(2):
        docs.write(there, "x", ["new"])
    assert there.read_text(encoding="utf-8") == "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n"
    with pytest.raises(ValueError, match="no section 'y'"):
        docs.write(there, "y", [])


def test_the_page_has_every_section_that_a_run_may_write() -> None:
    whole = docs.PAGE.read_text(encoding="utf-8")
    both = ["flat", "limits", "recovery", "find", "hub", "endpoints", "dashboard", "remote"]
    postgres = [f"postgres-{mode}" for mode in ["states", "churn", "idle", *both]]
    for section in ["sqlite", *(f"sqlite-{mode}" for mode in both), "postgres", *postgres]:
        assert whole.count(f"<!-- {section}: begin -->") == whole.count(f"<!-- {section}: end -->") == 1


def test_flat_is_judged_by_the_best_drains() -> None:
    rates = {Case("empty", bound=1.0): [100.0, 90.0], Case("a"): [80.0, 92.0], Case("b", bound=0.5): [49.0]}
    said = list(flat_lines(rates))
    assert [line.split()[0] for line in said[1:]] == ["✓", "✓", "✗"]
    assert "0.92× of empty (≥ 0.90)" in said[2]


def test_a_trend_shows_in_the_second_half() -> None:
    assert trend([10, 20, 20, 20, 20]) == 1.0
    assert trend([10, 20, 30, 40, 50]) > 1.5
    sizes = [Sizes(n * 100_000, 30_000.0, 100_000, 1_000_000, 2_000_000) for n in range(1, 11)]
    assert list(churn_lines(sizes))[-1] == "  second half against first: tables 1.00×, indexes 1.00×"


def test_an_idle_worker_is_judged_by_its_statements() -> None:
    said = list(idle_lines("statements", {"headrace": 60.0, "saq": 20.0}))
    assert said[0] == "statements a minute of one idle worker"
    assert [line.split()[0] for line in said[1:]] == ["✗", "saq"]
