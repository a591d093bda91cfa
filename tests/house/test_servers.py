"""The real servers of the tests: they start, answer, keep what was committed, and end with whoever started them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.servers import daemons, warden
from tests.support.servers.pgbouncer import PgBouncer, found
from tests.support.servers.postgres import GIVEN, Server, shared
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server.start(tmp_path)
    yield server
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="ports are kept by a name that only Linux has")
def test_a_port_is_given_to_one_process() -> None:
    program = (
        f"import sys; from tests.support.servers import daemons; sys.exit(daemons._reserve({daemons.free_port()}))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_server_starts_and_answers(server: Server) -> None:
    assert server.execute("SELECT 1 + 1, 'a'") == [(2, "a")]
    assert int(server.version.partition(".")[0]) >= 18


def test_a_server_keeps_the_defaults_of_durability(server: Server) -> None:
    assert server.execute("SHOW fsync") == [("on",)]
    assert server.execute("SHOW synchronous_commit") == [("on",)]
    assert server.execute("SHOW max_connections") == [("200",)]


def test_a_server_takes_settings(tmp_path: Path) -> None:
    server = Server.start(tmp_path, fsync="off", work_mem="7MB")
    try:
        assert server.execute("SHOW fsync") == [("off",)]
        assert server.execute("SHOW work_mem") == [("7MB",)]
    finally:
        server.stop()


def test_a_wrong_setting_is_reported_with_what_the_server_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="max_connections"):
        Server.start(tmp_path, max_connections="none")


def test_two_servers_have_nothing_in_common(server: Server, tmp_path: Path) -> None:
    server.execute("CREATE TABLE here (x int)")
    other = Server.start(tmp_path)
    try:
        assert other.execute("SELECT to_regclass('here')") == [(None,)]
    finally:
        other.stop()


def test_a_stopped_server_is_gone_and_may_be_stopped_again(tmp_path: Path) -> None:
    server = Server.start(tmp_path)
    process = psutil.Process(server.pid)
    server.stop()
    assert not warden.alive(process)
    assert list(tmp_path.iterdir()) == []
    server.stop()


def test_a_killed_server_keeps_what_was_committed(server: Server) -> None:
    server.execute("CREATE TABLE kept (x int)")
    server.execute("INSERT INTO kept VALUES (1)")
    family = warden.tree(server.pid)
    server.kill()
    assert not [process for process in family if warden.alive(process)]
    with pytest.raises(OSError, match="onnect"):
        server.execute("SELECT 1")
    server.restart()
    assert server.execute("SELECT x FROM kept") == [(1,)]


def test_a_running_server_restarts_under_the_same_address(server: Server) -> None:
    server.execute("CREATE TABLE kept (x int)")
    before = server.pid
    server.restart()
    assert server.pid != before
    assert server.execute("SELECT count(*) FROM kept") == [(0,)]


async def test_a_frozen_server_answers_once_thawed(server: Server) -> None:
    connection = await asyncpg.connect(server.dsn)
    server.freeze()
    asked = asyncio.ensure_future(connection.fetchval("SELECT 1"))
    done, _ = await asyncio.wait([asked], timeout=0.2)
    assert not done
    server.thaw()
    assert await asked == 1
    await connection.close()


async def test_a_frozen_server_can_be_stopped(server: Server) -> None:
    server.freeze()
    server.stop()


async def test_connections_of_clients_can_be_cut(server: Server) -> None:
    connection = await asyncpg.connect(server.dsn)
    assert server.terminate() == 1
    await until(connection.is_closed)


async def test_connections_of_one_process_can_be_cut(server: Server) -> None:
    connection = await asyncpg.connect(server.dsn)
    assert server.terminate(os.getppid()) == 0
    assert await connection.fetchval("SELECT 1") == 1
    assert server.terminate(os.getpid()) == 1
    await until(connection.is_closed)


async def test_a_new_database_is_empty_and_has_an_address(server: Server) -> None:
    first, second = server.create_database(), server.create_database()
    assert first != second
    address = server.url(first, application_name="a b&c")
    connection = await asyncpg.connect(address)
    assert await connection.fetchval("SELECT current_database()") == first
    assert await connection.fetchval("SHOW application_name") == "a b&c"
    await connection.close()


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
async def test_a_server_ends_with_its_process(frozen: bool, tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from tests.support.servers.postgres import Server
server = Server.start(Path({str(tmp_path)!r}))
if {frozen}: server.freeze()
print(server.pid, server._home._folder, flush=True)
time.sleep(60)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout
    pid, folder = (await process.stdout.readline()).decode().split()
    family = warden.tree(int(pid))
    process.kill()
    await process.wait()
    await until(lambda: not any(warden.alive(member) for member in family))
    await until(lambda: not Path(folder).exists())


def test_the_shared_server_is_one_per_process_and_ends_with_it() -> None:
    code = """
