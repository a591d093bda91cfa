"""From data to HTML: the templates, in which every value is escaped, always."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import msgspec

from headrace.core.codec.stand_in import guarded
from headrace.core.control_characters import printable
from headrace.core.job import Job, json_or_text
from headrace.core.status import HELD, Status
from headrace.dashboard import format, static_files
from headrace.dashboard.drawings.json_tree import parsed, pretty, tree, tree_of_many, written
from headrace.dashboard.page import PageRequest, Shown, address

__all__ = ["Renderer"]

MENU = (
    ("overview", "Overview", "/", False),
    ("jobs", "Jobs", "/jobs", True),
    ("dead", "Dead letters", "/dead", True),
    ("queues", "Queues", "/queues", False),
    ("limits", "Limits", "/limits", False),
    ("tasks", "Tasks", "/tasks", False),
    ("schedules", "Schedules", "/schedules", False),
    ("batches", "Batches", "/batches", True),
    ("workers", "Workers", "/workers", False),
)
"""Name, title, path, and whether a viewer of one customer sees it."""


class _Templates(jinja2.BaseLoader):
    """The templates, as files of the package."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str | None, Any]:
        """Read one."""
        place = resources.files("headrace.dashboard").joinpath("templates", template)
        if not place.is_file():
            raise jinja2.TemplateNotFound(template)
        return place.read_text(encoding="utf-8"), str(place), None


def _one_of_many(macro: Callable[..., Any], job: Job, *more: Any) -> Any:
    """What a macro makes of a job: where it fails, it says which it is, and the page is shown."""
    return guarded(lambda one: macro(one, *more), job)


@cache
def _environment() -> jinja2.Environment:
    """The templates, compiled once for the whole process, each when it is first needed."""
    made = jinja2.Environment(
        loader=_Templates(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "count": format.count,
        "length_of": format.length,
        "percent": format.percent,
        "short": format.short,
        "size": format.size,
        "timed": format.timed,
        "plain": msgspec.to_builtins,
        "json_or_text": json_or_text,
        "parsed": parsed,
        "pretty": pretty,
        "tree": tree,
        "tree_of_many": tree_of_many,
        "written": written,
    }
    made.globals |= {"at": format.at, "Status": Status, "HELD": HELD, "one_of_many": _one_of_many}
    return made


class Renderer:
    """Makes pages."""

    def __init__(self) -> None:
        self._templates = _environment()

    def page(self, ask: PageRequest, shown: Shown, section: str | None, token: str, leaves: bool) -> bytes:
        """A whole page, or for one that is open, what may have changed of it."""
        now = None if ask.live else ask.now
        menu = [one for one in MENU if one[3] or ask.viewer.customer is None]
        data = {
            "ask": ask,
            "viewer": ask.viewer,
            "may": ask.may,
            "link": ask.link,
            "base": ask.base,
            "now": ask.now,
            "age": lambda moment, ago=False: format.age(moment, now, ago=ago),
            "menu": menu,
            "section": section,
            "title": shown.title,
            "every": shown.every,
            "token": token,
            "leaves": leaves,
            "version": static_files.version(),
            "frame": "live.html" if ask.live else "frame.html",
        }
        return _sent(self._templates.get_template(shown.template).render(data | dict(shown.data)))

    def plain(self, base: str, title: str, text: str, *, template: str = "plain.html", **data: Any) -> bytes:
        """A page for those who are not let in, or where nothing can be read."""
        given = {"base": base.rstrip("/"), "title": title, "text": text, "version": static_files.version()}
        linking = {"link": lambda path, **query: address(base.rstrip("/"), path, **query)}
        return _sent(self._templates.get_template(template).render(given | linking | data))


def _sent(page: str) -> bytes:
    """A page as it is sent: nothing in it turns the direction of text, or does something where it is pasted."""
    return printable(page, lines=True).encode()
