from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, Field

from headrace.core.codec.value import StreamRef
from headrace.errors import ConfigError, InvalidPayload, InvalidResult, NotSupported, PayloadTooLarge
from headrace.runtime.watch.stream import Stream
from headrace.worker.handler import Handler, Policy

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Context:
    __headrace_context__ = True


@dataclass
class Options:
    width: int
    note: str = ""
    extra: Any = None
    inner: list[Options] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Model(BaseModel):
    a: int
    when: datetime | None = None
    parts: list[Model] = []
    other: int = Field(default=1, alias="another")


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    ONE = "one"


class Number(IntEnum):
    ONE = 1


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Shape(TypedDict, total=False):
    sides: int


def everything(  # type: ignore[no-untyped-def]
    text: str = "",
    number: int = 0,
    real: float = 0.0,
    maybe: float | None = None,
    options: Options | None = None,
    point: Point | None = None,
    model: Model | None = None,
    colour: Colour = Colour.RED,
    pair: Pair | None = None,
    shape: Shape | None = None,
    moment: datetime | None = None,
    day: date | None = None,
    span: timedelta | None = None,
    id: UUID | None = None,
    money: Decimal | None = None,
    raw: bytes = b"",
    unique: set[int] | None = None,
    numbers: list[int] | None = None,
    by_number: dict[int, str] | None = None,
    table: dict[str, Any] | None = None,
    either: int | str | None = None,
    free=None,
) -> dict[str, Any]:
    return {}


HANDLER = Handler(everything)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"text": "Grüße \x00 \u2028 𝄞", "number": 2**80, "real": 1.5},
        {"real": 3},
        {"options": Options(1, "n", {"deep": [1, None, {"x": "y"}]}, [Options(2)])},
        {"point": Point(1, 2)},
        {"model": Model(a=1, when=datetime(2026, 1, 1, tzinfo=UTC), parts=[Model(a=2, another=7)])},
        {"colour": Colour.RED, "pair": Pair(1), "shape": {"sides": 3}},
        {"moment": datetime(2026, 1, 1, tzinfo=UTC)},
        {"moment": datetime(2026, 1, 1)},  # noqa: DTZ001 (annotated without saying aware)
        {"day": date(2026, 1, 1), "span": timedelta(hours=1), "id": UUID(int=1)},
        {"money": Decimal("1.50"), "raw": b"\xff\x00"},
        {"unique": {1, 2}, "numbers": [1, 2], "by_number": {1: "a"}},
        {"table": {"a": [1, "b", None, True, 1.5]}, "free": {"b": []}},
        {"either": 1},
        {"either": "1"},
    ],
    ids=lambda arguments: ",".join(arguments) or "nothing",
)
def test_arguments_come_back_as_they_were(arguments: dict[str, Any]) -> None:
    text = HANDLER.encode((), arguments)
    HANDLER.check(text)
    assert HANDLER.decode(text) == arguments


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"number": "1"}, "number"),
        ({"number": True}, "number"),
        ({"number": 1.0}, "number"),
        ({"real": "1"}, "real"),
        ({"real": float("nan")}, "real"),
        ({"maybe": float("inf")}, "maybe"),
        ({"free": [1, {"a": float("nan")}]}, "free[1].a"),
        ({"free": {1}}, "free"),
        ({"free": {1: 2}}, "free"),
        ({"free": datetime(2026, 1, 1, tzinfo=UTC)}, "free"),
        ({"free": object()}, "free"),
        ({"table": {1: 2}}, "table"),
        ({"table": {"a": {None: 2}}}, "table"),
        ({"table": {"a": {2: 2}}}, "table.a"),
        ({"table": {"a": Options(1)}}, "table.a"),
        ({"numbers": {1}}, "numbers"),
        ({"numbers": [1, "2"]}, "numbers[1]"),
        ({"text": UUID(int=1)}, "text"),
        ({"text": b"x"}, "text"),
        ({"text": "half \ud800"}, "text"),
        ({"options": Options("1")}, "options.width"),  # type: ignore[arg-type]
        ({"options": Options(1, UUID(int=1))}, "options.note"),  # type: ignore[arg-type]
        ({"options": Options(1, extra={2})}, "options.extra"),
        ({"options": {}}, "options.width"),
        ({"options": {"width": 1, "inner": [{"width": "x"}]}}, "options.inner[0].width"),
        ({"model": {"a": "1"}}, "model.a"),
        ({"model": {"a": 1, "parts": [{"a": "x"}]}}, "model.parts[0].a"),
        ({"colour": "blue"}, "colour"),
        ({"either": 1.5}, "either"),
        ({"stranger": 1}, "stranger"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arguments: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        HANDLER.encode((), arguments)
    assert (caught.value.task, caught.value.field) == ("everything", where)
    assert where in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidPayload, match="contains itself"):
        HANDLER.encode((), {"free": loop})


