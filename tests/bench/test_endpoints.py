"""The bench of endpoints: what it asks is answered, and its lines say whether a promise is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.endpoints import EndpointFigures, _request, _service, endpoints_lines
from bench.hub import run
from bench.hub_load import pump


def figures(accepted: float, waited: float) -> EndpointFigures:
    return EndpointFigures(plain=[1000.0], accepted=[accepted], plain_ms=[1.0], waited_ms=[waited], job_ms=[4.0])


def test_a_promise_that_is_kept_and_one_that_is_not_are_told_apart() -> None:
    assert "✗" not in "\n".join(endpoints_lines(figures(500, 9)))
    (missed,) = [line for line in endpoints_lines(figures(499, 9)) if "✗" in line]
    assert "0.50×" in missed
    (missed,) = [line for line in endpoints_lines(figures(500, 9.1)) if "✗" in line]
    assert "5.1 ms" in missed


@pytest.mark.timeout(120)
def test_both_routes_answer(tmp_path: Path) -> None:
    for route, more in (("plain", ""), ("job", ""), ("job", "Prefer: wait=60\r\n")):
        with _service(str(tmp_path / "jobs.db"), route, worker=True) as address:
            _, spans = run(pump(address, iter([_request(more)] * 4), 2))
            assert len(spans) == 4
