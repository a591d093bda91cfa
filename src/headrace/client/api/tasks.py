"""``app.tasks``: the tasks of an App and of its store; workers record theirs, so that others submit them by name."""

from __future__ import annotations

import builtins
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from headrace.client.api.limit_settings import LIMIT, RESUMED, edit_rule, paused_by
from headrace.client.api.noun import Noun
from headrace.client.options import TEMPLATES
from headrace.core import audit
from headrace.core.codec.record import Record
from headrace.core.job import OnDuplicate
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.retry import Retry
from headrace.core.limits.settings import limits_of
from headrace.core.priority import DEFAULT_PRIORITY
from headrace.core.query import Filter
from headrace.core.stats.own_tasks import is_own
from headrace.core.status import HELD, LIVE
from headrace.core.validation import checked_name
from headrace.engine import Engine, Setting
from headrace.errors import InvalidPayload
from headrace.runtime.secrets import setting_of
from headrace.worker.handler import Handler

if TYPE_CHECKING:
    from headrace.client.task import Task

__all__ = [
    "PREFIX",
    "TaskDoc",
    "TaskInfo",
    "TasksApi",
    "UnregisteredTask",
    "check_payload",
    "find_task",
    "known_tasks",
    "live_tasks",
    "named",
    "note_submit",
    "register_tasks",
    "resembling",
    "told_unregistered",
    "undescribed",
    "warn_unregistered",
]


PREFIX = "task:"

_MAX_TRIES = 20
_MAX_SEARCHED_TASKS = 100
"""Maximum tasks without a description or a worker that are searched for live jobs."""


class UnregisteredTask(UserWarning):
    """A job was submitted by a name that no worker has ever registered: it waits until one does."""


class TaskDoc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as its workers described it, in the setting ``task:NAME``."""

    name: str
    queue: str = "default"
    priority: int | None = None
    """None: the task names none."""
    retry: Retry = Retry()
    timeout: float | None = 1800.0
    heartbeat: float | None = None
    remote_heartbeat: float | None = None
    retention: Kept | None = None
    dedup: str | None = None
    """A template of the parameters."""
    dedup_for: float | None = None
    on_duplicate: OnDuplicate = "return"
    concurrency_key: str | None = None
    """A template of the parameters."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    requires: dict[str, Any] = {}
    aliases: tuple[str, ...] = ()
    schema: dict[str, Any] = {}

    @classmethod
    def of(cls, handler: Handler) -> TaskDoc:
        """What a handler says about itself."""
        policy = {name: getattr(handler.policy, name) for name in _POLICY}
        return cls(name=handler.name, aliases=handler.aliases, schema=handler.schema(), **policy)

    def to_options(self) -> dict[str, Any]:
        """The policy as checked options."""
        options = {name: getattr(self, name) for name in _POLICY if name not in TEMPLATES}
        if self.priority is None:
            del options["priority"]
        templates = {place: getattr(self, name) for name, place in TEMPLATES.items()}
        return options | {place: template for place, template in templates.items() if template is not None}


_POLICY = (
    *("queue", "priority", "retry", "timeout", "heartbeat", "remote_heartbeat", "retention"),
    *TEMPLATES,
    *("dedup_for", "on_duplicate", "tags", "metadata", "requires"),
)


def _read(setting: Setting) -> TaskDoc | None:
    try:
        return msgspec.json.decode(setting.value, type=TaskDoc)
    except msgspec.MsgspecError:
        return None  # written by a version that says it differently: as good as not there


async def known_tasks(engine: Engine) -> dict[str, TaskDoc]:
    """Every task a worker has registered, by name."""
    docs = (_read(setting) for setting in await engine.documents.settings(PREFIX))
    return {doc.name: doc for doc in docs if doc is not None}


async def find_task(engine: Engine, name: str) -> TaskDoc | None:
    """The task of this name or alias, if a worker has registered it."""
    return named(name, await known_tasks(engine))


