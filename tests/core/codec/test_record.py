"""Records as other programs read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from headrace.client.api.limits import LimitInfo
from headrace.client.api.queues import QueueInfo
from headrace.client.api.stats import Stats
from headrace.client.api.tasks import TaskInfo
from headrace.core.attempt import Attempt, ErrorInfo, Event, History, Progress
from headrace.core.batch import Batch
from headrace.core.codec.record import Record
from headrace.core.entry import LogLine
from headrace.core.explain.explanation import Explanation, Fact
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.query import Ledger, Page
from headrace.core.stats.metrics import Metrics, WindowMetrics
from headrace.core.status import Outcome, Status
from headrace.engine import Beat, Check, WorkerInfo, WorkerRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = UUID(int=7)


def job() -> Job:
    return submit(ID, Spec(task="add", created_at=NOW, tags=("t",), metadata={"n": 1}), '{"a":1}', NOW)


WORKER = WorkerRow(
    WorkerInfo(id=ID, host="mill", pid=1, started_at=NOW, concurrency=2, tasks=("add",)), Beat(busy=1), 3, NOW, True, 1
)
RECORDS: list[Record] = [
    job(),
    Progress(40, "loading"),
    ErrorInfo("ValueError", "no", details={"n": [1]}),
    History((Attempt(number=1, epoch=1, outcome=Outcome.FAILED, finished_at=NOW),), (Event("cancel", NOW),)),
    Page((job(), job()), "7"),
    Page((Batch(id=ID, created_at=NOW, touched_at=NOW),)),
    Ledger(1, 1, 0, 0),
    Stats(
        {Status.QUEUED: 1}, Ledger(1, 1, 0, 0), 1, NOW, Metrics(queue_depth=1, windows={"5m": WindowMetrics(jobs=1)})
    ),
    QueueInfo("mail", 0, False, {Status.QUEUED: 1}, NOW),
    TaskInfo("add", "default", 50, 1800.0, {"type": "object"}, True),
    WORKER,
    Check("workers", "ok", "1 alive"),
    LimitInfo("add", 1, None, ("stripe",), False),
    LogLine(NOW, 1, 1, "INFO", "shop", "said"),
    Fact("queued", "It is queued.", {"position": 1}),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_json_values_however_it_is_read(record: Record) -> None:
    values = record.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert dict(record) == values
    kind = TypeAdapter(type(record))
    assert kind.validate_python(record) is record
    assert kind.dump_python(record, mode="json") == values
    assert json.loads(kind.dump_json(record)) == values
    for mode in ("serialization", "validation"):
        schema = kind.json_schema(mode=mode)
        assert values.keys() <= schema["properties"].keys()
        assert "$ref" not in json.dumps(schema)


def test_the_fields_of_a_job_are_those_of_the_lifecycle_page() -> None:
    record = job()
    assert record["status"] == "queued"
    assert (record["id"], record["payload"], record["created_at"]) == (str(ID), {"a": 1}, "2026-01-01T00:00:00Z")
    assert record["after_when"] == "succeeded"
    for inner in ("spec", "payload_text", "to_dict", "nonsense"):
        with pytest.raises(KeyError, match=inner):
            record[inner]
    properties = TypeAdapter(Job).json_schema()["properties"]
    assert list(properties) == list(record.to_dict())
    assert properties["status"]["enum"] == sorted(Status)


def test_a_page_tells_its_items_by_their_own_rule() -> None:
    page = Page((job(),), "7")
    assert page.to_dict() == {"items": [job().to_dict()], "cursor": "7"}
    pages: TypeAdapter[Any] = TypeAdapter(Page[Job])
    assert pages.dump_python(page, mode="json") == page.to_dict()
    assert list(pages.json_schema()["properties"]["items"]["items"]["properties"]) == list(job().to_dict())


def test_a_record_is_no_list() -> None:
    with pytest.raises(TypeError, match="a Page is read by the names of its fields, not by 0"):
        list(Page((job(),)))  # type: ignore[call-overload]


class Answer(BaseModel):
    job: Job | None
    progress: Progress | None = None
    others: list[Job] = []


def test_models_may_have_records_in_them() -> None:
    answer = Answer(job=job(), progress=Progress(40), others=[job()])
    told = answer.model_dump(mode="json")
    assert told == {"job": job().to_dict(), "progress": {"percent": 40.0}, "others": [job().to_dict()]}
    assert Answer(job=None).model_dump() == {"job": None, "progress": None, "others": []}
    with pytest.raises(ValidationError, match="a Job of headrace is expected"):
        Answer.model_validate({"job": job().to_dict()})


def test_an_explanation_is_text() -> None:
    told = Explanation([Fact("queued", "It is queued.")])
    kind = TypeAdapter(Explanation)
    assert (kind.dump_python(told), kind.json_schema()) == ("It is queued.", {"type": "string"})
