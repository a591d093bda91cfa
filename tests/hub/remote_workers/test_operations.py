"""What is forgiven in a message of a worker: its own name in it, and fields that it does not have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.http.problems import Problem
from headrace.hub.remote_workers.operations import WORK
from tests.hub.live.listening import connected
from tests.hub.remote_workers.working import CAN, said, submitted, work
from tests.hub.serving import Served, serving

pytestmark = pytest.mark.filterwarnings("ignore::headrace.client.api.tasks.UnregisteredTask")

NAMED = {message.name: message for message in WORK}


@pytest.fixture
async def hub() -> AsyncIterator[Served]:
    async with serving("memory://") as hub:
        yield hub


@pytest.mark.parametrize("message", WORK, ids=lambda message: message.name)
def test_each_may_carry_its_own_name_and_no_other(message: Any) -> None:
    example = {**message.example, "type": message.name}
    assert message.read(example).given.type == message.name
    assert message.read(example).warnings == ()
    with pytest.raises(Problem, match="type") as refused:
        message.read({**example, "type": "another"})
    assert refused.value.status == 400


def test_what_it_does_not_have_is_ignored_and_named() -> None:
    read = NAMED["complete_job"].read
    received = read({"lease": "x", "reslt": {"a": 1}, "host": "gpu-1", "result": 2})
    assert received.given.result == 2
    assert received.warnings == (
        "'host' is no field of complete_job, and was ignored",
        "'reslt' is no field of complete_job, and was ignored; did you mean 'result'?",
    )
    lines = [{"message": "a", "at": 1}, {"message": "b", "at": 2}]
    assert NAMED["job_log"].read({"first": 1, "lines": lines}).warnings == (
        "'at' is no field of a line, and was ignored",
    )
    many = read({f"field{n}" + "x" * 1000: n for n in range(50)}).warnings
    assert len(many) == 10
    assert max(map(len, many)) < 200


def test_a_job_that_it_submits_is_still_read_strictly() -> None:
    for child in (
        {"task": "a", "colour": "red"},
        {"task": "a", "requirements": {"service_type": "b", "gpu": 1}},
    ):
        with pytest.raises(Problem, match="unknown field"):
            NAMED["submit_child"].read({"lease": "x", "child": child})


async def test_the_warning_is_in_the_answer_over_both_ways(hub: Served) -> None:
    warned = ["'region' is no field of register_worker, and was ignored"]
    me = {"worker_id": "w", "capabilities": CAN}
    answer = await work(hub.client, "register_worker", type="register_worker", **me, region="eu")
    assert answer["warnings"] == warned
    assert "warnings" not in await work(hub.client, "register_worker", **me)
    assert (await said(hub.client, "register_worker", type="claim_job", **me)).status_code == 400
    async with connected(hub) as socket:
        assert (await socket.ask("register_worker", **me, region="eu"))["warnings"] == warned
        await submitted(hub.client)
        given = await socket.ask("claim_job", worker_id="w", wait=20, gpu_count=3)
        assert (given["type"], len(given["warnings"])) == ("job_assigned", 1)
