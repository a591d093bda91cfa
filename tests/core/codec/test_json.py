from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.core.codec.json import Codec, Parameter, RecordCodec, Unsupported
from headrace.core.codec.roundtrip import Misfit

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back(value: Any) -> None:
    codec = RecordCodec("any", [Parameter("value", Any, True)])
    assert codec.decode(codec.encode({"value": value})) == {"value": value}


@given(st.dictionaries(st.integers(), st.sets(st.integers())))
def test_annotated_values_come_back_in_their_types(value: dict[int, set[int]]) -> None:
    codec = Codec(dict[int, set[int]])
    assert codec.decode(codec.encode(value)) == value


def test_what_was_not_passed_is_absent() -> None:
    codec = RecordCodec("f", [Parameter("a", int, True), Parameter("b", int, False, 2)])
    assert codec.decode('{"a":1}') == {"a": 1}
    assert codec.decode('{"a":1,"b":2}') == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "path"),
    [('{"b":1}', "a"), ('{"a":1,"c":1}', "c"), ('{"a":"1"}', "a"), ("[]", ""), ("nonsense", ""), ("[" * 9999, "")],
)
def test_a_misfit_names_the_way_to_it(text: str, path: str) -> None:
    codec = RecordCodec("f", [Parameter("a", int, True), Parameter("b", int, False, 2)])
    with pytest.raises(Misfit) as caught:
        codec.decode(text)
    assert caught.value.path == path


@pytest.mark.parametrize("kind", [type, complex, dict[str, complex], list[int] | set[int], "Nowhere"])
def test_types_without_a_json_form_are_unsupported(kind: Any) -> None:
    with pytest.raises(Unsupported):
        Codec(kind)


def test_a_default_that_is_no_json_is_not_shown() -> None:
    schema = RecordCodec("f", [Parameter("a", Any, False, object())]).schema()
    assert schema["properties"] == {"a": {}}


def test_keys_that_only_one_of_two_encoders_takes_are_a_misfit() -> None:
    codec = RecordCodec("any", [Parameter("value", Any, True)])
    with pytest.raises(Misfit, match="keys"):
        codec.encode({"value": {"": float("inf"), True: ""}})


class Plain(BaseModel):
    name: str
    weight: float | None = None


class Own(Plain):
    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {**super().model_dump(**how), "name": self.name.upper()}


def test_a_model_is_written_and_read_as_its_class_says() -> None:
    codec = RecordCodec("f", [Parameter("a", Plain, True), Parameter("b", Own, False, None)])
    text = codec.encode({"a": Plain(name="x"), "b": Own(name="x", weight=1.5)})
    assert text == '{"a":{"name":"x","weight":null},"b":{"name":"X","weight":1.5}}'
    assert codec.decode(text) == {"a": Plain(name="x"), "b": Own(name="X", weight=1.5)}
    assert codec.decode('{"a":{"name":"x"}}') == {"a": Plain(name="x")}


@pytest.mark.parametrize(
    ("text", "path"),
    [('{"a":{"name":1}}', "a.name"), ('{"a":7}', "a"), ('{"a":{}}', "a.name"), ('{"a":{"name":"x"},"b":{}}', "b.name")],
)
def test_what_is_wrong_with_a_model_is_told_with_its_place(text: str, path: str) -> None:
    codec = RecordCodec("f", [Parameter("a", Plain, True), Parameter("b", Own, False, None)])
    with pytest.raises(Misfit) as caught:
        codec.decode(text)
    assert caught.value.path == path


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_in_a_model_that_json_lacks_is_refused(number: float) -> None:
    codec = RecordCodec("f", [Parameter("a", Plain, True)])
    with pytest.raises(Misfit, match="NaN and Infinity") as caught:
        codec.encode({"a": Plain(name="x", weight=number)})
    assert caught.value.path == "a.weight"
