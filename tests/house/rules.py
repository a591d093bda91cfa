"""The rules of the house as functions: each takes the root of the package and returns what breaks the rule.

A finding reads `path:line: what`, so a failing test names the places. Nothing is imported: the sources are only parsed.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

MAX_LINES = 600

IMPURE_MODULES = frozenset(
    {"asyncio", "multiprocessing", "os", "random", "secrets", "selectors", "socket", "subprocess", "threading", "time"}
)
"""What core/ may not import: it decides from its arguments alone."""

READINGS = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "os.urandom",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.time",
        "time.time_ns",
        "uuid.uuid1",
        "uuid.uuid4",
    }
)
"""Names that read a clock or roll dice. The modules in DICE do so whatever is taken from them."""

DICE = frozenset({"random", "secrets"})

MAY_READ: Mapping[str, str] = {
    "runtime/clock.py": "Clock and Dice are the doors to time and chance",
    "runtime/host.py": "Host makes ids, threads and sleeps for everyone else",
    "runtime/secrets.py": "secrets are the system's, never those of Dice, which can be seeded",
    "cli": "a command lives in real time and ends with its process",
}
"""Files and folders, from the package root, that may read time and dice directly, each with its reason."""

MAY_NAME: Mapping[str, frozenset[str]] = {
    "tiered": frozenset({"memory"}),
    "objects": frozenset({"memory"}),
}
"""Engines that are built on another one."""

COMMON = frozenset({"connect", "limits_cache", "sql", "validation"})
"""Modules beside the engines that are none: what several of them share, and what makes them."""

MAY_CONNECT: Mapping[str, str] = {
    "engines/connect.py": "turns a URL into an engine, for everyone else",
    "conformance": "compares every engine with the memory engine, the model",
    "testing/exhaustive": "copies the memory engine's state, and looks into it",
}
"""Files and folders that may name an engine which is not their own, each with its reason."""

MAY_EXAMINE: Mapping[str, str] = {
    "core": "judge makes verdicts, and until_applied says what each one means",
    "runtime/writes": "decision drives until_applied, duplicates inserts again instead",
    "worker/owned_job.py": "is a ticket with callbacks, not a coroutine",
    "worker/heartbeat.py": "writes many decisions at once",
    "conformance": "shows which verdict an engine returns",
}
"""Files and folders that may examine a conflict, each with its reason; all others call ``write_decision``."""

MAY_GROW: Mapping[str, str] = {
    "runtime/retries.py": "Pauses, for everyone else",
}
"""Files that may make their own pauses longer and longer, each with its reason."""

MAX_ENTRIES = 26

BARE_WORDS = frozenset(
    {
        *("AGAIN", "APART", "AT_ONCE", "COUNTED", "DEEPEST", "EVERY", "FAR", "FEW", "FIRST", "FRESH", "GAP", "GROWTH"),
        *("HURRY", "KEPT", "LARGEST", "LATE", "LEAST", "LISTED", "LONG", "LONGEST", "LOOK", "LOOKED_AT", "LOOKS"),
        *("MADE_OF", "MANY", "MOMENT", "MOST", "MUCH", "NAMED", "OFTEN", "OLD", "OLDEST", "PAGE", "PATIENCE", "PAUSE"),
        *("RARE", "REMEMBERED", "SHARE", "SHORT", "SHORTEST", "SHOWN", "SLACK", "TICK", "TOLD", "TRIES", "WAITED"),
        *("WIDE", "WITHIN"),
    }
)
"""Names of numbers that say neither of what they are nor in which unit: MAX_CLAIM_JOBS and POLL_MAX_SECONDS do."""
DRAWINGS = "dashboard/drawings"
"""Lengths of a drawing have no other unit than the drawing's own, and are called WIDE and HIGH."""

KINDS = frozenset(
    {
        "bench",
        "coming_from",
        "conformance",
        "crash",
        "docs",
        "house",
        "model",
        "simulation",
        "soak",
        "support",
        "typing",
    }
)
"""Folders of tests/ that mirror no package: helpers, and tests by their kind and not by what they test."""

STATUSES = frozenset({"queued", "waiting"})
FIELD_WORDS = frozenset({"matching", "encoding", "fencing", "tracing", "testing"})
"""Participles that are nouns of the field."""
NOUNS = frozenset({"feed", "table"})
"""Nouns that only end like a participle or an adjective."""
METAPHORS = frozenset(
    {
        *("audience", "audiences", "book", "books", "chamber", "deathwatch", "desk", "door", "doors", "gate", "gates"),
        *("house", "kin", "kitchen", "lane", "lanes", "lead", "leads", "ledger", "meeting", "meetings", "news", "room"),
        *("rooms", "shelf", "stage", "standing", "vault", "window", "windows"),
    }
)
"""Words that say what a thing is like, and not what it is."""
RESERVED: Mapping[str, str] = {"front": "the first of two tiers"}


