from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace import App, Context, Cron, Every, Retry, Tasks
from headrace.client.task import AsyncTask, PlainTask, StreamTask
from headrace.errors import ConfigError, DuplicateTask, NotBound, NotSupported


def test_bare_and_with_options_and_reused() -> None:
    app = App("memory://")
    images = app.task(queue="images", priority=10)

    @app.task
    async def one() -> None: ...

    @images
    def two() -> None: ...

    @images(priority=90, name="three", aliases=["drei"])
    def other() -> None: ...

    assert isinstance(one, AsyncTask)
    assert isinstance(two, PlainTask)
    assert (one.handler.policy.queue, two.handler.policy.queue, other.handler.policy.queue) == (
        "default",
        "images",
        "images",
    )
    assert (two.handler.policy.priority, other.handler.policy.priority) == (10, 90)
    assert set(app._handlers) == {"one", "two", "three", "drei"}
    assert app._handlers["drei"] is app._handlers["three"] is other.handler


def test_headraces_own_names_are_not_for_tasks() -> None:
    app = App("memory://")
    for options in ({"name": "headrace.deliver"}, {"name": "mine", "aliases": ["headrace.mine"]}):
        with pytest.raises(ConfigError, match=r"headrace keeps 'headrace\.' for its own"):
            app.task(**options)(lambda: None)


def test_a_second_task_of_a_name_is_refused_with_both_places() -> None:
    app = App("memory://")

    def same() -> None: ...

    app.task(same)

    def another() -> None: ...

    with pytest.raises(DuplicateTask) as caught:
        app.task(name="same")(another)
    assert str(caught.value).count("test_task_registry.py:") == 2
    with pytest.raises(DuplicateTask):
        app.task(aliases=["same"])(another)
    with pytest.raises(ConfigError, match="already"):
        app.task(app.task(name="x")(same))
    assert set(app._handlers) == {"same", "x"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": 500}, "priority"),
        ({"prio": 5}, "priority"),
        ({"dedup": "a:{nothing}"}, "nothing"),
        ({"connection": 1}, "connection"),
        ({"schedule": "0 2 * * *"}, "schedule"),
        ({"name": ""}, "name"),
        ({"aliases": "abc"}, "aliases"),
        ({"run_in": "process"}, "import"),
    ],
)
def test_bad_options_are_refused_at_decoration(options: dict[str, Any], words: str) -> None:
    def local(a: int = 1) -> None: ...

    with pytest.raises(ConfigError, match=words):
        App("memory://").task(**options)(local)


def test_bad_options_are_refused_before_there_is_a_function() -> None:
    with pytest.raises(ConfigError, match="priority"):
        App("memory://").task(priority=101)


def test_a_schedule_passes_no_arguments() -> None:
    app = App("memory://")

    @app.task(schedule=Every(minutes=5))
    def fine(ctx: Context, a: int = 1) -> None: ...

    assert fine.handler.policy.schedule == Every(minutes=5)
    with pytest.raises(ConfigError, match="a must be given"):

        @app.task(schedule=Cron("0 2 * * *"))
        def not_fine(a: int) -> None: ...


def test_a_generator_becomes_a_stream_task() -> None:
    async def lines() -> AsyncIterator[str]:
        yield ""

    def plain() -> Iterator[str]:
        yield ""

    assert isinstance(App("memory://").task(lines), StreamTask)
    with pytest.raises(NotSupported):
        App("memory://").task(plain)


async def test_a_collection_needs_an_app_to_submit() -> None:
    tasks = Tasks(prefix="billing.", defaults={"queue": "money"})

    @tasks.task
    def charge(ctx: Context, cents: int) -> str:
        return f"{cents} {ctx.attempt}"

    assert charge.name == "billing.charge"
    assert charge(5) == "5 1"
    with pytest.raises(NotBound, match=r"billing\.charge.*include"):
        await charge.submit(5)
    with pytest.raises(NotBound):
        charge.draft(5)

    app = App("memory://", defaults={"priority": 7, "queue": "other"})
    app.include(tasks)

    @tasks.task(retry=Retry(0))
    def refund(cents: int) -> None: ...

    assert set(app._handlers) == {"billing.charge", "billing.refund"}
    assert (charge.handler.policy.queue, charge.handler.policy.priority) == ("money", 7)
    assert refund.handler.policy.priority == 7
    async with app:
        job = (await charge.submit(5)).last
    assert job is not None
    assert (job.queue, job.priority) == ("money", 7)


def test_a_collection_belongs_to_one_app() -> None:
    tasks = Tasks()

    @tasks.task
    def one() -> None: ...

    app = App("memory://")
    app.include(tasks)
    app.include(tasks)
    with pytest.raises(ConfigError, match="another App"):
        App("memory://").include(tasks)


def test_an_included_name_may_be_taken() -> None:
    app, tasks = App("memory://"), Tasks()

    @app.task
    def same() -> None: ...

    @tasks.task(name="same")
    def other() -> None: ...

    with pytest.raises(DuplicateTask):
        app.include(tasks)
    with pytest.raises(NotBound):
        _ = tasks.app


@pytest.mark.parametrize("defaults", [{"dedup": "x"}, {"connection": 1}, {"priority": "x"}, {"nonsense": 1}])
def test_defaults_are_checked(defaults: Any) -> None:
    with pytest.raises(ConfigError):
        App(defaults=defaults)
    with pytest.raises(ConfigError):
        Tasks(defaults=defaults)


def test_a_task_looks_like_its_function() -> None:
    @App("memory://").task
    async def documented(a: int) -> int:
        """Says what it does."""
        return a

    assert (documented.__name__, documented.__doc__) == ("documented", "Says what it does.")
    assert documented.fn(3).close() is None
    assert asyncio.run(documented(3)) == 3


def test_a_class_is_no_task() -> None:
    with pytest.raises(ConfigError, match="made of a function"):
        App("memory://").task(type("Order", (), {}))
