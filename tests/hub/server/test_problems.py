"""Where only certain words may stand, the answer to another one names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import Status
from headrace.hub.operations import OPERATIONS
from headrace.hub.server.problems import choices
from tests.hub.serving import serving


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "words"),
    [
        ("GET", "/api/jobs?status=failed,completed", None, "status[0]", [*Status, "in_progress"]),
        ("POST", "/api/jobs/act", {"act": "explode", "filter": {"task": "a"}}, "act", ["cancel", "retry", "postpone"]),
        ("POST", "/api/jobs/act", {"act": "cancel", "filter": {"status": ["x"]}}, "filter.status[0]", ["queued"]),
        ("POST", "/api/webhooks", {"url": "https://a.example", "events": ["x"]}, "events[0]", ["ended", "progress"]),
        ("POST", "/api/jobs", {"task": "a", "on_duplicate": "x"}, "on_duplicate", ["return", "replace"]),
    ],
)
async def test_a_wrong_word_is_answered_with_the_right_ones(
    method: str, path: str, body: Any, field: str, words: list[str], tmp_path: Path
) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        answer = await hub.client.request(method, path, json=body)
    assert answer.status_code == 400, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["field"] == field
    named = fault["message"].partition(": it is one of ")[2].split(", ")
    assert set(words) <= set(named)
    assert fault["message"] in answer.json()["detail"]


async def test_a_whole_number_with_a_point_is_answered_with_how_it_is_written(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        answer = await hub.client.post("/api/jobs", json={"task": "a", "priority": 1.0})
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["field"]) == (400, "priority")
    assert "without a point, as in 5" in fault["message"]
    assert fault["message"] in answer.json()["detail"]


def test_a_place_that_asks_for_no_word_has_none() -> None:
    body = next(one.body for one in OPERATIONS if one.name == "submit_job")
    assert choices(body, "$.delay") == choices(body, "$.nowhere[0].else") == choices(body, "$") == ()


def test_every_document_that_is_asked_for_can_be_looked_into() -> None:
    kinds = [kind for one in OPERATIONS for kind in (one.body, one.query) if kind is not None]
    assert len(kinds) > 20
    for kind in kinds:
        assert choices(kind, "$.status[0]") is not None