def oversized(root: Path, limit: int = MAX_LINES) -> list[str]:
    """Modules that are more than one thought."""
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _modules(root)}
    return [f"{_name(root, path)}: {size} lines, at most {limit}" for path, size in sizes.items() if size > limit]


def undocumented(root: Path) -> list[str]:
    """Public modules and packages that do not say what they are for."""
    return [
        f"{_name(root, path)}: no docstring"
        for path in _modules(root)
        if _is_public(path.relative_to(root)) and not ast.get_docstring(_parse(path))
    ]


def impure(root: Path) -> list[str]:
    """Places in core/ that import the outside world, read a clock or roll dice."""
    findings = []
    for path in _modules(root / "core"):
        tree = _parse(path)
        imports = [
            (line, f"imports {module}")
            for line, module in _imports(tree, _package(root, path))
            if module.partition(".")[0] in IMPURE_MODULES
        ]
        reads = [(line, f"reads {name}") for line, name in _readings(tree)]
        findings += [f"{_name(root, path)}:{line}: {what}" for line, what in sorted({*imports, *reads})]
    return findings


def stray_readings(root: Path, allowed: Mapping[str, str] = MAY_READ) -> list[str]:
    """Places that read time or dice without going through Clock, Dice or Host."""
    return [
        f"{_name(root, path)}:{line}: reads {name}"
        for path in _modules(root)
        if not _within(_name(root, path), allowed)
        for line, name in _readings(_parse(path))
    ]


def stray_conflicts(root: Path, allowed: Mapping[str, str] = MAY_EXAMINE) -> list[str]:
    """Places that examine a Conflict, as if to decide again themselves; engines only make one."""
    findings = []
    for path in _modules(root):
        if _within(_name(root, path), allowed):
            continue
        nodes = list(ast.walk(_parse(path)))
        made = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and id(node) not in made]
        lines = sorted(
            node.lineno for node in names if "Conflict" in (getattr(node, "id", ""), getattr(node, "attr", ""))
        )
        findings += [f"{_name(root, path)}:{line}: examines Conflict" for line in lines]
    return findings


def stray_pauses(root: Path, allowed: Mapping[str, str] = MAY_GROW) -> list[str]:
    """Functions that sleep or wait and make the pause longer themselves: ``pause = min(pause * 2, MAX_SECONDS)``."""
    findings = []
    for path in _modules(root):
        if not _within(_name(root, path), allowed):
            functions = [node for node in ast.walk(_parse(path)) if isinstance(node, ast.AsyncFunctionDef)]
            nodes = [node for function in functions if _sleeps(function) for node in ast.walk(function)]
            lines = sorted({node.lineno for node in nodes if isinstance(node, ast.Assign) and _grows(node)})
            findings += [f"{_name(root, path)}:{line}: a pause that grows" for line in lines]
    return findings


def _sleeps(function: ast.AsyncFunctionDef) -> bool:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in ("sleep", "wait") for call in calls)


def _grows(node: ast.Assign) -> bool:
    """Whether what is assigned to is, times a factor, one of the arguments of ``min`` on the right."""
    targets = {ast.unparse(part) for target in node.targets for part in ast.walk(target) if isinstance(part, ast.expr)}
    calls = [call for call in ast.walk(node.value) if isinstance(call, ast.Call) and ast.unparse(call.func) == "min"]
    products = [
        one for call in calls for one in call.args if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult)
    ]
    return any(ast.unparse(side) in targets for one in products for side in (one.left, one.right))


def crossed_engines(root: Path, allowed: Mapping[str, frozenset[str]] = MAY_NAME) -> list[str]:
    """Places where one engine names another, by import or by dotted name in a string."""
    home = root / "engines"
    findings = []
    for path in _modules(home):
        if _within(_name(root, path), MAY_CONNECT):
            continue
        own = PurePosixPath(path.relative_to(home).parts[0]).stem
        fine = {own, *allowed.get(own, ())}
        named = _engines_named(root, path)
        findings += [f"{_name(root, path)}:{line}: names {name}" for line, name, engine in named if engine not in fine]
    return findings


def stray_engines(root: Path, allowed: Mapping[str, str] = MAY_CONNECT) -> list[str]:
    """Places outside engines/ that name an engine although ``engines/connect.py`` gives them one."""
    return [
        f"{_name(root, path)}:{line}: names {name}"
        for path in _modules(root)
        if not _within(_name(root, path), {"engines", *allowed})
        for line, name, _ in _engines_named(root, path)
    ]


SAYS: Mapping[str, str] = {
    "click.echo": "cli/output/console.py, whose echo spells out control characters",
    "click.secho": "cli/output/console.py, whose echo spells out control characters",
    "rich.text.Text": "cli/output/text.py, whose Text spells out control characters",
    "rich.print": "cli/output/console.py, whose console spells out control characters",
}
"""What gives a terminal text as it is, and who does so for everyone else in cli/."""

MAY_SAY = frozenset({"cli/output/console.py", "cli/output/text.py"})


def raw_speech(root: Path) -> list[str]:
    """Places in cli/ that show text past the one place where it is made printable."""
    findings = []
    for path in _modules(root / "cli"):
        if str(_name(root, path)) in MAY_SAY:
            continue
        tree = _parse(path)
        used = {(line, name) for line, name in _imports(tree, _package(root, path)) if name in SAYS}
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        used |= {(node.lineno, "click.echo") for node in attributes if _is_echo(node)}
        findings += [f"{_name(root, path)}:{line}: {name} is for {SAYS[name]}" for line, name in sorted(used)]
    return findings


def _is_echo(node: ast.Attribute) -> bool:
    return node.attr in ("echo", "secho") and isinstance(node.value, ast.Name) and node.value.id == "click"


def _engines_named(root: Path, path: Path) -> list[tuple[int, str, str]]:
    """Line, dotted name and engine, for each engine of the tree that a module imports or spells out."""
    home = root / "engines"
    engines = {entry.stem for entry in home.glob("*") if entry.suffix == ".py" or entry.is_dir()} - COMMON
    tree = _parse(path)
    names = sorted({*_imports(tree, _package(root, path)), *_strings(tree)})
    split = [(line, name, name.split(".")) for line, name in names]
    prefix = [root.name, home.name]
    return [
        (line, name, parts[2])
        for line, name, parts in split
        if parts[:2] == prefix and len(parts) > 2 and parts[2] in engines
    ]


def crowded(root: Path, limit: int = MAX_ENTRIES) -> list[str]:
    """Folders with more than 26 entries.

    An entry is a Python module or a folder that holds some; ``__init__.py`` is one, data (SQL, templates, static files)
    is none. In the root of the tests, the folders of ``KINDS`` are not counted: there are as many others as packages.
    """
    folders = sorted({folder for path in _modules(root) for folder in path.relative_to(root).parents})
    findings = []
    for folder in folders:
        here = root / folder
        entries = {path.relative_to(here).parts[0] for path in _modules(here)}
        if root.name == "tests" and folder == Path():
            entries -= KINDS
        if len(entries) > limit:
            findings.append(f"{root.name / folder}: {len(entries)} entries, at most {limit}")
    return findings


def bare_numbers(root: Path) -> list[str]:
    """Numbers and durations of a module with a name that has no noun: MOST, KEPT, _TRIES, MOST_LINES, HEAD_MOST."""
    findings = []
    for path in _modules(root):
        for line, name in _numbers(_parse(path)):
            words = name.strip("_").upper()
            parts = {words.split("_")[0], words.split("_")[-1]} & {"MOST", "LONGEST", "PATIENCE"}
            drawn = words == "WIDE" and (_within(_name(root, path), [DRAWINGS, "dashboard/pages"]))
            if (words in BARE_WORDS or parts) and not drawn:
                findings.append(f"{_name(root, path)}:{line}: {name} has no noun and no unit")
    return findings


def _numbers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of what a module binds to a number, a duration, or a table of them."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and _is_number(value):
                    yield node.lineno, name.id


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) or _is_number(node.right)
    if isinstance(node, ast.Dict):
        return any(_is_number(value) for value in node.values)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "timedelta"


def no_nouns(root: Path) -> list[str]:
    """Modules and packages whose names are no nouns of the field.

    The last word of a name is no participle and no adjective in -able: words before it may qualify it (`held_job`).
    """
    findings = []
    for path in _modules(root):
        name = _name(root, path)
        words = (name.parent.name if name.name == "__init__.py" else name.stem).lower().split("_")
        last = words[-1]
        if last.endswith(("ing", "ed", "able")) and last not in STATUSES | FIELD_WORDS | NOUNS:
            findings.append(f"{name}: {last} is no noun")
        findings += [f"{name}: {word} is a metaphor" for word in words if word in METAPHORS]
        findings += [f"{name}: {word} is reserved for {RESERVED[word]}" for word in words if word in RESERVED]
    return findings


