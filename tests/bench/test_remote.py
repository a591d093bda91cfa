"""The bench of the remote engine: its lines say whether the promise is kept."""

from __future__ import annotations

from bench.remote import RemoteFigures, Way, remote_lines


def way(drain: float) -> Way:
    return Way(drain=[drain], worker_us=[50.0], hub_us=[0.0], bulk=[9000.0], p50_ms=[5.0], p99_ms=[9.0])


def test_a_promise_that_is_kept_and_one_that_is_not_are_told_apart() -> None:
    assert "✗" not in "\n".join(remote_lines(RemoteFigures(way(1000), way(400))))
    (missed,) = [line for line in remote_lines(RemoteFigures(way(1000), way(390))) if "✗" in line]
    assert "0.39×" in missed
