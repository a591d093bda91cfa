from __future__ import annotations

import pytest

from headrace.core.lifecycle.deduplication import hash_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":[1.5,null]}', '{ "b": [15e-1, null], "a": 1.0 }'),
        ('{"a":"\\u00e9"}', '{"a":"\u00e9"}'),
        ('{"a":-0.0}', '{"a":0}'),
        ('{"a":{"c":1,"b":2}}', '{"a":{"b":2,"c":1}}'),
    ],
)
def test_the_same_json_has_the_same_hash(one: str, other: str) -> None:
    assert hash_of(one) == hash_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":null}', "{}"),
        ('{"a":1.5}', '{"a":1}'),
        ('{"a":9007199254740993}', '{"a":9007199254740992}'),
    ],
)
def test_another_value_has_another_hash(one: str, other: str) -> None:
    assert hash_of(one) != hash_of(other)


def test_route_and_query_count_like_the_payload() -> None:
    plain = hash_of("{}")
    assert hash_of("{}", {}, ()) == plain
    seen = {
        plain,
        hash_of("{}", {"year": "2026"}),
        hash_of("{}", None, (("a", "1"), ("a", "2"))),
        hash_of("{}", None, (("a", "2"), ("a", "1"))),
        hash_of("{}", {"a": "1"}, (("a", "1"),)),
    }
    assert len(seen) == 5
    assert hash_of("{}", {"a": "1", "b": "2"}) == hash_of("{}", {"b": "2", "a": "1"})
    mixed, sorted_ = (("a", "1"), ("b", "2"), ("a", "3")), (("a", "1"), ("a", "3"), ("b", "2"))
    assert hash_of("{}", None, mixed) == hash_of("{}", None, sorted_), "of two names the order does not count"


def test_what_does_not_count_may_differ() -> None:
    assert hash_of('{"a":1,"now":2}', uncounted={"now"}) == hash_of('{"a":1,"now":3}', uncounted={"now"})
    assert hash_of('{"a":1,"now":2}', uncounted={"now"}) != hash_of('{"a":2,"now":2}', uncounted={"now"})
