from __future__ import annotations

import importlib.util
import os
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from headrace import wiring
from headrace.core.rules import Rules
from headrace.engine import Engine
from headrace.errors import ConfigError, MissingExtra, NotSupported
from headrace.host import Host
from headrace.wiring import connect, redact


def make(url: str, **options: Any) -> Engine:
    return connect(url, Rules(), Host(), **options)


def test_memory_and_sqlite_are_wired(tmp_path: Path) -> None:
    assert make("memory://").name == "memory"
    assert make(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal").name == "sqlite"
    assert not list(tmp_path.iterdir())


async def test_three_slashes_are_relative_and_four_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    relative, absolute = make("sqlite:///a%20b.db"), make(f"sqlite:///{tmp_path}/c.db")
    os.chdir(tmp_path / "elsewhere")
    for engine in (relative, absolute):
        await engine.open()
        await engine.close()
    assert {"a b.db", "c.db"} <= set(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://jobs.db", "sqlite:///jobs.db"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///a.db?sync=normal", "'sync'.*synchronous"),
        ("sqlite:///a.db?synchronous=off", "'off'"),
        ("sqlite:///a.db?synchronous=full&synchronous=full", "twice"),
        ("sqlite:///a.db#b", "%23"),
        ("memory://x", "neither"),
        ("memory://?a=1", "there are none"),
        ("mysql://root:secret@host/db", r"mysql://root:\*\*\*@host/db.*memory://, sqlite://"),
        ("http://[", "not a URL"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(url)


@pytest.mark.parametrize("url", ["postgres://h/d", "postgresql://h/d", "postgresql+asyncpg://h/d", "redis://h"])
def test_engines_to_come_say_what_is_missing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'^(postgresql|redis):// needs \w+: pip install "headrace\[\w+\]"$'):
        make(url)
    monkeypatch.setattr(wiring, "find_spec", lambda name: importlib.util.find_spec("json"))
    with pytest.raises(NotSupported, match="not in this version"):
        make(url)


def test_a_store_of_ones_own_has_one_namespace() -> None:
    with pytest.raises(NotSupported, match="another file"):
        make("sqlite:///a.db", namespace="other")


def other_engine(url: str, rules: Rules, host: Host) -> Engine:
    return connect("memory://", rules, host)


def test_other_packages_bring_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("mine", f"{__name__}:other_engine", wiring.GROUP)]
    monkeypatch.setattr(
        wiring, "entry_points", lambda group, name="mine": [point for point in points if point.name == name]
    )
    monkeypatch.setattr(EntryPoint, "load", lambda point: other_engine)
    assert make("mine://anything?x=1").name == "memory"
    with pytest.raises(ConfigError, match="mine://"):
        make("yours://")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("a://u:p@h/x", "a://u:***@h/x"),
        ("a://u@h/x", "a://u@h/x"),
        ("a:///x", "a:///x"),
        ("a://u:p:q@h", "a://u:***@h"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown
