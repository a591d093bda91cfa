"""What clients are told of errors that are hidden."""

from __future__ import annotations

from uuid import UUID

import msgspec

from headrace.core.attempt import ErrorInfo
from headrace.core.hidden_errors import hidden_error, hidden_message, hidden_payload

ID = UUID(int=7)
BROKEN = ErrorInfo("OperationalError", "at db.internal", "Traceback …", {"causes": [{"message": "at db.internal"}]})


def test_an_error_becomes_a_reference() -> None:
    told = hidden_error(BROKEN, ID, 3)
    assert (told.type, told.traceback, told.details) == ("Error", None, {"reference": f"{ID}/3"})
    assert f"{ID}/3" in told.message
    assert "internal" not in str(told)


def test_what_blames_the_request_is_meant_for_whoever_asked() -> None:
    details = {"status": 404, "data": "no such report", "causes": [{"message": "at db.internal"}]}
    error = ErrorInfo("HTTPException", "404: no such report", "Traceback …", details)
    meant = hidden_error(error, ID, 1, meant=True)
    assert (meant.message, meant.traceback) == ("404: no such report", None)
    assert meant.details == {"status": 404, "data": "no such report"}
    assert "report" not in str(hidden_error(error, ID, 1)), "a hub cannot know for whom it was written"
    down = hidden_error(ErrorInfo("Down", "at db.internal", None, {"status": 502}), ID, 1, meant=True)
    assert down.details == {"status": 502, "reference": f"{ID}/1"}
    assert "internal" not in str(down)


def test_messages_of_webhooks_say_where_and_not_what() -> None:
    data = {"job_id": str(ID), "attempt": 2, "error": {"type": "OperationalError", "message": "at db.internal"}}
    told = hidden_message({"type": "job.failed", "data": data})
    assert (told["data"]["error"]["type"], told["data"]["job_id"]) == ("Error", str(ID))
    assert f"{ID}/2" in told["data"]["error"]["message"]
    for other in ({}, None, {"data": None}, {"data": {"error": None}}, {"type": "webhook.test", "data": {"a": 1}}):
        assert hidden_message(other) == other
    payload = msgspec.json.encode({"webhook": "w", "message": {"data": data}})
    assert b"internal" not in hidden_payload(payload)
    assert msgspec.json.decode(hidden_payload(payload))["webhook"] == "w"
