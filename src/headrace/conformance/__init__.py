"""The suite every engine has to pass, also yours.

An engine keeps the promises of ``headrace.engine`` or it is not an engine. To have yours tried, install
``headrace[conformance]`` and write a test file::

    from headrace.conformance import Suite
    from my_engine import MyEngine


    class TestMyEngine(Suite):
        def engine(self, rules, host, place):
            return MyEngine(place / "store", rules, host)

``engine`` returns an engine that is not opened yet, on the store that belongs to ``place`` (a folder of the test's
own: use it, or derive a name from it); a place not seen before is an empty store. Set ``durable = False`` if two
engines made for one place do not meet in one store. Every test opens the engine, uses a clock it moves by hand, and
closes the engine again; nothing sleeps, and nothing but pytest and Hypothesis is needed.

There is a module, or a package, for each role of the contract; ``sessions`` has the session itself and its bus. Begin
with ``lab``, what tests are made with. May import ``runtime`` and below, and the memory engine as the model.

Where the contract leaves a choice, a test accepts each way it allows, and no other.
"""

import pytest

_PARTS = (
    "lab",
    "jobs",
    "direct",
    "records",
    "entries",
    "families",
    "rollups",
    "workers",
    "gone_workers",
    "documents",
    "transactions",
    "sessions",
)
# Before they are imported: a failing assert then shows its values, as in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from headrace.conformance.direct import Directly  # noqa: E402
from headrace.conformance.documents import Documents  # noqa: E402
from headrace.conformance.entries import Entries  # noqa: E402
from headrace.conformance.families.batch_cancel import Cancelling  # noqa: E402
from headrace.conformance.families.batches import Batches  # noqa: E402
from headrace.conformance.families.children import Children  # noqa: E402
from headrace.conformance.families.graphs import Graphs  # noqa: E402
from headrace.conformance.gone_workers import GoneWorkers  # noqa: E402
from headrace.conformance.jobs.actions import Acting  # noqa: E402
from headrace.conformance.jobs.apply import Applying  # noqa: E402
from headrace.conformance.jobs.claim import Claiming  # noqa: E402
from headrace.conformance.jobs.claim_repeats import Repeating  # noqa: E402
from headrace.conformance.jobs.companions import Companionship  # noqa: E402
from headrace.conformance.jobs.contents import Contents  # noqa: E402
from headrace.conformance.jobs.customers import OfCustomers  # noqa: E402
from headrace.conformance.jobs.deduplication import Uniqueness  # noqa: E402
from headrace.conformance.jobs.effects import Effects  # noqa: E402
from headrace.conformance.jobs.fencing import Fencing  # noqa: E402
from headrace.conformance.jobs.insert import Inserting  # noqa: E402
from headrace.conformance.jobs.key_return import Rejoining  # noqa: E402
from headrace.conformance.jobs.key_rotation import Turns  # noqa: E402
from headrace.conformance.jobs.limits import Limiting, Unreadable  # noqa: E402
from headrace.conformance.jobs.profiles import Profiled  # noqa: E402
from headrace.conformance.jobs.request_keys import Requests  # noqa: E402
from headrace.conformance.jobs.retention import Retaining  # noqa: E402
from headrace.conformance.jobs.sizes import Bounds  # noqa: E402
from headrace.conformance.jobs.suspects import Suspects  # noqa: E402
from headrace.conformance.jobs.sweep import Sweeping  # noqa: E402
from headrace.conformance.jobs.timestamps import Dating  # noqa: E402
from headrace.conformance.jobs.webhooks import Telling  # noqa: E402
from headrace.conformance.lab import Lab  # noqa: E402
from headrace.conformance.records.load import CountedLoads  # noqa: E402
from headrace.conformance.records.position import Positions  # noqa: E402
from headrace.conformance.records.queries import Asking  # noqa: E402
from headrace.conformance.records.search import Finding  # noqa: E402
from headrace.conformance.records.verification import Verifying  # noqa: E402
from headrace.conformance.rollups import Rolling  # noqa: E402
from headrace.conformance.sessions import Sessions  # noqa: E402
from headrace.conformance.transactions import Transactional  # noqa: E402
from headrace.conformance.workers import Workers  # noqa: E402

__all__ = ["Lab", "Suite"]


class Suite(
    Inserting,
    Directly,
    Requests,
    Uniqueness,
    OfCustomers,
    Profiled,
    Companionship,
    Contents,
    Bounds,
    Claiming,
    Repeating,
    Dating,
    Limiting,
    Unreadable,
    Turns,
    Rejoining,
    Applying,
    Acting,
    Effects,
    Telling,
    Fencing,
    Sweeping,
    Suspects,
    Retaining,
    Workers,
    GoneWorkers,
    Asking,
    Finding,
    Positions,
    CountedLoads,
    Verifying,
    Rolling,
    Documents,
    Entries,
    Children,
    Graphs,
    Batches,
    Cancelling,
    Sessions,
    Transactional,
):
    """All of it."""
