from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct, inspect

from headrace.core.codec.roundtrip import Misfit, check, customs, find_nan, watched


class Node(Struct):
    children: list[Node]
    value: Any = None


class Leaf(Struct):
    number: int


@pytest.mark.parametrize(
    ("kind", "expected"), [(int, False), (str, True), (Leaf, False), (Node, True), (dict[str, int], True), (Any, True)]
)
def test_only_what_text_cannot_tell_is_watched(kind: Any, expected: bool) -> None:
    assert watched(inspect.type_info(kind)) is expected


def test_types_that_contain_themselves_are_walked_once() -> None:
    node = inspect.type_info(Node)
    check(Node([Node([])]), node, "tree")
    with pytest.raises(Misfit) as caught:
        check(Node([Node([], value={1})]), node, "tree")
    assert caught.value.path == "tree.children[0].value"


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (tuple[int, str], (1, b"x"), "v[1]"),
        (list[str] | None, ["a", 1], "v[1]"),
        (dict[str, Any], {"a": {"b": {1: 2}}}, "v.a.b"),
        (dict[str, str], {"a": b"x"}, "v.a"),
        (Any | None, {"a": {1}}, "v.a"),
        (object, (1, [float("inf")]), "v[1][0]"),
    ],
)
def test_what_would_come_back_as_something_else_is_found(kind: Any, value: Any, path: str) -> None:
    with pytest.raises(Misfit) as caught:
        check(value, inspect.type_info(kind), "v")
    assert caught.value.path == path


def test_classes_that_need_a_hook_are_found() -> None:
    assert customs(inspect.type_info(dict[str, list[complex]])) == [complex]
    assert customs(inspect.type_info(list[object])) == []


def test_numbers_that_json_lacks_are_found() -> None:
    assert find_nan({"a": [1.0, {"b": float("nan")}]}, "") == ".a[1].b"
    assert find_nan({"a": [1.0, None, "NaN"]}, "") is None