def test_enums_that_are_strings_or_numbers_pass_for_them() -> None:
    text = HANDLER.encode((), {"text": Word.ONE, "number": Number.ONE})
    assert HANDLER.decode(text) == {"text": "one", "number": 1}


def test_a_string_of_another_class_is_a_string() -> None:
    class Markup(str):
        __slots__ = ()

    assert HANDLER.encode((Markup("<b>"),), {}) == '{"text":"<b>"}'


def resize(ctx: Context, image: str, width: int = 800, *, crop: bool = False) -> str:
    return image


def test_only_what_was_passed_is_stored() -> None:
    handler = Handler(resize)
    assert handler.takes_context
    assert handler.encode(("a.png",), {"crop": True}) == '{"image":"a.png","crop":true}'
    assert handler.defaults == {"width": 800, "crop": False}


@pytest.mark.parametrize(
    ("args", "kwargs", "where"),
    [
        ((), {}, "image"),
        (("a", 1, True), {}, None),
        (("a",), {"image": "b"}, None),
        (("a",), {"height": 1}, "height"),
        (("a",), {"ctx": 1}, "ctx"),
    ],
)
def test_arguments_that_do_not_bind_are_refused(args: Any, kwargs: Any, where: str | None) -> None:
    with pytest.raises(InvalidPayload) as caught:
        Handler(resize).encode(args, kwargs)
    assert caught.value.field == where


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"image": "a", "width": null}', '{"width": 1}', '{"image":1}'])
def test_a_payload_made_elsewhere_is_checked(text: str) -> None:
    with pytest.raises(InvalidPayload):
        Handler(resize).check(text)


def test_a_payload_too_large_is_refused() -> None:
    handler = Handler(resize)
    assert handler.encode(("ä" * 65_000,), {})
    with pytest.raises(PayloadTooLarge):
        handler.encode(("ä" * 66_000,), {})
    with pytest.raises(PayloadTooLarge):
        handler.check('{"image":"' + "x" * 131_072 + '"}')


def test_a_context_known_only_to_the_checker_is_found_by_name() -> None:
    def local(ctx: worker.Context, money: OnlyForCheckers) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    handler = Handler(local)
    assert handler.takes_context
    assert handler.decode('{"money": [1]}') == {"money": [1]}


def test_a_wrapped_function_keeps_its_signature() -> None:
    @functools.wraps(resize)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return resize(*args, **kwargs)

    assert Handler(wrapper).encode(("a",), {}) == '{"image":"a"}'


