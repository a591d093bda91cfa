"""The contract: what every engine promises, role by role.

An engine is a session on a store. It holds one object for each role, and each role is a Protocol in a module of its
own: ``jobs`` (with ``direct``), ``records``, ``entries``, ``families``, ``rollups``, ``workers``, ``documents``,
``transactions`` and ``bus``. Begin with ``session`` and ``jobs``. ``wire`` is the contract as bytes. May import
``core``.

Five rules hold for every verb of every role:

- **The core decides, an engine applies.** No engine decides what happens to a job. Where a verb must repeat a rule of
  ``headrace.core`` for speed, its docstring names the function, and the suite compares the two.
- **Time is an argument.** No engine reads a clock: ``now`` is given by the caller, and calls may come with a ``now``
  that is earlier than that of the call before. Callers pass the store's time, which they measure by ``Engine.time`` and
  by the replies to beats.
- **One verb, one commit.** All that a verb writes is durable when it returns, or none of it. Where a verb may write in
  several commits, its docstring says so.
- **Every write may be repeated.** A caller that lost the reply calls again with the same ids, and nothing more
  changes.
- **No verb is optional.** An engine that has no transactions has ``transactions`` None, and one that cannot write on
  the thread of its caller has ``direct`` None; its ``jobs`` may have a short way for one job (``InsertsOne``), and one
  to see which of many have changed (``FindsChanged``). There is nothing else that an engine may leave out.

Errors that every verb may raise:

- ``NotOpen``: the session is not open.
- ``Unavailable(outcome="refused")``: nothing was written.
- ``Unavailable(outcome="unknown")``: the write may have happened. The caller repeats it.
- ``StoreLost``: the store that this session had found is gone or is another one. No caller waits for its return, and
  a session on it (``another_session``) makes no new one in its place.
- ``Unstorable``: the data of a row is refused, and nothing of the call was written. The caller halves its batch until
  the guilty row is alone.

Every engine refuses text with half of a surrogate pair, and names, keys and tags with a NUL (``engines.validation`` has
the tests). It keeps a NUL within JSON, and everything that ``core.validation`` allows.

How an engine is made: an entry point in the group ``headrace.engines`` is named like the scheme of its URLs and is a
function ``(url, rules, host, *, namespace)`` that returns a session which is not open. ``rules`` are the numbers of the
lifecycle, ``host`` is where sleeping, monotonic time and random numbers come from. ``namespace`` is the App's, by
default ``headrace``. Two namespaces of one URL are two stores: an engine keeps them apart, or refuses all but the
default with ``NotSupported``.

``docs/engines/writing.md`` walks through a complete small engine. ``headrace.conformance`` is the suite that every
engine must pass.
"""

from headrace.engine.bus import Bus, Hint, LocalBus, Topic
from headrace.engine.documents import Documents
from headrace.engine.entries import Entries
from headrace.engine.families import Families
from headrace.engine.jobs import Direct, FindsChanged, InsertsOne, Jobs
from headrace.engine.records import Records
from headrace.engine.rollups import MAX_ROLL, Rollups
from headrace.engine.session import Engine
from headrace.engine.transactions import Enlisted, Statement, Statements, Transactions
from headrace.engine.values import (
    MAX_BATCH,
    MAX_PROFILES,
    Check,
    Claimed,
    Companions,
    Duplicated,
    InsertAnswer,
    Inserted,
    Overdue,
    OverdueJobs,
    Processed,
    Profiles,
    Refused,
    Setting,
)
from headrace.engine.workers import (
    Alive,
    Attended,
    Beat,
    Dead,
    Gone,
    GoneWorker,
    Renewed,
    Watched,
    WorkerInfo,
    WorkerRow,
    Workers,
)

__all__ = [
    "MAX_BATCH",
    "MAX_PROFILES",
    "MAX_ROLL",
    "Alive",
    "Attended",
    "Beat",
    "Bus",
    "Check",
    "Claimed",
    "Companions",
    "Dead",
    "Direct",
    "Documents",
    "Duplicated",
    "Engine",
    "Enlisted",
    "Entries",
    "Families",
    "FindsChanged",
    "Gone",
    "GoneWorker",
    "Hint",
    "InsertAnswer",
    "Inserted",
    "InsertsOne",
    "Jobs",
    "LocalBus",
    "Overdue",
    "OverdueJobs",
    "Processed",
    "Profiles",
    "Records",
    "Refused",
    "Renewed",
    "Rollups",
    "Setting",
    "Statement",
    "Statements",
    "Topic",
    "Transactions",
    "Watched",
    "WorkerInfo",
    "WorkerRow",
    "Workers",
]
