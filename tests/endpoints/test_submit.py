"""From a request to its answer: what it says of waiting, and when to ask again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace import App, Retry
from headrace.endpoints.request import EndpointRequest, values_of
from headrace.endpoints.responses import EndpointResponse
from headrace.endpoints.submit import Submitting
from headrace.http.positions import Positions
from tests.endpoints.guessing import Guessing, guessed


class Service:
    """A route whose answers are looked at."""

    def __init__(self, app: App) -> None:
        self.app, self.submitting = app, Submitting(app)

        @app.task(retry=Retry(0))
        async def work(fails: bool = False) -> int:
            if fails:
                raise ValueError("no")
            return 1

        self.work = work

    async def ask(self, *headers: tuple[str, str], **arguments: Any) -> EndpointResponse:
        """The answer to a request of ann's."""
        asked = EndpointRequest(headers=values_of(headers), identity="ann")
        answer = await self.submitting.answer(self.work, lambda: arguments, asked)
        assert isinstance(answer, EndpointResponse)
        return answer


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service(App("memory://"))
    async with made.app:
        yield made


async def test_every_answer_says_that_another_preference_is_answered_otherwise(service: Service) -> None:
    """So that no cache gives one client what another one has waited for, or has not."""
    at_once = [await service.ask(), await service.ask(("prefer", "respond-async"))]
    assert [one.status for one in at_once] == [202, 202]
    async with service.app.worker():
        wait = ("prefer", "wait=30")
        waited = [await service.ask(wait), await service.ask(wait, fails=True)]
    assert waited[0].status == 200
    assert waited[1].status >= 400
    assert [one.headers.get("Vary") for one in (*at_once, *waited)] == ["Prefer"] * 4


async def test_a_repeat_is_told_when_its_own_job_may_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what new jobs of its kind are told, for whom somebody else's place was looked up a moment ago."""
    monkeypatch.setattr(Positions, "places", guessed)
    app = Guessing("memory://")
    service, key = Service(app), ("idempotency-key", "k")
    async with app:

        async def told(*headers: tuple[str, str]) -> str:
            answer = await service.ask(*headers)
            assert answer.status == 202
            return answer.headers["Retry-After"]

        assert await told(key) == "8"
        app.begins = 50
        assert await told() == "8", "new ones are told the same for a moment"
        assert await told(key) == "53"
        assert await app.jobs.count() == 2
        app.begins = 20
        service.submitting = Submitting(app, wait=0.01)
        assert await told() == "23"
        app.begins = 30
        assert await told() == "33", "who has waited is told of its own job, too"