def named(name: str, docs: Mapping[str, TaskDoc]) -> TaskDoc | None:
    """The one of these tasks that has this name or alias."""
    return docs.get(name) or next((doc for doc in docs.values() if name in doc.aliases), None)


async def register_tasks(engine: Engine, handlers: Iterable[Handler]) -> list[str]:
    """Store what changed since the last worker did; the names of those tasks."""
    stored = {setting.key: setting for setting in await engine.documents.settings(PREFIX)}
    changed = []
    for handler in {handler.name: handler for handler in handlers}.values():
        key, text = PREFIX + handler.name, msgspec.json.encode(TaskDoc.of(handler)).decode()
        setting = stored.get(key)
        for _ in range(_MAX_TRIES):
            if setting is not None and setting.value == text:
                break
            if await engine.documents.put_setting(key, text, 0 if setting is None else setting.rev) is not None:
                changed.append(handler.name)
                break
            setting = await setting_of(engine, key)
    return changed


async def note_submit(engine: Engine, task: str, job: UUID, by: str | None, now: datetime) -> None:
    """Keep with a task that this job of it was submitted by a person; nothing of a task that is not registered."""
    key, act = PREFIX + task, audit.act("submit", now, by, {"job": str(job)})
    for _ in range(_MAX_TRIES):
        found = await setting_of(engine, key)
        if found is None or await engine.documents.put_setting(key, found.value, found.rev, act) is not None:
            return


async def live_tasks(engine: Engine, tasks: Iterable[str], now: datetime) -> list[str]:
    """Those of these tasks that have a job which has not ended and which no worker holds, by name; the first
    ``_MAX_SEARCHED_TASKS`` are searched."""
    found = list[str]()
    for task in sorted(tasks)[:_MAX_SEARCHED_TASKS]:
        if (await engine.records.find(Filter(status=LIVE - HELD, task=frozenset({task})), now, 1)).items:
            found.append(task)
    return found


