"""Guards the shape of the tree: the rules hold for the sources, and each rule can tell when it is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house import rules

PACKAGE = Path(__file__).parents[2] / "src" / "headrace"

RULES = [
    rules.oversized,
    rules.undocumented,
    rules.impure,
    rules.stray_readings,
    rules.stray_conflicts,
    rules.stray_pauses,
    rules.crossed_engines,
    rules.stray_engines,
    rules.shared_numbers,
    rules.raw_speech,
    rules.crowded,
    rules.no_nouns,
    rules.bare_numbers,
    rules.mute_packages,
    rules.stray_tests,
]


def tree(tmp_path: Path, files: dict[str, str]) -> Path:
    """A package called headrace with the given files."""
    root = tmp_path / "headrace"
    root.mkdir()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


# The sources


def test_the_sources_are_where_the_rules_look() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.xdist_group("house rules")  # one process parses the sources
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_sources_keep(rule: Callable[[Path], list[str]]) -> None:
    findings = rule(PACKAGE)
    assert not findings, "\n".join([rule.__doc__ or "", *findings])


def test_no_folder_of_tests_is_crowded() -> None:
    assert rules.crowded(PACKAGE.parents[1] / "tests") == []


def test_every_exception_has_a_reason() -> None:
    lists = [rules.MAY_READ, rules.MAY_CONNECT, rules.MAY_EXAMINE, rules.MAY_GROW]
    assert all(reason.strip() for exceptions in lists for reason in exceptions.values())


# The rules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_an_empty_tree_keeps_every_rule(rule: Callable[[Path], list[str]], tmp_path: Path) -> None:
    assert rule(tree(tmp_path, {})) == []


def test_a_long_module_is_found(tmp_path: Path) -> None:
    root = tree(tmp_path, {"long.py": "x = 1\n" * 601, "right.py": "x = 1\n" * 600})
    assert rules.oversized(root) == ["long.py: 601 lines, at most 600"]


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(verdict, Conflict)",
        "type(verdict) is change.Conflict",
        "match verdict:\n case Conflict(): pass",
        "isinstance(verdict, (Applied, Conflict))",
    ],
)
def test_a_conflict_that_is_examined_elsewhere_is_found(source: str, tmp_path: Path) -> None:
    fine = dict.fromkeys(("core/change.py", "runtime/writes/decision.py", "worker/owned_job.py"), source)
    root = tree(tmp_path, {"hub/x.py": source, "engines/x.py": "return_(Conflict(job, too_many=why))", **fine})
    line = 2 if source.startswith("match") else 1
    assert rules.stray_conflicts(root) == [f"hub/x.py:{line}: examines Conflict"]


@pytest.mark.parametrize(
    "source",
    [
        "pause = min(pause * 2, 5.0)",
        "pause = min(2 * pause, MAX_PAUSE_SECONDS)",
        "self._pause = FIRST if heard else min(self._pause * FACTOR, MAX)",
        "poll, self._poll = self._poll, min(self._poll * 1.5, MAX)",
    ],
)
def test_a_pause_that_grows_by_itself_is_found(source: str, tmp_path: Path) -> None:
    loop = f"async def run():\n await host.sleep(pause)\n {source}"
    fine = {
        "hub/y.py": loop.replace(source, "left = min(left, 5.0 * pause)"),
        "hub/z.py": f"def plan():\n {source}",
        "runtime/retries.py": loop,
    }
    assert rules.stray_pauses(tree(tmp_path, {"hub/x.py": loop, **fine})) == ["hub/x.py:3: a pause that grows"]


def test_a_migration_without_a_number_of_its_own_is_found(tmp_path: Path) -> None:
    names = ("0009_acts", "0012_a", "0012_b", "13_c")
    files = {f"engines/postgres/migrations/{name}.sql": "" for name in names}
    assert rules.shared_numbers(tree(tmp_path, files)) == [
        "postgres/migrations/0012_a.sql: another migration has this number",
        "postgres/migrations/0012_b.sql: another migration has this number",
        "postgres/migrations/13_c.sql: no number of four digits",
    ]


def test_a_public_module_without_docstring_is_found(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "said.py": '"""Says it."""\n',
            "mute.py": "x = 1\n",
            "_private.py": "x = 1\n",
            "_rooms/inner.py": "x = 1\n",
            "core/__init__.py": "",
        },
    )
    assert rules.undocumented(root) == ["core/__init__.py: no docstring", "mute.py: no docstring"]


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("import asyncio", "imports asyncio"),
        ("import time as t", "imports time"),
        ("import os.path", "imports os.path"),
        ("from random import choice", "imports random.choice"),
        ("from threading import Lock", "imports threading.Lock"),
        ("def f():\n    import socket", "imports socket"),
        ("from datetime import datetime\nnow = datetime.now()", "reads datetime.datetime.now"),
        ("import datetime as dt\nnow = dt.datetime.now(dt.UTC)", "reads datetime.datetime.now"),
        ("from uuid import uuid4\nmade = uuid4()", "reads uuid.uuid4"),
    ],
)
def test_an_impure_core_is_found(source: str, finding: str, tmp_path: Path) -> None:
    root = tree(tmp_path, {"core/job.py": source, "worker/runner.py": "import asyncio"})
    line = source.count("\n") + 1
    assert rules.impure(root) == [f"core/job.py:{line}: {finding}"]


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime, timedelta\n\ndef due(now: datetime):\n    return now + timedelta(1)",
        "from uuid import UUID\n\ndef short(id: UUID) -> str:\n    return str(id)[:8]",
        "from headrace.core import time, random",
        "from . import time",
    ],
)
def test_a_pure_core_is_left_alone(source: str, tmp_path: Path) -> None:
    assert rules.impure(tree(tmp_path, {"core/job.py": source})) == []


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("import time\ntime.time()", "reads time.time"),
        ("import time as t\nt.monotonic()", "reads time.monotonic"),
        ("from time import monotonic as tick\ntick()", "reads time.monotonic"),
        ("from time import time\nclock = time", "reads time.time"),
        ("from datetime import datetime\ndatetime.now()", "reads datetime.datetime.now"),
        ("import random\nrandom.random()", "reads random.random"),
        ("from random import Random\nRandom(1)", "reads random.Random"),
        ("import secrets\nsecrets.token_hex()", "reads secrets.token_hex"),
    ],
)
def test_a_stray_reading_is_found(source: str, finding: str, tmp_path: Path) -> None:
    root = tree(tmp_path, {"worker/runner.py": source})
    assert rules.stray_readings(root) == [f"worker/runner.py:2: {finding}"]


def test_only_the_doors_may_read_time(tmp_path: Path) -> None:
    source = "import time\ntime.time()\n"
    names = ["runtime/clock.py", "runtime/host.py", "cli/demo/command.py", "worker/clock.py", "client.py"]
    root = tree(tmp_path, dict.fromkeys(names, source))
    assert rules.stray_readings(root) == ["client.py:2: reads time.time", "worker/clock.py:2: reads time.time"]


def test_asking_the_clock_is_no_reading(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"worker/runner.py": "import time\n\ndef f(clock):\n    return clock.now(), time.strftime('')\n"}
    )
    assert rules.stray_readings(root) == []


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("import headrace.engines.memory", "headrace.engines.memory"),
        ("from headrace.engines import memory", "headrace.engines.memory"),
        ("from headrace.engines.memory import Memory", "headrace.engines.memory.Memory"),
        ("from .. import memory", "headrace.engines.memory"),
        ("from ..memory import Memory", "headrace.engines.memory.Memory"),
        ("name = 'headrace.engines.memory:Memory'", "headrace.engines.memory"),
    ],
)
def test_an_engine_that_names_another_is_found(source: str, finding: str, tmp_path: Path) -> None:
    root = tree(tmp_path, {"engines/memory.py": "", "engines/sqlite/store.py": source})
    assert rules.crossed_engines(root) == [f"engines/sqlite/store.py:1: names {finding}"]


def test_an_engine_may_name_itself_and_what_it_is_built_on(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "engines/__init__.py": '"""See headrace.engines.memory and headrace.engines.sqlite."""',
            "engines/memory.py": '"""The model of headrace.engines.sqlite, too."""',
            "engines/sqlite/store.py": "from headrace.engines.sqlite import rows\nfrom . import sql",
            "engines/objects/store.py": "from headrace.engines.memory import Memory",
        },
    )
    assert rules.crossed_engines(root) == []


def test_what_an_engine_is_built_on_is_no_licence_for_more(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"engines/sqlite/store.py": "", "engines/tiered/store.py": "from headrace.engines import sqlite"}
    )
    assert rules.crossed_engines(root) == ["engines/tiered/store.py:1: names headrace.engines.sqlite"]


def test_only_one_file_names_engines(tmp_path: Path) -> None:
    source = "from headrace.engines.memory import Memory\n"
    names = ["engines/connect.py", "conformance/model.py", "app.py", "maintenance/sweeper.py"]
    root = tree(tmp_path, {"engines/memory.py": "", **dict.fromkeys(names, source)})
    assert rules.crossed_engines(root) == []
    assert rules.stray_engines(root) == [
        "app.py:1: names headrace.engines.memory.Memory",
        "maintenance/sweeper.py:1: names headrace.engines.memory.Memory",
    ]


@pytest.mark.parametrize(
    "source", ["import click\nclick.echo('a')\n", "from click import echo\n", "from rich.text import Text\n"]
)
def test_a_command_that_speaks_past_the_one_place_is_found(source: str, tmp_path: Path) -> None:
    [finding] = rules.raw_speech(
        tree(tmp_path, {"cli/commands/jobs.py": source, "cli/output/console.py": source, "hub/a.py": source})
    )
    assert finding.startswith("cli/commands/jobs.py:")


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    modules = {f"core/m{number}.py": "" for number in range(25)}
    data = {f"core/sql/{number}.sql": "" for number in range(30)}
    root = tree(tmp_path, {**modules, **data, "core/limits/rate.py": ""})
    assert rules.crowded(root) == []
    (root / "core" / "one_more.py").touch()
    assert rules.crowded(root) == ["headrace/core: 27 entries, at most 26"]


def test_a_crowded_folder_of_tests_is_found(tmp_path: Path) -> None:
    root = tmp_path / "tests"
    for name in [*(f"test_{number}.py" for number in range(26)), "crash/test_kill.py", "house/rules.py"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    assert rules.crowded(root) == []
    (root / "core").mkdir()
    (root / "core" / "test_job.py").touch()
    assert rules.crowded(root) == ["tests: 27 entries, at most 26"]


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("core/refusing.py", "refusing is no noun"),
        ("core/left_behind_and_counted.py", "counted is no noun"),
        ("core/readable.py", "readable is no noun"),
        ("client/serving/__init__.py", "serving is no noun"),
        ("hub/rooms.py", "rooms is a metaphor"),
        ("hub/lead_times.py", "lead is a metaphor"),
        ("hub/front.py", "front is reserved for the first of two tiers"),
    ],
)
def test_a_name_that_is_no_noun_is_found(name: str, finding: str, tmp_path: Path) -> None:
    fine = ["held_job.py", "explain/queued.py", "explain/waiting.py", "matching/fit.py", "feed.py"]
    assert rules.no_nouns(tree(tmp_path, dict.fromkeys([name, *fine], ""))) == [f"{name}: {finding}"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("MOST = 1000", "MOST"),
        ("_KEPT: float = 7 * 86400.0", "_KEPT"),
        ("LONGEST = timedelta(days=1)", "LONGEST"),
        ("PAGE_JOBS, _TRIES = 50, 20", "_TRIES"),
        ("MOST = {'thread': 1000}", "MOST"),
        ("HEAD_MOST = 32 * 1024", "HEAD_MOST"),
    ],
)
def test_a_number_with_a_bare_name_is_found(source: str, name: str, tmp_path: Path) -> None:
    fine = "MAX_CLAIM_JOBS = 1000\nPOLL_MAX_SECONDS = 5.0\nPAGE = 'a page'\n\ndef f(most: int = 3): LONGEST = 3\n"
    root = tree(
        tmp_path, {"worker/claim.py": fine + source, "dashboard/drawings/charts.py": "WIDE, HIGH = 960.0, 180.0"}
    )
    assert rules.bare_numbers(root) == [f"worker/claim.py:6: {name} has no noun and no unit"]


def test_a_package_that_does_not_say_what_is_here_is_found(tmp_path: Path) -> None:
    said = '"""From the store to a slot. Begin with ``fetcher``. Imports: ``runtime``."""'
    many = [f"{number}.py" for number in range(4)]
    root = tree(
        tmp_path,
        {
            "__init__.py": '"""A durable job system."""',
            "small/__init__.py": '"""One attempt of one job."""',
            "word/__init__.py": '"""Jobs"""',
            "none/job.py": "",
            **{f"large/{name}": "" for name in many},
            "large/__init__.py": '"""One attempt of one job."""',
            **{f"told/{name}": "" for name in many},
            "told/__init__.py": said,
        },
    )
    assert rules.mute_packages(root) == [
        "large/__init__.py: no word of begin",
        "large/__init__.py: no word of import",
        "none/__init__.py: missing",
        "word/__init__.py: no sentence says what is here",
    ]


def test_a_test_that_is_elsewhere_than_its_module_is_found(tmp_path: Path) -> None:
    packages = ["__init__.py", "core/__init__.py", "worker/__init__.py"]
    root = tree(tmp_path, dict.fromkeys([*packages, "app.py", "core/job.py", "worker/slots.py"], ""))
    fine = ["test_app.py", "test_flow.py", "core/test_job.py", "core/test_job_derived.py", "worker/test_worker.py"]
    for name in [*fine, "worker/test_job.py", "pool/test_size.py", "crash/test_job.py", "core/site/manage.py"]:
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert rules.stray_tests(root, tmp_path / "tests") == [
        "pool/test_size.py: pool is no package",
        "worker/test_job.py: job is in core",
    ]
