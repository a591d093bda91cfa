from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.hub.api.vocabulary import Drafts, Submission
from tests.support.apps import Sums


async def test_options_that_were_given_before_are_not_checked_again() -> None:
    sums = Sums()
    async with sums.app:
        drafts = Drafts(sums.app)
        made = [(await drafts.draft(Submission("add", {"a": one}, {"priority": 7})))[0] for one in (1, 2)]
        assert made[0].options is made[1].options
        assert (made[0].options["priority"], made[0].id != made[1].id) == (7, True)
        assert [draft.payload_text for draft in made] == ['{"a":1}', '{"a":2}']
        other, _ = await drafts.draft(Submission("add", {"a": 1}, {"priority": 8}))
        document, _ = await drafts.draft(Submission("add", {"a": 1}, {"metadata": {"x": 1}}))
        bare, _ = await drafts.draft(Submission("add", {"a": 1}, {}))
        assert (other.options["priority"], document.options["metadata"]) == (8, {"x": 1})
        assert "priority" not in bare.options


async def test_each_request_has_a_key_of_its_own() -> None:
    sums = Sums()
    async with sums.app:
        drafts = Drafts(sums.app)
        for key in ("r", "s"):
            draft, _ = await drafts.draft(Submission("add", {"a": 1}, {"request_key": key}))
            assert draft.options["request_key"] == key
        replacing = {"dedup": "k", "on_duplicate": "replace", "request_key": "r"}
        with pytest.raises(ConfigError, match="exclude each other"):
            await drafts.draft(Submission("add", {"a": 1}, replacing))


async def test_what_is_remembered_is_bounded() -> None:
    sums = Sums()
    async with sums.app:
        drafts = Drafts(sums.app)
        for number in range(1100):
            await drafts.draft(Submission("add", {"a": 1}, {"dedup": str(number)}))
        assert len(drafts._known) <= 500