def test_the_schema_tells_what_a_payload_holds() -> None:
    schema = Handler(resize).schema()
    assert schema["required"] == ["image"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["width"] == {"type": "integer", "default": 800}
    assert {"Options", "Model"} <= HANDLER.schema()["$defs"].keys()


def test_names_of_parameters_are_free() -> None:
    def odd(self: int, __init__: int, __slots__: int, class_: int, p0: int) -> None: ...

    text = Handler(odd).encode((1, 2, 3, 4, 5), {})
    assert Handler(odd).decode(text) == {"self": 1, "__init__": 2, "__slots__": 3, "class_": 4, "p0": 5}


# Decoration


def positional(a: int, /) -> None: ...
def many(*a: int) -> None: ...
def keywords(**a: int) -> None: ...
def late(a: int, ctx: Context) -> None: ...
def ambiguous(a: Options | dict[str, int]) -> None: ...
def mixed(a: Model | int) -> None: ...
def callback(a: Callable[[], None]) -> None: ...
def returns_code() -> Callable[[], None]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (positional, "positional-only"),
        (many, "any number"),
        (keywords, "any keyword"),
        (late, "'ctx'"),
        (ambiguous, "'a'"),
        (mixed, "'a'"),
        (callback, "'a'"),
        (returns_code, "return"),
        (lambda: None, "lambda"),
    ],
)
def test_signatures_without_a_json_form_are_refused(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Handler(fn)


def test_a_generator_has_items_and_its_result_is_their_number() -> None:
    async def lines() -> AsyncIterator[UUID]:
        yield UUID(int=1)

    handler = Handler(lines)
    assert (handler.mode, handler.streams, handler.flows, handler.direct) == ("async", True, True, False)
    assert handler.decode_item(handler.encode_item(UUID(int=1))) == UUID(int=1)
    assert handler.encode_result(3) == "3"
    with pytest.raises(InvalidResult, match="item"):
        handler.encode_item("x")
    with pytest.raises(InvalidResult, match="result"):
        handler.encode_result("x")


def test_a_generator_without_an_annotation_yields_anything() -> None:
    async def lines():  # type: ignore[no-untyped-def]
        yield 1

    assert Handler(lines).decode_item(Handler(lines).encode_item({"a": [1]})) == {"a": [1]}


def test_items_without_a_json_form_are_refused() -> None:
    async def objects() -> AsyncIterator[Handler]:
        yield Handler(print)

    async def reads(rows: Stream[Handler]) -> None: ...

    with pytest.raises(ConfigError, match="return annotation"):
        Handler(objects)
    with pytest.raises(ConfigError, match="rows"):
        Handler(reads)


def test_a_plain_generator_is_refused() -> None:
    def lines() -> Iterator[str]:
        yield ""

    with pytest.raises(NotSupported, match="async def"):
        Handler(lines)


def test_a_parameter_that_is_a_stream_is_the_id_of_a_job() -> None:
    async def count(rows: Stream[int], limit: int = 3) -> int:
        return 0

    handler, id = Handler(count), UUID(int=7)
    assert (handler.flows, handler.streams, handler.direct) == (True, False, False)
    assert handler.decode(f'{{"rows": {{"stream": "{id}", "start": 2}}}}') == {"rows": StreamRef(id, 2)}
    for wrong in ("{}", '{"rows": [1]}', '{"rows": {"stream": "x"}}', f'{{"rows": {{"stream": "{id}", "more": 1}}}}'):
        with pytest.raises(InvalidPayload, match="rows"):
            handler.decode(wrong)
    assert handler.schema()["required"] == ["rows"]


async def coroutine() -> int:
    return 1


def test_the_function_says_where_it_runs() -> None:
    assert Handler(coroutine).mode == "async"
    assert Handler(resize).mode == "thread"
    assert Handler(resize, run_in="process").mode == "process"


def test_a_process_must_be_able_to_import_the_function() -> None:
    def local() -> None: ...

    with pytest.raises(ConfigError, match="import"):
        Handler(local, run_in="process")
    with pytest.raises(ConfigError, match="coroutine"):
        Handler(coroutine, run_in="process")
    with pytest.raises(ConfigError, match="run_in"):
        Handler(resize, run_in="thread")  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [{"name": ""}, {"name": " a"}, {"aliases": "old"}, {"aliases": ["", "b"]}])
