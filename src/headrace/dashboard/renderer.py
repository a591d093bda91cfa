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
from headrace.core.priority import band_of
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
    ("webhooks", "Webhooks", "/webhooks", False),
    ("keys", "Keys", "/keys", False),
    ("audit", "Audit", "/audit", False),
)
"""Name, title, path, and whether a viewer limited to one customer sees it."""


class _Templates(jinja2.BaseLoader):
    """Loads the templates, which are files of the package."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str | None, Any]:
        """Read a template."""
        place = resources.files("headrace.dashboard").joinpath("templates", template)
        if not place.is_file():
            raise jinja2.TemplateNotFound(template)
        return place.read_text(encoding="utf-8"), str(place), None


def _one_of_many(macro: Callable[..., Any], job: Job, *more: Any) -> Any:
    """Return a macro's HTML for a job: if it fails, it names the job, and the page is shown nevertheless."""
    return guarded(lambda one: macro(one, *more), job)


@cache
def _environment() -> jinja2.Environment:
    """Return the templates, compiled once for the whole process, each when it is first needed."""
    made = jinja2.Environment(
        loader=_Templates(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "arguments": format.arguments,
        "count": format.count,
        "band": band_of,
        "iso": format.iso,
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
    """Renders pages."""

    def __init__(self) -> None:
        self._templates = _environment()

    def page(self, ask: PageRequest, shown: Shown, section: str | None, token: str, leaves: bool) -> bytes:
        """Return a whole page, or for an open one, its changing part."""
        now = None if ask.live else ask.now
        menu = [one for one in MENU if one[3] or ask.viewer.customer is None]
        if not ask.may("admin"):
            menu = [one for one in menu if one[0] != "keys"]
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
            "theme": ask.theme,
            "leaves": leaves,
            "version": static_files.version(),
            "unwritable": ask.dashboard.watch.unwritable_since,
            "frame": "live.html" if ask.live else "frame.html",
        }
        return _sent(self._templates.get_template(shown.template).render(data | dict(shown.data)))

    def plain(self, base: str, title: str, text: str, *, template: str = "plain.html", **data: Any) -> bytes:
        """Return a page for people who are not admitted, or for when nothing can be read."""
        given = {"base": base.rstrip("/"), "title": title, "text": text, "version": static_files.version()}
        linking = {"link": lambda path, **query: address(base.rstrip("/"), path, **query)}
        return _sent(self._templates.get_template(template).render(given | linking | data))


def _sent(page: str) -> bytes:
    """Encode a page without characters that turn the direction of text, or do harm where they are pasted."""
    return printable(page, lines=True).encode()
