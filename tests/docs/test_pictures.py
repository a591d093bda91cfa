"""The pictures of terminals show what the commands show now, and need nothing from elsewhere."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest

from docs import pictures
from headrace.cli.demo.app import ROWS
from headrace.cli.demo.screen import caption

NAMES = list(pictures.DRAWN_BY)


def svg(name: str) -> str:
    return (pictures.IMAGES / name).read_text(encoding="utf-8")


def text(name: str) -> str:
    """All words of a picture, with one space between them."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg(name))
    return " ".join(html.unescape(" ".join(found)).replace("\xa0", " ").split())


def test_the_demo_is_shown_with_its_tasks_and_what_they_show() -> None:
    shown = text("demo.svg")
    assert [task.name for task in ROWS if f"{task.name} {caption(task)}" not in shown] == []
    assert "headrace jobs --url sqlite:///demo.db" in shown


def test_a_job_is_shown_with_its_timeline() -> None:
    shown = text("show.svg")
    assert re.search(
        r"timeline .* submitted .* attempt 1 .* failed .* attempt 2 .* failed .* attempt 3 .* completed", shown
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_needs_nothing_from_elsewhere_and_tells_of_no_machine(name: str) -> None:
    source = svg(name)
    assert re.findall(r"https?://[^\"\s]+", source) == ["http://www.w3.org/2000/svg"]
    for word in ("@import", "@font-face", "<image", "<script", "href", str(Path.home()), str(pictures.HERE)):
        assert word not in source


def test_a_picture_is_made_anew_only_if_what_draws_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(*_: object) -> str:
        raise AssertionError("made anew")

    monkeypatch.setattr(pictures, "typed", typed)
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pictures.py"])
    for name in NAMES:
        (tmp_path / name).write_text(pictures.drawn(name, "a  \x1b[31mred\x1b[0m word"), encoding="utf-8")
        assert pictures.drawn(name, "again") == pictures.drawn(name, "again")
    pictures.main()
    monkeypatch.setattr(pictures, "CLI", tmp_path)
    for module in {module for modules in pictures.DRAWN_BY.values() for module in modules}:
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / module).write_text("changed")
    with pytest.raises(AssertionError, match="made anew"):
        pictures.main()
