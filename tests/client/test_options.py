from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any, cast

import pytest

from headrace.app import App
from headrace.client.api.filters import Filters
from headrace.client.options import _CHECKS, JobOptions, check_options, check_templates, fill_templates, merged
from headrace.core.lifecycle.retry import Retry
from headrace.errors import ConfigError, InvalidPayload

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def test_options_are_brought_into_one_form() -> None:
    checked = check_options(
        {
            "timeout": timedelta(minutes=1),
            "delay": 5,
            "tags": ["a", "b", "a"],
            "metadata": {"a": [1]},
            "not_after": MOMENT.astimezone(timezone(timedelta(hours=2))),
        }
    )
    assert checked["timeout"] == 60.0
    assert checked["tags"] == ("a", "b")
    assert checked["not_after"].tzinfo is UTC
    assert check_options({"timeout": None, "dedup": None, "not_before": None, "delay": 1})["timeout"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": 5}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"priority": 101}, "priority.*0 to 100"),
        ({"priority": -1}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 50.0}, "priority"),
        ({"priority": "urgent"}, "priority.*system, high, normal, low"),
        ({"retry": 3}, "Retry"),
        ({"timeout": 0}, "timeout.*None means"),
        ({"heartbeat": 0.05}, "heartbeat must be 0.1 s or longer; None means"),
        ({"remote_heartbeat": "5s"}, "remote_heartbeat"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "5s"}, "timeout"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": None}, "delay"),
        ({"delay": 1, "not_before": MOMENT}, "delay and not_before"),
        ({"not_before": datetime(2026, 1, 1)}, "not_before.*aware"),  # noqa: DTZ001
        ({"not_after": "tomorrow"}, "not_after"),
        ({"dedup": ""}, "dedup"),
        ({"on_duplicate": "ignore"}, "on_duplicate"),
        ({"tags": "abc"}, "tags"),
        ({"tags": [1]}, "tags"),
        ({"metadata": [1]}, "metadata"),
        ({"metadata": {"a": {"b": {1}}}}, r"metadata\.a\.b"),
        ({"metadata": {"a": float("inf")}}, "metadata"),
        ({"requires": "gpu"}, "requires"),
        ({"requires": {"region": {"in": "eu"}}}, "requires: region: 'in' takes a list of what will do, not 'eu'"),
        ({"requires": {"headrace.customer": {"is": "acme"}}}, "requires.*customer="),
        ({"request_key": ""}, "request_key"),
        ({"customer": 5}, "customer"),
        ({"prority": 5}, "did you mean 'priority'"),
        ({"xyz": 5}, "known are"),
        ({"rates": ["api"]}, r"one of the task: @app.task\(rates=…\)"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_options(options)


def test_of_a_task_an_option_of_tasks_is_suggested() -> None:
    with pytest.raises(ConfigError, match="unknown option 'rate'; did you mean 'rates'"):
        App("memory://").task(rate="api")  # type: ignore[call-overload]


def test_every_option_has_a_check() -> None:
    for name in JobOptions.__annotations__:
        if name != "connection":
            with pytest.raises(ConfigError, match=name):
                check_options({name: object()})


def test_later_options_win() -> None:
    first = check_options({"priority": 1, "delay": 5, "retry": Retry(5, initial=9)})
    second = check_options({"not_before": MOMENT, "retry": Retry(1)})
    assert merged(first, second) == {"priority": 1, "not_before": MOMENT, "retry": Retry(1)}
    assert merged(second, first)["delay"] == 5


def test_a_literal_key_replaces_a_template() -> None:
    template = check_options({"dedup": "a:{b}"}, template=True)
    assert merged(template, check_options({"dedup": "literal {b}"})) == {"dedup": "literal {b}"}
    assert merged(template, check_options({"dedup": None})) == {"dedup": None}


def test_the_end_must_follow_the_beginning() -> None:
    with pytest.raises(ConfigError, match=r"not_after.*later"):
        merged({"not_before": MOMENT}, {"not_after": MOMENT})


def test_templates_are_filled_from_arguments() -> None:
    options = {"dedup_template": "report:{year:04d}:{{x}}"}
    check_templates(options, ["year"])
    assert fill_templates(options, lambda: {"year": 26})["dedup"] == "report:0026:{x}"


@pytest.mark.parametrize("template", ["{month}", "{", "{year.month}", "{0}", "{}"])
def test_templates_name_parameters(template: str) -> None:
    with pytest.raises(ConfigError, match="dedup"):
        check_templates({"dedup_template": template}, ["year"])


@pytest.mark.parametrize("arguments", [{}, {"year": "text"}])
def test_a_template_that_cannot_be_filled_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="template"):
        fill_templates({"dedup_template": "{year:d}"}, lambda: arguments)


def test_what_a_request_said_is_brought_into_one_form() -> None:
    checked = check_options({"headers": {"a": "1", "b": ["2", "3"]}, "query": {"q": ("x",)}, "route": {"year": 2026}})
    assert checked == {"headers": {"a": ("1",), "b": ("2", "3")}, "query": (("q", "x"),), "route": {"year": 2026}}
    pairs = [("a", "1"), ["b", "2"], ("a", "3")]
    assert check_options({"query": pairs}) == {"query": (("a", "1"), ("b", "2"), ("a", "3"))}


