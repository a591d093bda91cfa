from __future__ import annotations

import os
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headrace import App
from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.engines import connect as wiring
from headrace.engines.connect import connect, redact
from headrace.engines.remote import RemoteEngine
from headrace.engines.sqlite import SqliteEngine
from headrace.errors import ConfigError, MissingExtra, NotSupported
from headrace.runtime.host import Host
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import schema_of

NORMAL, FULL = 1, 2
"""As SQLite numbers them."""


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


@pytest.mark.parametrize(("url", "level"), [("sqlite:///x.db", FULL), ("sqlite:///x.db?synchronous=normal", NORMAL)])
async def test_an_app_waits_for_the_disk_unless_its_url_says_otherwise(
    url: str, level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = App(url)

    @app.task
    async def work() -> None: ...

    async with app:
        await work.submit()
        other = app.session.engine.another_session()  # as every worker's heartbeat has one
        await other.open()
        for engine in (app.session.engine, other):
            assert isinstance(engine, SqliteEngine)
            assert await engine._writer.run(lambda connection: connection.pragma("synchronous")) == level
        assert app.session.engine.transactions is not None
        async with app.session.engine.transactions.transaction() as connection:
            assert connection.pragma("synchronous") == level
        await other.close()


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
        ("mysql://root:secret@host/db", r"mysql://root:\*\*\*@host/db': there are sqlite:///FILE, .* and memory://$"),
        ("postgresql://h/d?schema=a-b", "letters, digits and _.*'a-b'"),
        ("postgresql://h/d?schema=pg_x", "not begin with pg_"),
        ("postgresql://h/d?pool=many", "number of connections.*'many'"),
        ("postgresql://h/d?pool=5", "at least 6"),
        ("postgresql://h/d?pgbouncer=yes", "pgbouncer must be 1.*'yes'"),
        ("postgresql://h/d?migrate=yes", "migrate must be 'auto'.*'yes'"),
        ("postgresql://h/d?listen_url=h2", "listen_url must be a postgresql:// URL"),
        ("postgresql://h/d?shema=x", "'shema'.*schema, pool, listen_url, pgbouncer, migrate"),
        ("http://[", "not a URL"),
        ("hub+http://", "names no host"),
        ("hub+https://h:port", "hub\\+https://: Port could not be cast"),
        ("hub+https://h?key=hr_x", "unknown parameter 'key'"),
        ("hub+https://hr_secret@h", "^hub\\+https://: the key has no place in the URL: say it as HEADRACE_KEY"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(url)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("hub+http://h", "http://h"),
        ("hub+https://H:8470/", "https://h:8470"),
        ("hub+https://h:443/a%20b/c/", "https://h/a%20b/c"),
        ("hub+http://[::1]:81/x", "http://[::1]:81/x"),
    ],
)
def test_a_hub_is_wired(url: str, address: str) -> None:
    engine = make(url, key="hr_secret0123456")
    assert isinstance(engine, RemoteEngine)
    assert str(engine._address) == address
    assert engine._address.hints == f"ws{address.removeprefix('http')}/rpc/hints"
    assert "123456" not in repr(engine._address)
    with pytest.raises(NotSupported, match="has the namespace of its hub"):
        make(url, namespace="other")


def test_a_hub_without_its_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'^hub\+http:// needs websockets: pip install "headrace\[hub\]"$'):
        make("hub+http://h")


@pytest.mark.parametrize("url", ["postgres://h/d", "postgresql://h/d", "postgresql+asyncpg://h/d"])
def test_a_missing_library_is_one_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'^postgresql:// needs \w+: pip install "headrace\[\w+\]"$'):
        make(url)


@pytest.mark.parametrize("url", ["redis://:secret@h/0", "rediss://h", "s3://bucket", "amqp://h", "mysql://h/d", "x:y"])
def test_a_url_of_no_engine_names_those_there_are(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(url)
    said = "there are sqlite:///FILE, postgresql://USER@HOST/DATABASE, hub+https://HOST and memory://"
    assert str(caught.value).endswith(said)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
async def test_postgresql_is_wired_with_its_parameters(scheme: str, tmp_path: Path) -> None:
    server = shared()
    schema, rest = schema_of(tmp_path), server.dsn.partition("://")[2]
    listen = quote(f"{scheme}://{rest}", safe="")
    url = f"{scheme}://{rest}?schema={schema}&pool=6&listen_url={listen}&pgbouncer=1&migrate=auto&sslmode=disable"
    engine = make(url)
    assert engine.name == "postgresql"
    await engine.open()
    await engine.close()
    [(found,)] = server.execute(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'")
    assert found == 1


async def test_the_namespace_names_the_schema(tmp_path: Path) -> None:
    engine = make(shared().url(), namespace=schema_of(tmp_path))
    await engine.open()
    await engine.close()
    [(found,)] = shared().execute(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema_of(tmp_path)}'")
    assert found == 1


def test_a_store_of_ones_own_has_one_namespace() -> None:
    with pytest.raises(NotSupported, match="another file"):
        make("sqlite:///a.db", namespace="other")


def other_engine(url: str, rules: Rules, host: Host, *, namespace: str) -> Engine:
    if namespace != "headrace":
        raise NotSupported(f"{url} is not for {namespace}")
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
    with pytest.raises(NotSupported, match="mine://anything is not for me"):
        make("mine://anything", namespace="me")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("a://u:p@h/x", "a://u:***@h/x"),
        ("a://u@h/x", "a://u@h/x"),
        ("a:///x", "a:///x"),
        ("a://u:p:q@h", "a://u:***@h"),
        ("a://u:p@h?listen_url=a://v:q@i/x&b=1", "a://u:***@h?listen_url=a://v:***@i/x&b=1"),
        ("a://h?listen_url=a%3A%2F%2Fv%3Aq%40i", "a://h?listen_url=a://v:***@i"),
        ("hub+https://hr_secret@h/x", "hub+https://***@h/x"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown
