"""Writes ``docs/reference`` from the code itself; run by ``make docs``, compared with the code by ``tests/docs``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # run as a script, it finds its own helper as the tests do

from docs import sources  # noqa: E402

NOTE = "<!-- Made by docs/generate.py from the code: `make docs` writes it anew. Do not edit. -->"

PUBLIC: dict[str, tuple[str, ...]] = {
    "headrace": (),
    "headrace.app": ("Stats", "QueueInfo", "TaskInfo", "ScheduleInfo", "Check"),
    "headrace.client.task_registry": ("Decorator",),
    "headrace.client.task": ("StreamTask",),
    "headrace.client.handle": ("StreamHandle",),
    "headrace.client.job_set": ("JobSet",),
    "headrace.client.api.jobs": ("JobsApi",),
    "headrace.client.api.batches": ("BatchesApi",),
    "headrace.client.api.queues": ("QueuesApi",),
    "headrace.client.api.limits": ("LimitsApi",),
    "headrace.client.api.rates": ("RatesApi",),
    "headrace.client.api.schedules": ("SchedulesApi",),
    "headrace.client.api.workers": ("WorkersApi",),
    "headrace.client.api.webhooks": ("WebhooksApi",),
    "headrace.client.api.keys": ("KeysApi",),
    "headrace.client.api.stats": ("StatsApi",),
    "headrace.client.api.store": ("StoreApi",),
    "headrace.client.api.actions": ("ActionResult",),
    "headrace.runtime.watch.stream": ("StreamItem",),
    "headrace.client.batch": ("BatchHandle", "Batch"),
    "headrace.core.batch": ("BatchTally", "BatchCallback"),
    "headrace.core.entry": ("LogLine",),
    "headrace.client.options": ("TaskOptions",),
    "headrace.client.bulk_task": ("BulkDecorator",),
    "headrace.client.hooks": ("Middleware", "CallNext", "Callback", "Resource"),
    "headrace.worker.worker": ("Worker", "WorkerStats"),
    "headrace.worker.options": ("WorkerOptions",),
    "headrace.core.codec.record": ("Record",),
    "headrace.core.job": ("Spec", "Progress", "ErrorInfo", "History", "Attempt", "Event"),
    "headrace.core.query": ("Page", "Ledger"),
    "headrace.core.stats.verification": ("Verification", "Invariant", "Mismatch"),
    "headrace.core.stats.charts": ("Charts", "Series", "Point"),
    "headrace.core.stats.metrics": ("Metrics", "WindowMetrics"),
    "headrace.core.stats.histogram": ("Quantiles",),
    "headrace.core.stats.rollup": ("Step",),
    "headrace.core.status": ("Outcome", "Reason"),
    "headrace.engine": ("WorkerRow", "WorkerInfo", "Beat"),
    "headrace.client.api.tasks": ("TasksApi", "UnregisteredTask"),
    "headrace.contrib.prometheus": (),
    "headrace.testing": (),
    "headrace.endpoints.fastapi": (),
    "headrace.endpoints.starlette": (),
    "headrace.endpoints.flask": (),
    "headrace.dashboard": (),
    "headrace.hub": (),
    "headrace.hub.webhooks": (),
    "headrace.logs": (),
    "headrace.contrib.otel": (),
    "headrace.conformance": ("Suite",),
}
"""What a user may import, by module; no names: everything in its ``__all__``. The errors have a page of their own."""

MADE_ELSEWHERE = frozenset(
    {
        "Batch",
        "BatchCallback",
        "BatchHandle",
        "BulkDecorator",
        "Context",
        "Decorator",
        "Draft",
        "Harness",
        "JobHandle",
        "Resource",
        "Stream",
        "StreamHandle",
        "StreamTask",
        "Task",
        "Worker",
        *(
            f"{noun}Api"
            for noun in (
                *("Jobs", "Batches", "Queues", "Limits", "Rates", "Schedules"),
                *("Tasks", "Workers", "Webhooks", "Keys", "Stats", "Store"),
            )
        ),
    }
)
"""Users never construct these, so the reference leaves their constructors out."""

INNER: dict[str, frozenset[str]] = {
    "Answers": frozenset({"in_words", "with_history"}),
    "App": frozenset({"session"}),
    "Attempt": frozenset({"fold"}),
    "Continuous": frozenset({"rest", "retry"}),
    "Cron": frozenset({"spread"}),
    "Dashboard": frozenset({"page", "shared", "tokens"}),
    "ErrorInfo": frozenset({"cut"}),
    "Every": frozenset({"spread"}),
    "Hub": frozenset({"draining", "fleet", "front", "live", "number", "wanted"}),
    "Job": frozenset({"act_by", "claim", "payload_text", "result_text", "streak"}),
    "ScheduleInfo": frozenset({"of"}),
    "Beat": frozenset({"finished", "kept", "report"}),
    "Invariant": frozenset({"of"}),
    "Ledger": frozenset({"of"}),
    "Point": frozenset({"of"}),
    "LogLine": frozenset({"of"}),
    "Stream": frozenset({"reference"}),
    "Task": frozenset({"hooks"}),
    "Viewer": frozenset({"key", "session"}),
    "BatchTally": frozenset({"plus"}),
    "Worker": frozenset({"beat", "died", "drop_buffer", "executing", "host", "idle", "main", "taken", "told"}),
}
"""Members that one part of headrace has for another."""


def pages() -> dict[str, str]:
    """Every page of the reference as it should be now, by file name."""
    makers: dict[str, Callable[[], Iterator[str]]] = {
        "cli.md": _cli,
        "settings.md": _settings,
        "api.md": _api,
        "errors.md": _errors,
    }
    return {name: "\n".join([NOTE, "", *make()]).rstrip() + "\n" for name, make in makers.items()}


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (HERE / "reference" / name).write_text(text, encoding="utf-8")


# -- command line


def _cli() -> Iterator[str]:
    from headrace.cli import reference

    with patch.dict(os.environ, {"COLUMNS": "100"}):  # usage lines are cut to the terminal they are asked from
        text = reference()
    # Every command has --help; a table that says nothing else says nothing.
    text = re.sub(r"^\| `(-h, )?--help` \|.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\| option \| meaning \|\n\|---\|---\|\n(?!\|)\n?", "", text)
    yield from text.splitlines()


# -- settings


def _settings() -> Iterator[str]:
    from headrace.config import Settings

    found = sources.read(Settings)
    yield from ("# Settings", "", *_paragraphs(found.text), "")
    yield "| setting | environment | default | meaning |"
    yield "|---|---|---|---|"
    for one in found.fields:
        shown = _default(getattr(Settings(), one.name))
        yield f"| `{one.name}` | `HEADRACE_{one.name.upper()}` | {shown} | {_line(one.text)} |"
    yield ""
    yield "`App(...)` itself takes `url`, `key`, `secret`, `namespace` and `imports`."
    yield "The rest is set by file or environment."
    yield "Settings of an engine are parameters of its URL: see [engines](../engines/index.md)."
    yield "`HEADRACE_IMPORTS` is a list with commas. `HEADRACE_DEBUG=1` makes the command line show tracebacks."


def _default(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, float):
        return f"`{value / 86400:g}d`" if value % 86400 == 0 else f"`{value:g}s`"
    return f"`{value}`"


# -- python


def _api() -> Iterator[str]:
    yield from ("# Python", "", "Everything a program may import. The guides say what it is good for.", "")
    import importlib

    homes = dict[int, str]()
    for module, names in PUBLIC.items():
        home = importlib.import_module(module)
        wanted = names or tuple(home.__all__)
        yield from (f"## {module}", "")
        if not names:
            yield from (_line((home.__doc__ or "").strip().splitlines()[0]), "")
        for name in wanted:
            found = getattr(home, name)
            if isinstance(found, type) and issubclass(found, BaseException) and module == "headrace":
                yield from (f"### {name}", "", f"See [errors](errors.md#{name.lower()}).", "")
            elif (first := homes.setdefault(id(found), module)) != module:
                yield from (f"### {name}", "", f"The one of `{first}`: see [above](#{name.lower()}).", "")
            else:
                yield from _described(name, found, module)


def _described(name: str, found: object, module: str) -> Iterator[str]:
    yield from (f"### {name}", "")
    seen = sources.read_alias(name, module) or sources.read(found)
    yield from (*_paragraphs(seen.text), "")
    if seen.call and name not in MADE_ELSEWHERE:
        yield from ("```python", f"{name}{seen.call}", "```", "")
    members = [one for one in (*seen.fields, *seen.methods) if one.name not in INNER.get(name, ())]
    yield from (_item(one.signature, one.text) for one in members)
    if members:
        yield ""


def _item(signature: str, text: str) -> str:
    said = _line(text)
    return f"- `{signature}`" + (f" — {said}" if said else "")


# -- errors


def _errors() -> Iterator[str]:
    from headrace import errors

    title, _, tree = (errors.__doc__ or "").partition("\n")
    yield from ("# Errors", "", _line(title), "", "```", *tree.strip("\n").splitlines(), "```", "")
    for name in errors.__all__:
        cls: type = getattr(errors, name)
        seen = sources.read(cls)
        bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
        yield from (f"## {name}", "", _line(seen.text), "", f"Is a {bases}.", "")
        if seen.kept:
            kept = ", ".join(f"`{one}`" for one in seen.kept)
            yield from (f"Carries {kept}.", "")


# -- words


def _paragraphs(text: str) -> Iterator[str]:
    for index, part in enumerate(text.split("\n\n")):
        if index:
            yield ""
        yield _line(part)


def _line(text: str) -> str:
    """A docstring as one line of Markdown."""
    said, *raises = re.split(r"\s*:raises ([^:]+):\s*", " ".join(text.split()))
    sentences = [said.strip().rstrip(";")]
    for names, why in zip(raises[::2], raises[1::2], strict=True):
        sentences.append(f"Raises {_codes(names)}" + (f": {why}" if why else ""))
    joined = " ".join(one if one.endswith((".", "…", ":", ")")) else f"{one}." for one in sentences if one)
    return re.sub(r"``([^`]+)``", r"`\1`", joined)


def _codes(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


if __name__ == "__main__":
    main()
