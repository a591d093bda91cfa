from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.config import Settings, find_file
from headrace.core.defaults import Retention, Rules
from headrace.errors import ConfigError


def load(tmp_path: Path, **sources: Any) -> Settings:
    return Settings.load(directory=tmp_path, environ=sources.pop("environ", {}), **sources)


def test_without_sources_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings == Settings()
    assert settings.url == "sqlite:///headrace.db"
    assert settings.rules() == Rules()


def test_later_sources_win(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('url = "memory://file"\nbeat = 1\nlease = "4s"\nimports = ["a", "b"]\n')
    environ = {"HEADRACE_URL": "memory://environment", "HEADRACE_APP": "quick:app", "HEADRACE_RETENTION_FAILED": "2d"}
    code = {"url": "memory://code", "namespace": None}
    settings = load(tmp_path, environ=environ)
    assert (settings.url, settings.app, settings.beat) == ("memory://environment", "quick:app", 1.0)
    assert settings.imports == ("a", "b")
    assert settings.rules().retention == Retention(failed=172800.0)
    assert load(tmp_path, environ=environ, code=code).url == "memory://code"
    overridden = load(tmp_path, environ=environ, code=code, override={"url": "memory://override"})
    assert (overridden.url, overridden.lease) == ("memory://override", 4.0)


def test_files_are_looked_for_upward(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.headrace]\nurl = "memory://project"\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")
    assert find_file(deep) == tmp_path / "pyproject.toml"
    assert load(deep).url == "memory://project"
    (deep / "headrace.toml").write_text('url = "memory://own"\n')
    assert load(deep).url == "memory://own"


def test_the_environment_lists_with_commas_and_is_shared_with_others(tmp_path: Path) -> None:
    environ = {"HEADRACE_IMPORTS": "a, b,", "HEADRACE_DEBUG": "1", "HEADRACE_URL": "", "OTHER": "x"}
    settings = load(tmp_path, environ=environ)
    assert (settings.imports, settings.url) == (("a", "b"), Settings().url)


@pytest.mark.parametrize(
    ("value", "seconds"), [(5, 5.0), ("5", 5.0), ("90 s", 90.0), ("1.5h", 5400.0), (timedelta(days=1), 86400.0)]
)
def test_durations_may_have_units(value: Any, seconds: float, tmp_path: Path) -> None:
    assert load(tmp_path, code={"retention_failed": value}).retention_failed == seconds


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"environ": {"HEADRACE_BEAT": "soon"}}, ["HEADRACE_BEAT", "beat", "'soon'", "duration"]),
        ({"environ": {"HEADRACE_URI": "x"}}, []),
        ({"environ": {"HEADRACE_LEAS": "9"}}, ["HEADRACE_LEAS", "did you mean 'lease'"]),
        ({"code": {"url": "jobs.db"}}, ["App(...)", "url", "'jobs.db'"]),
        ({"code": {"url": 5}}, ["App(...)", "url"]),
        ({"override": {"beat": 0}}, ["override", "beat"]),
        ({"override": {"beat": True}}, ["override", "beat"]),
        ({"code": {"namespace": "a b"}}, ["namespace"]),
        ({"code": {"imports": "abc"}}, ["imports", "list"]),
        ({"code": {"app": ":app"}}, ["app", "MODULE"]),
        ({"code": {"nonsense": 1}}, ["nonsense", "known are"]),
        ({"code": {"beat": 50}}, ["lease", "longer than beat"]),
    ],
)
def test_bad_values_name_their_source(sources: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    if not words:
        words = ["HEADRACE_URI", "did you mean 'url'"]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **sources)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("text", ["url = ", "[tool]\nheadrace = 1"])
def test_a_file_that_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        load(tmp_path)


def test_an_unknown_key_in_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("retention_complete = 5\n")
    with pytest.raises(ConfigError, match=r"headrace\.toml.*retention_completed"):
        load(tmp_path)


def test_every_setting_says_what_it_is() -> None:
    source = (Path(__file__).parents[1] / "src" / "headrace" / "config.py").read_text(encoding="utf-8")
    lines = [line.strip() for line in source.splitlines()]
    for name in Settings.__struct_fields__:
        at = next(index for index, line in enumerate(lines) if line.startswith(f"{name}: "))
        assert lines[at + 1].startswith('"""'), name


def test_a_relative_store_in_a_file_lies_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('url = "sqlite:///jobs.db?synchronous=normal"')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    url = Settings.load(directory=below, environ={}).url
    assert url == f"sqlite:///{tmp_path.resolve()}/jobs.db?synchronous=normal"
    # What is typed means the directory it is typed in.
    assert Settings.load(directory=below, environ={"HEADRACE_URL": "sqlite:///x.db"}).url == "sqlite:///x.db"


def test_who_sets_a_key_and_who_wins(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('url = "memory://file"\n')
    environ = {"HEADRACE_URL": "memory://environment", "HEADRACE_LEASE": "1m30s"}
    sources: dict[str, Any] = {"directory": tmp_path, "environ": environ}
    assert Settings.sources("url", **sources) == [
        ("the environment variable HEADRACE_URL", "memory://environment"),
        (str(tmp_path / "headrace.toml"), "memory://file"),
    ]
    code, override = {"url": "memory://code", "namespace": None}, {"url": "memory://override"}
    found = Settings.sources("url", code=code, override=override, **sources)
    assert [source for source, _ in found][:2] == ["app.override(...)", "App(...)"]
    assert found[0][1] == load(tmp_path, environ=environ, code=code, override=override).url
    assert Settings.sources("lease", **sources) == [("the environment variable HEADRACE_LEASE", 90.0)]
    assert Settings.sources("namespace", code=code, **sources) == []


def test_a_key_is_read_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('key = "hr_in-the-file"')
    found = Settings.load(environ={}, directory=tmp_path)
    assert found.key == "hr_in-the-file"
    assert Settings.load(environ={"HEADRACE_KEY": "hr_environment"}, directory=tmp_path).key == "hr_environment"
    assert "hr_" not in repr(found)
    for wrong in ("hr_with\nline", "hr_with space", 7, ""):
        with pytest.raises(ConfigError) as caught:
            Settings.load(code={"key": wrong}, environ={}, directory=tmp_path)
        assert str(caught.value) == "App(...): key must be a key as headrace keys create prints it"


def test_a_secret_is_read_and_never_shown(tmp_path: Path) -> None:
    secret = "s" * 32
    found = Settings.load(environ={"HEADRACE_SECRET": secret}, directory=tmp_path)
    assert found.secret == secret
    assert secret not in repr(found)
    for wrong in ("s" * 31, "s" * 1001, "s" * 32 + "\n", 7):
        with pytest.raises(ConfigError, match=r"secret must have 32 characters at least") as caught:
            Settings.load(code={"secret": wrong}, environ={}, directory=tmp_path)
        assert "sss" not in str(caught.value)


def test_a_variable_that_merely_begins_like_a_setting_is_somebody_elses(tmp_path: Path) -> None:
    assert Settings.load(environ={"HEADRACE_SEED": "7"}, directory=tmp_path).secret is None
    with pytest.raises(ConfigError, match=r"did you mean 'secret'"):
        Settings.load(environ={"HEADRACE_SECRETS": "s" * 32}, directory=tmp_path)