def mute_packages(root: Path) -> list[str]:
    """Packages whose docstrings do not say what is here.

    A docstring is a sentence at least. With more than three modules beside it, it also says where to begin and what
    they import.
    """
    findings = []
    for folder in sorted({path.parent for path in _modules(root)}):
        path = folder / "__init__.py"
        if not path.is_file():
            findings.append(f"{_name(root, path)}: missing")
            continue
        said = " ".join((ast.get_docstring(_parse(path)) or "").lower().split())
        wanted = ["begin", "import"] if len(list(folder.glob("*.py"))) > 4 else []
        if len(said.split()) < 3 or "." not in said:
            findings.append(f"{_name(root, path)}: no sentence says what is here")
        findings += [f"{_name(root, path)}: no word of {word}" for word in wanted if word not in said]
    return findings


def stray_tests(root: Path, tests: Path | None = None) -> list[str]:
    """Tests that are not where what they test is.

    A folder that holds tests is named like a package. ``test_<module>.py`` and ``test_<module>_<topic>.py`` are in the
    folder of that module; a test whose name is that of no module is about a topic, and may be in any of them.
    """
    tests = tests or root.parents[1] / "tests"
    homes: dict[str, set[PurePosixPath]] = {}
    for path in _modules(root):
        name = _name(root, path)
        name = name.parent if name.name == "__init__.py" else name
        homes.setdefault(name.stem, set()).add(name.parent)
    findings = []
    for path in sorted(tests.rglob("test_*.py")):
        name = _name(tests, path)
        folder, topic = name.parent, name.stem.removeprefix("test_")
        if name.parts[0] in KINDS:
            continue
        if not (root / folder / "__init__.py").is_file():
            findings.append(f"{name}: {folder} is no package")
        elif not any(_is_about(topic, module) and folder in places for module, places in homes.items()):
            found = homes.get(topic, set()) - {folder.parent} if topic == folder.name else homes.get(topic)
            findings += [f"{name}: {topic} is in {min(map(str, found))}"] if found else []
    return findings


def _is_about(topic: str, module: str) -> bool:
    return topic == module or topic.startswith(f"{module}_")


def _within(name: PurePosixPath, places: Iterable[str]) -> bool:
    return any(name.is_relative_to(place) for place in places)


def _modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def _parse(path: Path) -> ast.Module:
    return _parsed(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def _parsed(text: str, name: str) -> ast.Module:
    """The tree of a source, parsed once for all rules."""
    return ast.parse(text, filename=name)


def shared_numbers(root: Path) -> list[str]:
    """Each migration has a number of its own, so that their order is plain."""
    found = list[str]()
    for folder in sorted(root.glob("engines/*/migrations")):
        names = sorted(path.name for path in folder.glob("*.sql"))
        numbers = Counter(name.partition("_")[0] for name in names)
        for name in names:
            number, place = name.partition("_")[0], f"{folder.parent.name}/migrations/{name}"
            if not (len(number) == 4 and number.isdigit()):
                found.append(f"{place}: no number of four digits")
            elif numbers[number] > 1:
                found.append(f"{place}: another migration has this number")
    return found


def _name(root: Path, path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(root))


def _is_public(path: Path) -> bool:
    return not any(part.startswith("_") and part != "__init__.py" for part in path.parts)


def _package(root: Path, path: Path) -> list[str]:
    """The dotted name of the package that a relative import in this file starts from."""
    return [root.name, *path.relative_to(root).parts[:-1]]


def _imports(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Every import as the full dotted name of what it brings, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """String constants that could be a dotted name; prose is not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if all(part.isidentifier() for part in name.split(".")):
                yield node.lineno, name


def _readings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Uses of a clock or of dice under whatever name they were imported; naming the type is no use."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and (name := _resolve(node, bound)):
            module, _, member = name.partition(".")
            if name in READINGS or (module in DICE and member):
                yield node.lineno, name


def _resolve(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    """`dt.datetime.now` with `import datetime as dt` is `datetime.datetime.now`."""
    if isinstance(node, ast.Attribute):
        base = _resolve(node.value, bound)
        return f"{base}.{node.attr}" if base else None
    return bound.get(node.id) if isinstance(node, ast.Name) else None
