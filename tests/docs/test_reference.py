"""Nothing is undocumented: the reference is what the code says now, and people have written about everything in it."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Iterator

import click
import pytest

import headrace
from docs import generate
from headrace import errors
from headrace.cli.root import cli
from headrace.client.options import TaskOptions
from headrace.config import Settings
from tests.docs.pages import ROOT, WRITTEN, name

pytestmark = pytest.mark.timeout(240)

PROSE = "\n".join(page.read_text(encoding="utf-8") for page in WRITTEN)


def commands(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command with the words that call it."""
    for word in group.list_commands(parent):
        command = group.get_command(parent, word)
        assert command is not None
        ctx = click.Context(command, info_name=word, parent=parent)
        yield ctx.command_path, command, ctx
        if isinstance(command, click.Group):
            yield from commands(command, ctx)


PAGES = ("api.md", "cli.md", "errors.md", "settings.md")
"""Named here, because every test process would have to make them all to know their names."""

pages = functools.cache(generate.pages)

COMMANDS = list(commands(cli, click.Context(cli, info_name="headrace")))


def test_every_page_of_the_reference_is_named_here() -> None:
    assert set(pages()) == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_is_what_the_code_says_now(page: str) -> None:
    kept = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert kept == pages()[page], f"docs/reference/{page} is out of date: make docs"


def test_every_command_is_written_about() -> None:
    assert [path for path, _, _ in COMMANDS if not re.search(rf"{path}\b", PROSE)] == []


def test_every_option_says_what_it_is_for_and_is_in_the_reference() -> None:
    page = pages()["cli.md"]
    missing = []
    for path, command, ctx in COMMANDS:
        for param in command.get_params(ctx):
            if not isinstance(param, click.Option) or param.hidden or "--help" in param.opts:
                continue
            if not param.help or not all(f"{word}" in page for word in param.opts):
                missing.append(f"{path} {param.opts[0]}")
    assert missing == []


def test_every_setting_is_written_about_and_says_what_it_is_for() -> None:
    page = pages()["settings.md"]
    lines = {setting: re.search(rf"^\| `{setting}` .*\| (.*) \|$", page, re.MULTILINE) for setting in settings()}
    assert [setting for setting, line in lines.items() if line is None or not line[1].strip()] == []
    assert [setting for setting in settings() if f"`{setting}`" not in PROSE] == []


def settings() -> tuple[str, ...]:
    """The names of all settings."""
    return Settings.__struct_fields__


def test_every_public_name_is_written_about_and_in_the_reference() -> None:
    page = pages()["api.md"]
    assert [one for one in headrace.__all__ if f"\n### {one}\n" not in page] == []
    assert [one for one in headrace.__all__ if not re.search(rf"\b{one}\b", PROSE)] == []


HTTP = (
    *("headrace.endpoints.fastapi", "headrace.endpoints.starlette", "headrace.endpoints.flask"),
    *("headrace.dashboard", "headrace.hub", "headrace.hub.webhooks", "headrace.testing"),
)
"""What a service imports beside the App."""

_IMPORT = re.compile(rf"^from ({'|'.join(map(re.escape, HTTP))}) import (.+)$", re.MULTILINE)


@pytest.mark.parametrize("module", HTTP)
def test_every_public_name_of_a_service_is_in_the_reference(module: str) -> None:
    """With its signature and what it does; a name that two modules share is described where it stands first."""
    home = importlib.import_module(module)
    _, _, rest = pages()["api.md"].partition(f"\n## {module}\n")
    section = rest.partition("\n## ")[0]
    described = dict[str, str]()
    for part in section.split("\n### ")[1:]:
        title, _, text = part.partition("\n")
        described[title] = text.strip()
    imported = {name.strip() for home, names in _IMPORT.findall(PROSE) if home == module for name in names.split(",")}
    assert sorted(described) == sorted(home.__all__)
    assert imported <= set(described)
    assert [name for name, text in described.items() if len(text) < 20] == []
    called = [name for name in home.__all__ if inspect.isfunction(getattr(home, name))]
    assert [name for name in called if f"```python\n{name}(" not in described[name]] == []


def test_every_option_of_a_task_is_written_about() -> None:
    tasks = (ROOT / "docs" / "guides" / "tasks.md").read_text(encoding="utf-8")
    assert [one for one in TaskOptions.__annotations__ if f"`{one}`" not in tasks] == []


def test_every_error_is_written_about_and_drawn_in_the_tree() -> None:
    assert [one for one in errors.__all__ if one != "Directive" and f"`{one}" not in PROSE] == []
    assert [one for one in errors.__all__ if not re.search(rf"\b{one}\b", errors.__doc__ or "")] == []
    page = pages()["errors.md"]
    assert [one for one in errors.__all__ if f"\n## {one}\n" not in page] == []


def test_every_public_member_says_what_it_does() -> None:
    page = pages()["api.md"]
    silent = re.findall(r"^- `(?:async )?\w+\(.*`$", page, re.MULTILINE)
    assert silent == []


def test_the_written_pages_are_found() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/guides/operations.md"} <= {name(page) for page in WRITTEN}
