"""Unreadable: what claims make of a rule that this version does not understand."""

from __future__ import annotations

import pytest

from headrace.conformance.lab import Lab, Part

__all__ = ["Unreadable"]

_WRONG = {
    "queue:mail": '{"max_concurrency":{"normal":5,"night":50}}',
    "limit:send": '{"code":{"max_concurrency":"many"}}',
    "rate:api": '{"limit":5,"per":60.0,"kind":"leaky","keyed":false}',
}
_RIGHT = {
    "queue:mail": '{"max_concurrency":5}',
    "limit:send": '{"code":{"max_concurrency":5}}',
    "rate:api": '{"limit":5,"per":60.0,"kind":"fixed","keyed":false}',
}


async def _claimed(lab: Lab) -> set[str]:
    return {f"{job.task} in {job.queue}" for job in await lab.claim(await lab.worker(), 100)}


def _touches(key: str, job: str) -> bool:
    task, _, queue = job.split()
    return {"queue:mail": queue == "mail", "limit:send": task == "send"}.get(key, task == "call" or queue == "paced")


class Unreadable(Part):
    """A rule that cannot be read keeps what it names from everybody, and nothing else."""

    @pytest.mark.parametrize("concurrency_key", [None, "anna"])
    @pytest.mark.parametrize("key", list(_WRONG))
    async def test_nothing_is_given_of_what_it_names_and_all_of_the_rest(
        self, lab: Lab, key: str, concurrency_key: str | None
    ) -> None:
        await lab.engine.documents.put_setting("queue:paced", '{"rates":["api"]}', 0)
        await lab.engine.documents.put_setting("limit:call", '{"rates":["api"]}', 0)
        jobs = {f"{task} in {queue}" for task in ("send", "sort", "call") for queue in ("mail", "post", "paced")}
        for job in sorted(jobs):
            task, _, queue = job.split()
            await lab.put(task, queue=queue, concurrency_key=concurrency_key)
        touched = {job for job in jobs if _touches(key, job)}
        assert touched
        wrong = await lab.engine.documents.put_setting(key, _WRONG[key], 0)
        assert wrong is not None
        assert await _claimed(lab) == jobs - touched
        assert await _claimed(lab) == set()
        assert await lab.engine.documents.put_setting(key, _RIGHT[key], wrong.rev) is not None
        assert await _claimed(lab) == touched

    @pytest.mark.parametrize("document", ["", "7", "[]", "null", "{", '{"code":7}'])
    async def test_it_may_be_anything_and_is_gone_when_it_is_deleted(self, lab: Lab, document: str) -> None:
        await lab.put("send", queue="mail")
        await lab.put("sort", queue="post")
        wrong = await lab.engine.documents.put_setting("queue:mail", document, 0)
        assert wrong is not None
        assert await _claimed(lab) == {"sort in post"}
        await lab.engine.documents.put_setting("queue:mail", None, wrong.rev)
        assert await _claimed(lab) == {"send in mail"}