def resembling(name: str, known: Iterable[str]) -> str:
    """The question that a mistyped name calls for; empty if no name that is known resembles it."""
    near = get_close_matches(name, sorted(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


@lru_cache(maxsize=256)  # a program that submits it once does so again, and to find names like it takes long
def told_unregistered(name: str, known: tuple[str, ...]) -> str:
    """The warning when no worker has recorded this task: its policy is not known, nor whether it exists."""
    message = f"no worker has registered a task named {name!r}: the job gets default options and waits for one"
    asked = resembling(name, known)
    return f"{message}; {asked}" if asked else message


def warn_unregistered(message: str) -> None:
    """Warn of it where the caller sees it."""
    # The first frame outside this package: the line that submitted, not ours.
    depth, frame = 2, inspect.currentframe()
    while frame is not None and frame.f_back is not None and _ours(frame.f_back):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, UnregisteredTask, stacklevel=depth)


def _ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == "headrace" or name.startswith("headrace.")


_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def check_payload(doc: TaskDoc, payload: Mapping[str, Any]) -> None:
    """Compare a payload with the stored schema: fields and their kinds. The worker's own check is the thorough one.
    :raises InvalidPayload:"""
    properties: dict[str, Any] = doc.schema.get("properties", {})
    for name in doc.schema.get("required", ()):
        if name not in payload:
            raise InvalidPayload(doc.name, f"Object missing required field `{name}`", name)
    for name, value in payload.items():
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise InvalidPayload(doc.name, f"Object contains unknown field `{name}` (known: {known})", name)
        if not _fits(value, properties[name]):
            kind = properties[name].get("type")
            raise InvalidPayload(doc.name, f"Expected `{kind}`, got `{type(value).__name__}`", name)


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    if not isinstance(kinds, str | list):
        return True
    named = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in named
    return any(isinstance(value, _KINDS.get(kind, object)) for kind in named)


class TaskInfo(msgspec.Struct, Record, frozen=True):
    """A task as this App or a worker describes it."""

    name: str
    queue: str
    priority: int
    timeout: float | None
    schema: dict[str, Any]
    here: bool
    """Whether this App has its function."""
    retention: Kept | None = None
    """How long its jobs are kept after their end; None: as the settings say."""
    heartbeat: float | None = None
    """Seconds within which a running job must report something; None: it need not."""
    paused: bool = False
    """Whether workers start none of its jobs."""
    paused_by: str | None = None
    paused_at: datetime | None = None


def undescribed(name: str) -> TaskInfo:
    """A task that only jobs name."""
    doc = TaskDoc(name=name)
    return TaskInfo(name, doc.queue, DEFAULT_PRIORITY, doc.timeout, doc.schema, False)


class TasksApi(Noun):
    """The tasks of an App, by name and by alias (``app.tasks["add"]``), and all that its store knows."""

    def __getitem__(self, name: str) -> Task[Any, Any]:
        return self._app._register.tasks[name]

    def get(self, name: str) -> Task[Any, Any] | None:
        """The task of this App that has this name or alias; None: there is none."""
        return self._app._register.tasks.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._app._register.tasks

    def __iter__(self) -> Iterator[str]:
        return iter(self._app._register.tasks)

    def __len__(self) -> int:
        return len(self._app._register.tasks)

    async def list(self) -> builtins.list[TaskInfo]:
        """Every task of this App, of a worker or of a live job, by name; where several have one, the App describes it.

        One that only workers behind a hub have, or that only jobs name, is not described: its schema is empty.
        """
        docs = await known_tasks(self._engine)
        docs |= {name: TaskDoc(name=name) for name in await self._undescribed(docs)}
        limits = limits_of((one.key, one.value) for one in await self._engine.documents.settings(LIMIT))
        own = {handler.name: TaskDoc.of(handler) for handler in self._app._handlers.values()}
        infos = []
        for name, doc in sorted((docs | own).items()):
            priority = DEFAULT_PRIORITY if doc.priority is None else doc.priority
            policy, rule = (doc.queue, priority, doc.timeout, doc.schema), limits.task(name)
            pause = (rule.paused, rule.paused_by, rule.paused_at)
            infos.append(TaskInfo(name, *policy, name in own, doc.retention, doc.heartbeat, *pause))
        return infos

    async def _undescribed(self, docs: Mapping[str, TaskDoc]) -> set[str]:
        """The tasks of living workers and of live jobs that nobody has described; headrace's own are left out."""
        engine, now = self._engine, self._host.clock.now()
        run = {task for info in await self._session.live_workers() for task in info.tasks}
        stored = {one.task for one in (await engine.documents.profiles()).profiles}
        known = {name for doc in docs.values() for name in (doc.name, *doc.aliases)} | {*self}
        named = {name for name in (run | stored) - known if not is_own(name)}
        return {name for name in named if name in run} | {*await live_tasks(engine, named - run, now)}

    async def pause(self, name: str, *, by: str | None = None) -> None:
        """Pause a task, whatever the queues of its jobs: workers start none of its jobs, running ones go on."""
        await self._edit(name, paused_by(by, self._host.clock.now()), "pause", by)

    async def resume(self, name: str, *, by: str | None = None) -> None:
        """Resume a paused task."""
        await self._edit(name, RESUMED, "resume", by)

    async def _edit(self, name: str, said: Mapping[str, Any], verb: str, by: str | None) -> None:
        """Change the setting of a task under all its names: jobs keep the name they were submitted by."""
        act = audit.act(verb, self._host.clock.now(), by, {})
        for one in await self._names(checked_name(name, "a task's name")):
            await edit_rule(self._engine, LIMIT + one, live=said, act=act)

    async def _names(self, name: str) -> builtins.list[str]:
        if (handler := self._app._handlers.get(name)) is not None:
            return [handler.name, *handler.aliases]
        doc = await find_task(self._engine, name)
        return [name] if doc is None else [doc.name, *doc.aliases]

    async def knows(self, name: str) -> bool:
        """Whether this App or a worker of its store has a task of this name."""
        return name in self or await self._session.find_task(name) is not None

    async def announce(self) -> None:
        """Record the tasks, limits and schedules of this App in the store; a worker does so at its start."""
        await self._app._announce()
