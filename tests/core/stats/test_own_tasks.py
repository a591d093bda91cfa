"""Which tasks and workers are headrace's own."""

from __future__ import annotations

import pytest

from headrace.core.stats.own_tasks import is_own, runs_only_own
from headrace.core.webhooks.delivery import QUEUE, TASK


@pytest.mark.parametrize("task", ["mail", "headrace", "Headrace.deliver", "shop.headrace.deliver", "", "headrac.e"])
def test_a_users_task_is_not(task: str) -> None:
    assert not is_own(task)


def test_a_delivery_is_by_its_task() -> None:
    assert is_own(TASK)
    assert QUEUE != TASK


def test_a_worker_is_if_all_of_its_tasks_are() -> None:
    assert runs_only_own([TASK])
    assert not runs_only_own([TASK, "mail"])
    assert not runs_only_own([])  # as one that runs services
