"""Forms made from the schema of a task."""

from __future__ import annotations

from typing import Literal

from headrace import App
from headrace.dashboard.forms import Field, fields_of


def test_every_kind_of_parameter_has_a_field() -> None:
    app = App("memory://")

    @app.task
    async def all_kinds(
        name: str,
        count: int,
        share: float = 0.5,
        loud: bool = True,
        mode: Literal["fast", "slow"] = "fast",
        words: list[str] | None = None,
        maybe: str | None = None,
    ) -> None: ...

    fields = {one.name: one for one in fields_of(all_kinds.handler.schema())}
    assert fields["name"] == Field("name", "text", True, "")
    assert fields["count"] == Field("count", "integer", True, "")
    assert (fields["share"].kind, fields["share"].value) == ("number", "0.5")
    assert (fields["loud"].kind, fields["loud"].checked) == ("boolean", True)
    assert (fields["mode"].kind, fields["mode"].choices) == ("choice", ('"fast"', '"slow"'))
    assert (fields["words"].kind, fields["words"].value) == ("json", "")
    assert fields["maybe"].kind == "json"
    given = {one.name: one.value for one in fields_of(all_kinds.handler.schema(), {"count": 7, "words": ["a"]})}
    assert (given["count"], given["words"]) == ("7", '["a"]')


def test_a_schema_that_says_nothing_has_no_fields() -> None:
    assert fields_of({}) == []
