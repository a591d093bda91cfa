"""A real PgBouncer in front of a server: the one installed, or Debian's package unpacked in the virtualenv.

As a program it sees to it that there is one; ``make`` runs it when it makes the virtualenv, so that no test fetches it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urlsplit

from tests.support.servers import daemons, debian
from tests.support.servers.postgres import Server

MISSING = "the tests need PgBouncer, and it could not be fetched; install it: apt-get install -y pgbouncer"

PATIENCE = 60.0
"""Seconds it gets to start."""

CONFIG = """\
[databases]
* = {target}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {pool_mode}
max_client_conn = 500
default_pool_size = 20
"""


class PgBouncer:
    """One PgBouncer process; clients of any name get in and are the server's user behind it."""

    def __init__(self, server: Server, folder: Path, pool_mode: str) -> None:
        binary, libraries = found()
        self._port = daemons.free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pgbouncer-", dir=daemons.place(folder)))
        daemons.give(self._folder)
        config = self._folder / "pgbouncer.ini"
        config.write_text(CONFIG.format(target=_target(server.dsn), port=self._port, pool_mode=pool_mode))
        self._log = (self._folder / "log").open("wb")
        self._command, self._libraries, self._pidfile = [str(binary), str(config)], libraries, self._folder / "pid"
        self._process = self._launch()
        self._guard = daemons.guard(self._pidfile, self._folder)

    def _launch(self) -> subprocess.Popen[bytes]:
        process = daemons.launch(self._command, self._log, self._folder, LD_LIBRARY_PATH=self._libraries)
        self._pidfile.write_text(str(process.pid))
        return process

    @classmethod
    def start(cls, server: Server, folder: Path, pool_mode: str = "transaction") -> PgBouncer:
        """Start one and wait until it takes connections."""
        bouncer = cls(server, folder, pool_mode)
        bouncer._wait()
        return bouncer

    def restart(self) -> None:
        """End it, with every connection through it, and start it again at the same address."""
        daemons.dismiss(self._process)
        self._process = self._launch()
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = Path(self._log.name).read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"PgBouncer did not start:\n{said[-2000:]}")
            time.sleep(0.01)

    @property
    def dsn(self) -> str:
        """Where it takes connections to the database postgres."""
        return self.url()

    def url(self, database: str = "postgres", **query: str) -> str:
        """The address of one database through it, with options."""
        options = f"?{urlencode(query)}" if query else ""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(database)}{options}"

    def stop(self) -> None:
        """End it, and with it every connection through it; a second time does nothing."""
        if self._log.closed:
            return
        daemons.dismiss(self._process)
        daemons.dismiss(self._guard)
        self._log.close()
        shutil.rmtree(self._folder)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True


def _target(dsn: str) -> str:
    """The server as PgBouncer writes it."""
    parts = urlsplit(dsn)
    words = {"host": parts.hostname, "port": parts.port or 5432, "user": parts.username, "password": parts.password}
    return " ".join(f"{name}='{unquote(str(word))}'" for name, word in words.items() if word)


def found() -> tuple[Path, str]:
    """The program, and where it finds libraries beside those of the system."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]
    if installed := shutil.which("pgbouncer", path=os.pathsep.join(places)):
        return Path(installed), ""
    name, home = f"headrace-pgbouncer-{os.geteuid()}", Path(sys.prefix)
    place = daemons.place(home)
    kept, final = (home if os.access(home, os.W_OK) else place) / name, place / name
    debian.make(kept, lambda made: debian.unpack(made, "pgbouncer", "usr/sbin/pgbouncer"), MISSING)
    if final != kept:  # those who run it cannot get there
        debian.make(final, lambda made: shutil.copytree(kept, made, dirs_exist_ok=True), MISSING)
    if final.stat().st_uid != os.geteuid():
        raise RuntimeError(f"{final} belongs to somebody else")
    return final / "root" / "usr" / "sbin" / "pgbouncer", debian.libraries(final)


if __name__ == "__main__":
    try:
        found()
    except RuntimeError as error:
        sys.exit(str(error))