@pytest.mark.parametrize(
    "wrong", [{"headers": ["a"]}, {"query": {"a": 1}}, {"query": {"a": [1]}}, {"headers": {1: "a"}}]
)
def test_what_a_request_said_is_text(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a mapping of names to a text or a list of texts"):
        check_options(wrong)


@pytest.mark.parametrize("wrong", ["ab", [("a",)], [("a", 1)], [3], 3])
def test_pairs_are_two_texts(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="query must be pairs of a name and a text"):
        check_options({"query": wrong})


def test_what_a_request_said_is_bounded() -> None:
    with pytest.raises(ConfigError, match="query"):
        check_options({"query": {"q": "x" * 20_000}})


@pytest.mark.parametrize("option", ["headers", "route", "query"])
def test_what_a_request_said_is_of_one_submit(option: str) -> None:
    app = App("memory://")
    with pytest.raises(ConfigError, match="belongs to one submit"):
        app.task(**{option: {"a": "1"}})(lambda_named)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="cannot be a default"):
        App("memory://", defaults={option: {"a": "1"}})  # type: ignore[arg-type]


def lambda_named() -> None: ...


async def test_a_draft_may_have_what_a_request_said() -> None:
    app = App("memory://")

    @app.task(on_duplicate="replace", dedup="d")
    async def work(n: int) -> None: ...

    async with app:
        draft = work.draft(1)._with_checked({"query": (("q", "1"), ("q", "2")), "customer": "ann"})
        job = await app.jobs.get((await draft.submit()).id)
        assert (job.query, job.customer, job.payload) == ((("q", "1"), ("q", "2")), "ann", {"n": 1})
        with pytest.raises(ConfigError, match="exclude each other"):
            work.draft(1)._with_checked({"request_key": "k"})


def _deep(kind: type) -> Any:
    value: Any = None
    for _ in range(100_000):
        value = {"a": value} if kind is dict else [value]
    return value


def _own(kind: type) -> Any:
    value: Any = kind()
    if kind is dict:
        value["a"] = value
    else:
        value.append(value)
    return value


class _Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("it cannot be shown")


class _Hostile:
    """What fails at whatever it is asked."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RecursionError("it cannot be shown")

    def __eq__(self, other: object) -> bool:
        raise RecursionError("it cannot be compared")

    def __getattr__(self, name: str) -> Any:
        raise RecursionError("it has no end")


FILTERS = [name for name in Filters.__annotations__ if name != "suspect"]
MONSTERS = {
    "a deep dict": lambda: _deep(dict),
    "a deep list": lambda: _deep(list),
    "a deep list in a dict": lambda: {"a": _deep(list)},
    "its own dict": lambda: _own(dict),
    "its own list": lambda: _own(list),
    "a list of its own in a dict": lambda: {"a": _own(list)},
    "what cannot be shown": _Unshown,
    "what fails at everything": _Hostile,
}


@pytest.mark.parametrize("monster", MONSTERS)
@pytest.mark.parametrize("option", [one for one in _CHECKS if one != "connection"])
def test_no_value_of_an_option_makes_its_error_fail(option: str, monster: str) -> None:
    value = MONSTERS[monster]()
    for given in (value, [value], {"a": value}):
        with pytest.raises(ConfigError) as told:
            check_options({option: given})
        assert len(str(told.value)) < 1000


@pytest.mark.parametrize("monster", MONSTERS)
async def test_nothing_else_that_is_said_of_jobs_fails_so_either(monster: str) -> None:
    app, value = App("memory://"), MONSTERS[monster]()
    as_list = value if isinstance(value, list) else [value]

    @app.task
    async def take(it: Any) -> None: ...

    async with app:
        said: list[tuple[type[Exception], Callable[[], Any]]] = [
            (InvalidPayload, lambda: take.draft(value)),
            (ConfigError, lambda: Retry(value)),
            (ConfigError, lambda: Retry(3, backoff=as_list)),
            (ConfigError, lambda: Retry(3, retry_on=as_list)),
            (ConfigError, lambda: App("memory://", defaults=cast(Any, as_list))),
            (ConfigError, lambda: app.worker(offers={"a": value})),
            (ConfigError, lambda: app.worker(queues=as_list)),
            (ConfigError, lambda: app.task(metadata={"a": value})(lambda: None)),
            (InvalidPayload, lambda: app.submit("other", value if isinstance(value, dict) else {"a": value})),
            (InvalidPayload, lambda: app.submit("other", cast(Any, as_list))),
            (ConfigError, lambda: app.submit(value, {})),
            (ConfigError, lambda: app.queues.set("q", priority=value)),
            (ConfigError, lambda: app.queues.set("q", rates=as_list)),
            *((ConfigError, partial(cast(Any, app.jobs.list), **{name: value})) for name in FILTERS),
            *((ConfigError, partial(cast(Any, app.jobs.count), **{name: (value,)})) for name in FILTERS),
            *((ConfigError, partial(cast(Any, app.jobs.failures), **{name: [[value]]})) for name in FILTERS),
            (ConfigError, lambda: app.jobs.get(value)),
            (ConfigError, lambda: app.keys.create(value, ["read"])),
            (ConfigError, lambda: app.keys.create("a", as_list)),
            (ConfigError, lambda: app.webhooks.add("https://hooks.example", events=as_list)),
        ]
        for number, (kind, say) in enumerate(said):
            with pytest.raises(kind) as told:  # noqa: PT012  # some of them are awaited
                if inspect.isawaitable(found := say()):
                    await found
            assert len(str(told.value)) < 1000, number