from tests.support.servers.postgres import shared
assert shared() is shared()
print(shared().pid, shared().execute("SHOW fsync"))
"""
    environment = {name: value for name, value in os.environ.items() if name != GIVEN}
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True)
    pid, fsync = said.stdout.decode().split(maxsplit=1)
    assert fsync.strip() == "[('off',)]"
    assert not psutil.pid_exists(int(pid))
    assert said.stderr == b""


def test_a_given_server_is_used_and_left_running_and_tidy(server: Server) -> None:
    code = """
from tests.support.servers.postgres import shared
print(shared().dsn, shared().create_database(), shared().terminate())
try: shared().kill()
except RuntimeError: print("refused")
"""
    environment = os.environ | {GIVEN: server.dsn}
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True)
    dsn, name, cut, refused = said.stdout.decode().split()
    assert (dsn, cut, refused) == (server.dsn, "0", "refused")
    assert server.execute(f"SELECT count(*) FROM pg_database WHERE datname = '{name}'") == [(0,)]


@pytest.fixture
def bare() -> Iterator[Path]:
    """A folder for temporary files that is open to everybody, as the system's own is, and empty."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def test_servers_of_many_processes_start_at_once(bare: Path) -> None:
    """Also when each of them finds the binaries and the template not prepared yet."""
    code = "from tests.support.servers.postgres import shared; print(shared().execute('SELECT 1'))"
    environment = {name: value for name, value in os.environ.items() if name != GIVEN} | {"TMPDIR": str(bare)}
    several = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in several] == ["[(1,)]"] * 3
    [prepared] = bare.iterdir()
    assert (prepared / "template" / "data" / "PG_VERSION").is_file()


def test_the_shared_server_answers_this_process() -> None:
    assert shared().execute("SELECT 1") == [(1,)]


# PgBouncer


@pytest.mark.parametrize(("mode", "shared_backend"), [("transaction", True), ("session", False)])
async def test_clients_of_a_bouncer_share_connections_by_its_mode(
    mode: str, shared_backend: bool, tmp_path: Path
) -> None:
    bouncer = PgBouncer.start(shared(), tmp_path, pool_mode=mode)
    address = bouncer.url(shared().create_database())
    clients = [await asyncpg.connect(address, statement_cache_size=0) for _ in range(2)]
    backends = [await client.fetchval("SELECT pg_backend_pid()") for client in clients]
    assert (backends[0] == backends[1]) is shared_backend
    for client in clients:
        await client.close()
    bouncer.stop()


async def test_a_stopped_bouncer_cuts_its_clients_and_is_gone(tmp_path: Path) -> None:
    bouncer = PgBouncer.start(shared(), tmp_path)
    client = await asyncpg.connect(bouncer.dsn, statement_cache_size=0)
    bouncer.stop()
    await until(client.is_closed)
    with pytest.raises(OSError, match="onnect"):
        await asyncpg.connect(bouncer.dsn)
    bouncer.stop()


def test_a_bouncer_that_was_fetched_once_is_not_fetched_again(bare: Path) -> None:
    found()
    code = "from tests.support.servers.pgbouncer import found; print(found()[0].is_file())"
    nothing = os.environ | {"TMPDIR": str(bare), "PATH": ""}  # not even what would fetch it
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=nothing, check=True, capture_output=True)
    assert said.stdout == b"True\n"


def test_a_bouncer_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pool_mode"):
        PgBouncer.start(shared(), tmp_path, pool_mode="no such mode")
