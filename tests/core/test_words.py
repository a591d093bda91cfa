"""The words of five designs for statuses: the data is the table of the page, and it holds both ways."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from headrace.core.status import Reason, Status
from headrace.core.words import EMPROPS, HEADRACE, VOCABULARIES, Vocabulary, Words, vocabulary_of, worded
from headrace.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"

each = pytest.mark.parametrize("words", VOCABULARIES.values(), ids=VOCABULARIES)


def table() -> dict[str, dict[str, list[str]]]:
    """The table of the page: the words of each design, by status."""
    section = PAGE.read_text(encoding="utf-8").partition("## In the words of other designs\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    head, _, *body = rows
    names = [re.sub(r"[^a-z]", "", name.lower()) for name in head[1:]]
    return {
        name: {row[0].strip("`"): re.findall(r"`([^`]+)`", row[place]) for row in body}
        for place, name in enumerate(names, 1)
    }


def test_the_page_has_every_design_and_every_status() -> None:
    found = table()
    assert {*found} == {*VOCABULARIES} - {"headrace"} == {*get_args(Words)} - {"headrace"}
    for column in found.values():
        assert [*column] == [*Status]


@pytest.mark.parametrize("name", [name for name in VOCABULARIES if name != "headrace"])
def test_the_words_are_those_of_the_page(name: str) -> None:
    words = VOCABULARIES[name]
    for status, said in table()[name].items():
        shown = [words.word(Status(status)), words.word(Status(status), Reason.TIMEOUT)]
        assert list(dict.fromkeys(shown)) == (said or [status])


@each
def test_what_is_shown_finds_what_it_was_shown_for(words: Vocabulary) -> None:
    for status in Status:
        for word in (words.word(status), words.json_word(status), words.word(status).upper()):
            assert words.knows(word)
            found, reason = words.statuses([word])
            assert status in found
            assert reason is None
            assert {words.word(one).casefold() for one in found} == {word.casefold()}


@pytest.mark.parametrize(
    ("name", "word", "statuses"),
    [
        ("asyncendpoints", "scheduled", ["scheduled", "retrying"]),
        ("surefire", "PENDING", ["pending", "scheduled", "queued"]),
        ("surefire", "dead Letter", ["failed"]),
        ("emprops", "Queued", ["queued", "retrying"]),
        ("jobmaster", "HeldOnMaster", ["scheduled", "retrying"]),
        ("jobmaster", "queued", ["accepted"]),
        ("osqueue", "unclaimed", ["queued", "retrying"]),
        ("osqueue", "waiting", ["waiting"]),
        ("headrace", "in_progress", ["running"]),
    ],
)
def test_a_word_stands_for_all_statuses_that_show_it(name: str, word: str, statuses: list[str]) -> None:
    assert VOCABULARIES[name].statuses([word]) == (statuses, None)


def test_only_the_words_of_the_vocabulary_are_understood() -> None:
    for name, word in (("osqueue", "running"), ("emprops", "running"), ("headrace", "unclaimed"), ("surefire", "")):
        assert not VOCABULARIES[name].knows(word)
        with pytest.raises(ConfigError, match="is no status: statuses are"):
            VOCABULARIES[name].statuses([word])


def test_a_time_out_is_a_word_of_its_own_for_emprops_alone() -> None:
    assert EMPROPS.word(Status.FAILED, Reason.TIMEOUT) == "TIMEOUT"
    assert EMPROPS.word(Status.FAILED, Reason.LOST) == "FAILED"
    assert EMPROPS.statuses(["Timeout"]) == ([Status.FAILED], Reason.TIMEOUT)
    assert EMPROPS.statuses(["timeout", "failed"]) == EMPROPS.statuses(["failed"]) == ([Status.FAILED], None)
    with pytest.raises(ConfigError, match="timeout is a reason of failed, and stands alone or beside failed"):
        EMPROPS.statuses(["completed", "timeout"])
    assert EMPROPS.filters(["timeout"], ["timeout", "lost"]) == {"status": ["failed"], "reason": ["timeout"]}
    assert EMPROPS.filters(["failed"], ["lost"]) == {"status": ["failed"], "reason": ["lost"]}
    assert EMPROPS.filters(["failed", "timeout"]) == {"status": ["failed"]}
    with pytest.raises(ConfigError, match="timeout is the reason timeout: name no other reason"):
        EMPROPS.filters(["timeout"], ["lost"])
    for name in {*VOCABULARIES} - {"emprops"}:
        assert not VOCABULARIES[name].knows("timeout")


def test_in_json_the_words_of_emprops_are_in_lower_case() -> None:
    assert EMPROPS.json_word(Status.RUNNING) == "in_progress"
    assert VOCABULARIES["asyncendpoints"].json_word(Status.RUNNING) == "InProgress"
    assert {"in_progress", "timeout", "waiting"} <= {*EMPROPS.words()}


def test_a_vocabulary_is_known_by_its_name() -> None:
    assert vocabulary_of("emprops") is EMPROPS
    for name in ("klingon", "EmProps", None, 7, ["emprops"]):
        with pytest.raises(ConfigError, match="words must be one of headrace, emprops"):
            vocabulary_of(name)


class Shown(msgspec.Struct, frozen=True):
    status: Status | None
    reason: Reason | None = None
    payload: msgspec.Raw = msgspec.Raw(b'{"status":"running"}')


class Listed(msgspec.Struct, frozen=True):
    items: tuple[Shown, ...]
    counts: dict[Status, int]
    ready: str = "running"


def test_a_document_is_written_in_words_and_nothing_else_of_it_changes() -> None:
    shown = (Shown(Status.RUNNING), Shown(Status.FAILED, Reason.TIMEOUT), Shown(None))
    listed = Listed(shown, {Status.QUEUED: 2, Status.RETRYING: 3, Status.FAILED: 1})
    found = msgspec.json.decode(msgspec.json.encode(worded({"a": [listed], "b": Status.RUNNING}, EMPROPS)))
    assert [one["status"] for one in found["a"][0]["items"]] == ["in_progress", "timeout", None]
    assert found["a"][0]["items"][1]["reason"] == "timeout"
    assert found["a"][0]["items"][0]["payload"] == {"status": "running"}
    assert found["a"][0]["counts"] == {"queued": 5, "failed": 1}
    assert found["a"][0]["ready"] == "running"
    assert found["b"] == "in_progress"


def test_in_our_words_a_document_is_the_same_one() -> None:
    document = Listed((Shown(Status.RUNNING),), {})
    assert worded(document, HEADRACE) is document
