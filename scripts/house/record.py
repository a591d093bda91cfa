"""Records what must not change while modules move: ``python scripts/house/record.py FOLDER [PART ...]``.

Two folders, of before and after, are compared with ``diff -r``. What is measured (``times.json``) is for people.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import logging
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import types
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "headrace"
PYTHON = [sys.executable]
sys.path.insert(0, str(ROOT))


def find(*places: str) -> Any:
    """The first of these ``module:name`` that is there."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = importlib.import_module(module)
            return getattr(found, name) if name else found
        except (ImportError, AttributeError):
            continue
    raise LookupError(f"none of {places}: say here where it is now")


def write(path: Path, value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


# -- tests, pages


def names_of_tests(folder: Path) -> None:
    """The names, and the names without files and parameters: tests may move and may lose parameters."""
    command = [*PYTHON, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "tests", "examples"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = sorted(line for line in done.stdout.splitlines() if "::" in line)
    if done.returncode or not found:
        raise RuntimeError(done.stdout[-3000:] + done.stderr[-3000:])
    write(folder / "tests.txt", "\n".join(found))
    plain = {re.sub(r"\[.*", "", line).partition("::")[2] for line in found}
    write(folder / "tests-plain.txt", "\n".join(sorted(plain)))


def pages(folder: Path) -> None:
    shutil.copytree(ROOT / "docs" / "reference", folder / "reference", dirs_exist_ok=True)


def openapi(folder: Path) -> None:
    document = find("headrace.hub.openapi.document:document", "headrace.hub.openapi:document")
    operations = find(
        "headrace.hub.table:OPERATIONS",
        "headrace.hub.api.table:OPERATIONS",
        "headrace.hub.api.operations:OPERATIONS",
        "headrace.hub.api:OPERATIONS",
        "headrace.hub.openapi:OPERATIONS",
    )
    write(folder / "openapi.json", document(operations, keyed=True))
    with Hub() as hub:
        write(folder / "openapi-served.json", json.loads(hub.get("/openapi.json")))


class Hub:
    """A hub, by its command."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        url = f"sqlite:///{self._folder.name}/jobs.db"
        command = [*PYTHON, "-m", "headrace", "hub", "--port", "0", "--url", url, "--log-format", "json"]
        self._log = Path(self._folder.name, "log").open("w+")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=self._folder.name)
        asyncio.run(self._ready())
        return self

    async def _ready(self) -> None:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", self.log())):
            if self._process.poll() is not None:
                raise RuntimeError(self.log())
            await asyncio.sleep(0.05)
        self._address = found[0]

    def log(self) -> str:
        return Path(self._log.name).read_text()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self._address + path) as answer:
            return str(answer.read().decode())

    def __exit__(self, *exc: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        self._log.close()
        self._folder.cleanup()


# -- schemas


def plain_sql(text: str) -> str:
    """A statement without comments and layout."""
    text = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text)).strip()
    return re.sub(r" ?([(),]) ?", r"\1", text)


def sqlite(folder: Path) -> None:
    import apsw

    migrate = find("headrace.engines.sqlite.migrate", "headrace.engines.sqlite.store.schema")
    connection = apsw.Connection(":memory:")
    migrate.apply(connection, Path("memory"), datetime(2026, 1, 1, tzinfo=UTC))
    write(folder / "schema-sqlite.json", sqlite_schema(connection))
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name").fetchall()
    write(folder / "schema-sqlite.sql", "\n\n".join(f"-- {kind} {name}\n{sql}" for kind, name, sql in rows))


def sqlite_schema(connection: Any) -> dict[str, Any]:
    """What a file holds, however it came to be: the columns of tables in order, and all other statements."""
    found: dict[str, Any] = {}
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall():
        if kind == "table":
            columns = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
            end = plain_sql(sql).rpartition(")")[2].strip()
            found[f"table {name}"] = {
                "columns": [[str(part) for part in row[1:]] for row in columns],
                "generated": re.findall(r"\w+ INTEGER AS\(.*?\)\) \w+", plain_sql(sql)),
                "unique": sorted(re.findall(r"UNIQUE\(.*?\)|\w+ \w+ NOT NULL UNIQUE", plain_sql(sql))),
                "options": end,
                "numbered": "AUTOINCREMENT" in sql,
            }
        else:
            found[f"{kind} {name}"] = plain_sql(sql or "")
    found["rows of books"] = [list(row) for row in connection.execute("SELECT * FROM books").fetchall()]
    return found


CATALOGUES = {
    "relations": """
        SELECT c.relname::text, c.relkind::text, c.relpersistence::text, coalesce(c.reloptions::text, '')
        FROM pg_class c WHERE c.relnamespace = $1::regnamespace""",
    "columns": """
        SELECT c.relname::text, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname::text,
          format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text, a.attgenerated::text,
          coalesce(a.attcollation::regcollation::text, ''), a.attstorage::text,
          coalesce(pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = $1::regnamespace AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind <> 'i'""",
    "indexes": """
        SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname::text = $1::text""",
    "constraints": """
        SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = $1::regnamespace""",
    "views": """
        SELECT viewname::text, definition FROM pg_views WHERE schemaname::text = $1::text""",
    "sequences": """
        SELECT sequencename::text, data_type::text, start_value, increment_by, cycle, coalesce(last_value, 0)
        FROM pg_sequences WHERE schemaname::text = $1::text""",
    "triggers": """
        SELECT tgname::text, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = $1::regnamespace""",
    "functions": """
        SELECT proname::text, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace""",
}


def postgres(folder: Path) -> None:
    write(folder / "schema-postgres.json", asyncio.run(postgres_schema()))


async def postgres_schema() -> dict[str, Any]:
    import asyncpg

    migrate = find("headrace.engines.postgres.migrate", "headrace.engines.postgres.store.schema")
    server = find("tests.support.servers.postgres").shared()
    connection = await asyncpg.connect(server.url(server.create_database()))
    await migrate.apply(connection, '"headrace"', datetime(2026, 1, 1, tzinfo=UTC))
    found: dict[str, Any] = {}
    for name, text in CATALOGUES.items():
        rows = [list(row) for row in await connection.fetch(text, "headrace")]
        found[name] = sorted(rows, key=lambda row: [str(part).zfill(4) for part in row])
    found["rows of books"] = [list(row) for row in await connection.fetch("SELECT * FROM headrace.books")]
    await connection.close()
    return found


# -- the wire: values of every type that a verb takes or gives, which have between them each part in each form


AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
MANY: dict[Any, Any] = {list: list, Sequence: list, tuple: tuple, frozenset: frozenset}


def plain_values() -> dict[Any, list[Any]]:
    errors = importlib.import_module("headrace.errors")
    job, spec = find("headrace.core.job:Job"), find("headrace.core.job:Spec")
    status, verb = find("headrace.core.status:Status"), find("headrace.core.status:Verb")
    retry = find("headrace.core.retry:Retry", "headrace.core.lifecycle.retry:Retry")
    info = find("headrace.core.job:ErrorInfo", "headrace.core.attempt:ErrorInfo")
    one = job(
        id=ID,
        spec=spec(task="t", created_at=AT),
        payload_text="{}",
        status=status.QUEUED,
        available_at=AT,
        arrived_at=AT,
        updated_at=AT,
    )
    return {
        type(None): [None],
        bool: [True, False],
        int: [7, 0, 2**62],
        float: [1.5, 0.0],
        str: ["text", "", 'üñ\0 "'],
        bytes: [b"x", b""],
        UUID: [ID],
        datetime: [AT],
        Any: ["text", {"a": [1, None, 2.5]}],
        retry: [retry(), retry(0, backoff=[1, 2], retry_on=[OSError], give_up_on=["Mine"])],
        errors.HeadraceError: [
            errors.ConfigError("a setting that cannot be"),
            errors.TransitionRefused(one, verb.SUBMIT, "its parent has ended"),
            errors.JobNotFound(ID),
            errors.Duplicate(one),
            errors.KeyReused(one),
            errors.Stale(one),
            errors.JobFailed(one, info("ValueError", "no", None, {"a": 1})),
            errors.NotOpen("not open"),
            errors.Overloaded("full"),
            errors.Unstorable("half a character"),
            errors.SchemaTooNew("newer"),
            errors.SchemaTooOld("older"),
            errors.Unavailable("away", outcome="unknown", ids=[ID]),
            errors.StoreLost("gone", outcome="refused"),
        ],
    }


def samples(kind: Any, plain: dict[Any, list[Any]]) -> list[Any]:
    origin, args = get_origin(kind), get_args(kind)
    if kind in plain:
        return plain[kind]
    if origin in (Union, types.UnionType):
        return [value for one in args for value in samples(one, plain)]
    if origin is Literal:
        return list(args)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return [tuple(samples(one, plain)[0] for one in args)]
    if origin in MANY:
        return [MANY[origin](samples(args[0], plain)), MANY[origin](())]
    if origin in (dict, Mapping):
        keys = samples(args[0], plain)
        return [dict(zip(keys, cycle(samples(args[1], plain)), strict=False)), {}]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)
    struct: Any = origin or kind
    if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
        raise TypeError(f"no samples of {kind}")
    return structs(struct, args, plain)


def structs(struct: Any, args: tuple[Any, ...], plain: dict[Any, list[Any]]) -> list[Any]:
    hints = get_type_hints(struct)
    of = dict(zip(getattr(struct, "__parameters__", ()), args, strict=True))
    fields = {name: samples(filled(hints[name], of), plain) for name in struct.__struct_fields__}
    most = max(map(len, fields.values()), default=1)
    columns = [list(islice(cycle(values), most)) for values in fields.values()]
    return [struct(**dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True)] or [struct()]


def filled(hint: Any, of: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return of[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(of[one] for one in parameters)] if parameters else hint


def wire(folder: Path) -> None:
    module = find("headrace.engine.wire", "headrace.runtime.wire")
    plain, found = plain_values(), {}

    def told(values: Iterable[Any]) -> list[str]:
        return [module.encode(value).hex() for value in values]

    for verb in next(getattr(module, name) for name in ("VERBS", "CALLS", "WIRE_CALLS") if hasattr(module, name)):
        found[f"{verb.path}: takes"] = told(structs(verb.takes, (), plain))
        found[f"{verb.path}: gives"] = told(samples(verb.gives, plain))
    for name in ("Hello", "Listening", "Hints"):
        found[name] = told(samples(getattr(module, name), plain))
    found["protocol"] = [str(module.PROTOCOL), str(getattr(module, "MIN_PROTOCOL", None) or module.OLDEST)]
    write(folder / "wire.json", found)


# -- command line, metrics, logs


def exit_codes(folder: Path) -> None:
    module = find("headrace.cli.failures", "headrace.cli.output.failures", "headrace.cli.exit_codes")
    errors = importlib.import_module("headrace.errors")
    kinds = {name: getattr(errors, name) for name in errors.__all__}
    single = {name: kind for name, kind in kinds.items() if not issubclass(kind, BaseExceptionGroup)}
    found = {name: module.code_of(kind.__new__(kind)) for name, kind in single.items()}
    found |= {"KeyboardInterrupt": module.code_of(KeyboardInterrupt()), "ValueError": module.code_of(ValueError())}
    names = [name for name in module.__all__ if name.isupper()]
    write(folder / "exit-codes.json", {"errors": found, "names": {name: getattr(module, name) for name in names}})


def metrics(folder: Path) -> None:
    from headrace import App
    from headrace.contrib.prometheus import HeadraceCollector

    families = HeadraceCollector(App("memory://")).describe()
    rows = [
        [family.name, family.type, list(getattr(family, "_labelnames", ())), family.documentation]
        for family in families
    ]
    write(folder / "metrics.json", sorted(rows))
    with Hub() as hub:
        hub.get("/api/version")
        served = sorted({line for line in hub.get("/metrics").splitlines() if line.startswith("# TYPE headrace")})
    write(folder / "metrics-of-hub.txt", "\n".join(served))


TASKS = """
import logging
from headrace import App, Retry
app = App()

@app.task
async def fine():
    logging.getLogger("mine").warning("said within")

@app.task(retry=Retry(1))
async def fails():
    raise ValueError("no")
"""


def logs(folder: Path) -> None:
    """Names of loggers and fields by reading the sources, and the fields of what a worker and a hub really write."""
    loggers, extras = set(), set()
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "getLogger" and node.args and isinstance(node.args[0], ast.Constant):
                loggers.add(node.args[0].value)
            for word in node.keywords:
                if word.arg == "extra":
                    keys = (key for one in ast.walk(word.value) if isinstance(one, ast.Dict) for key in one.keys)
                    extras |= {key.value for key in keys if isinstance(key, ast.Constant)}
    fields = find(
        "headrace.core.account:FIELDS",
        "headrace.core.lifecycle.account:FIELDS",
        "headrace.core.attempt:FIELDS",
        "headrace.core.attempt_summary:FIELDS",
        "headrace.logs:FIELDS",
    )
    found: dict[str, Any] = {"loggers": sorted(loggers), "extras": sorted(extras), "fields": list(fields)}
    found["worker"], found["hub"] = worker_fields(), hub_fields()
    write(folder / "logs.json", found)


def keys_of(text: str) -> list[str]:
    seen = set()
    for line in text.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            seen.add(" ".join([said["logger"], str(said.get("event", "-")), *sorted(said)]))
    return sorted(seen)


def worker_fields() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tasks_of_record.py").write_text(TASKS)
        url = f"sqlite:///{folder}/jobs.db"
        environment = os.environ | {"HEADRACE_URL": url, "PYTHONPATH": folder}
        for task in ("fine", "fails"):
            command = [*PYTHON, "-m", "headrace", "submit", "--app", "tasks_of_record", task]
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        command = [*PYTHON, "-m", "headrace", "worker", "tasks_of_record", "--burst", "-v", "--log-format", "json"]
        done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        return keys_of(done.stderr)


def hub_fields() -> list[str]:
    with Hub() as hub:
        hub.get("/api/version")
        hub.get("/api/jobs")
        return keys_of(hub.log())


# -- times, and what a lone submit passes


def times(folder: Path) -> None:
    headrace = str(Path(sys.executable).with_name("headrace"))
    what = {"python -c pass": [*PYTHON, "-c", "pass"], "import headrace": [*PYTHON, "-c", "import headrace"]}
    what["headrace --help"] = [headrace, "--help"]
    found = {name: [cost_of(command) for _ in range(11)][1:] for name, command in what.items()}
    medians = {name: round(statistics.median(costs) * 1000, 2) for name, costs in found.items()}
    loaded = "import sys, headrace; print(sum(name.startswith('headrace') for name in sys.modules), len(sys.modules))"
    counts = subprocess.run([*PYTHON, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    write(folder / "times.json", {"CPU ms, median of 10": medians, "modules of headrace, all": counts})


def cost_of(command: list[str]) -> float:
    """CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=tempfile.gettempdir())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lone_submit(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        calls = asyncio.run(traced(f"sqlite:///{place}/jobs.db"))
    modules = sorted({name.partition(":")[0] for name in calls})
    write(folder / "lone-submit.json", {"calls": calls, "modules": modules, "counts": [len(calls), len(modules)]})


async def traced(url: str) -> list[str]:
    """The functions of headrace that a submit calls on the thread of its caller, in order."""
    from headrace import App

    app = App(url)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    calls: list[str] = []
    seen: list[types.FrameType] = []

    def profile(frame: types.FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        # A coroutine that goes on is called again; what is kept is the frame, so that its number is not used twice.
        if event == "call" and "headrace" in code.co_filename and all(frame is not one for one in seen):
            seen.append(frame)
            module = frame.f_globals["__name__"]
            if module.startswith("headrace"):
                calls.append(f"{module}:{getattr(code, 'co_qualname', code.co_name)}")

    async with app:
        for number in range(20):
            await add.submit(number, 1)
            await asyncio.sleep(0.01)
        sys.setprofile(profile)
        try:
            await add.submit(1, 2)
        finally:
            sys.setprofile(None)
    return calls


PARTS: dict[str, Callable[[Path], None]] = {
    "tests": names_of_tests,
    "pages": pages,
    "openapi": openapi,
    "sqlite": sqlite,
    "postgres": postgres,
    "wire": wire,
    "exit": exit_codes,
    "metrics": metrics,
    "logs": logs,
    "times": times,
    "submit": lone_submit,
}


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets travel in the order of their hashes
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    logging.disable(logging.CRITICAL)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or PARTS:
        PARTS[name](folder)
        print(name)


if __name__ == "__main__":
    main()
