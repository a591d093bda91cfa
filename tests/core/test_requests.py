from __future__ import annotations

import pytest

from headrace.core.requests import hash_of


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