def test_names_are_checked(names: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Handler(resize, **names)


def test_a_handler_has_a_policy_and_a_place() -> None:
    handler = Handler(resize, name="images.resize", aliases=["old"], policy=Policy(queue="images"))
    assert (handler.name, handler.aliases, handler.policy.queue) == ("images.resize", ("old",), "images")
    assert handler.place.partition(":")[0].endswith("test_handler.py")


# Results


@pytest.mark.parametrize("value", [{}, {"a": [1, 2.5, None, "x"]}, {"pair": (1, 2)}])
def test_results_are_json(value: Any) -> None:
    assert HANDLER.encode_result(value)


@pytest.mark.parametrize(
    "value", [1, {"a": object()}, {"a": float("nan")}, {"a": "x" * 1_048_576}, {"a": "\udfff"}, {None: 1}]
)
def test_a_result_that_is_not_what_was_promised_is_refused(value: Any) -> None:
    with pytest.raises(InvalidResult, match="everything"):
        HANDLER.encode_result(value)


def test_results_come_back_in_their_type() -> None:
    def make() -> list[Model]:
        return []

    handler = Handler(make)
    assert handler.decode_result(handler.encode_result([Model(a=1)])) == [Model(a=1)]
    with pytest.raises(InvalidResult, match="stored"):
        handler.decode_result('"of another version"')


def test_text_does_not_pass_for_bytes() -> None:
    def store(data: bytes | None, name: str) -> None: ...

    handler = Handler(store)
    with pytest.raises(InvalidPayload, match="data: Expected `bytes`, got `str`"):
        handler.encode(("abcd",), {"name": "x"})
    assert handler.decode(handler.encode((b"abcd", "x"), {})) == {"data": b"abcd", "name": "x"}
    assert handler.decode(handler.encode((None, "x"), {})) == {"data": None, "name": "x"}
    handler.check('{"data":"YWJjZA==","name":"x"}')  # in JSON it is base64


class _Scale:
    async def __call__(self, n: int) -> int:
        return n

    def method(self, n: int) -> int:
        return n


def _power(base: int, exponent: int) -> int:
    return int(base**exponent)


def test_what_can_be_called_like_a_function_is_one() -> None:
    handler = Handler(_Scale(), name="scale")
    assert handler.mode == "async"
    with pytest.raises(InvalidPayload, match="Expected `int`"):
        handler.encode(("1",), {})
    square = Handler(functools.partial(_power, exponent=2), name="square")
    with pytest.raises(InvalidPayload, match="Expected `int`"):
        square.encode(("1",), {})
    assert Handler(_Scale().method).schema()["required"] == ["n"]


def test_a_method_without_its_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a method"):
        Handler(_Scale.method)


@dataclass
class Frame:
    width: int
    title: str = ""


class Bordered(msgspec.Struct):
    frame: Frame
    more: list[Frame] = []


def paint(frame: Frame | None, borders: dict[str, Bordered] | None = None) -> None: ...


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ('{"frame": {"width": 1, "colour": "red"}}', "frame.colour"),
        ('{"frame": null, "borders": {"a": {"frame": {"width": 1, "x": 2}}}}', "borders.a.frame.x"),
        (
            '{"frame": null, "borders": {"a": {"frame": {"width": 1}, "more": [{"width": 1}, {"width": 2, "y": 0}]}}}',
            "borders.a.more[1].y",
        ),
        ('{"frame": null, "borders": {"a": {"frame": {"width": 1}, "thick": true}}}', "borders.a.thick"),
    ],
)
def test_a_field_that_an_object_within_an_argument_does_not_have_is_refused(payload: str, field: str) -> None:
    with pytest.raises(InvalidPayload, match="unknown field") as caught:
        Handler(paint).check(payload)
    assert caught.value.field == field


def test_objects_within_arguments_with_their_own_fields_pass() -> None:
    handler = Handler(paint)
    text = handler.encode((Frame(1, "a"),), {"borders": {"b": Bordered(Frame(2), [Frame(3)])}})
    assert handler.decode(text)["frame"] == Frame(1, "a")
    handler.check('{"frame": null}')
