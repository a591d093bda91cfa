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

Where the contract leaves a choice, a test accepts each way it allows, and no other.
"""

import pytest

_PARTS = (
    "lab",
    "inserting",
    "records",
    "bounds",
    "claiming",
    "dating",
    "limiting",
    "unreadable",
    "turns",
    "rejoining",
    "applying",
    "effects",
    "fencing",
    "sweeping",
    "crew",
    "entries",
    "families",
    "graphs",
    "batches",
    "cancelling",
    "asking",
    "position",
    "keeping",
    "sessions",
    "within",
)
# Before they are imported: a failing assert then shows its values, as in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from headrace.conformance.applying import Applying  # noqa: E402
from headrace.conformance.asking import Asking  # noqa: E402
from headrace.conformance.batches import Batches  # noqa: E402
from headrace.conformance.bounds import Bounds  # noqa: E402
from headrace.conformance.cancelling import Cancelling  # noqa: E402
from headrace.conformance.claiming import Claiming  # noqa: E402
from headrace.conformance.crew import Crew  # noqa: E402
from headrace.conformance.dating import Dating  # noqa: E402
from headrace.conformance.effects import Effects  # noqa: E402
from headrace.conformance.entries import Entries  # noqa: E402
from headrace.conformance.families import Families  # noqa: E402
from headrace.conformance.fencing import Fencing  # noqa: E402
from headrace.conformance.graphs import Graphs  # noqa: E402
from headrace.conformance.inserting import Inserting  # noqa: E402
from headrace.conformance.keeping import Keeping  # noqa: E402
from headrace.conformance.lab import Lab  # noqa: E402
from headrace.conformance.limiting import Limiting  # noqa: E402
from headrace.conformance.position import Positions  # noqa: E402
from headrace.conformance.records import Records  # noqa: E402
from headrace.conformance.rejoining import Rejoining  # noqa: E402
from headrace.conformance.sessions import Sessions  # noqa: E402
from headrace.conformance.sweeping import Sweeping  # noqa: E402
from headrace.conformance.turns import Turns  # noqa: E402
from headrace.conformance.unreadable import Unreadable  # noqa: E402
from headrace.conformance.within import Within  # noqa: E402

__all__ = ["Lab", "Suite"]


class Suite(
    Inserting,
    Records,
    Bounds,
    Claiming,
    Dating,
    Limiting,
    Unreadable,
    Turns,
    Rejoining,
    Applying,
    Effects,
    Fencing,
    Sweeping,
    Crew,
    Asking,
    Positions,
    Keeping,
    Entries,
    Families,
    Graphs,
    Batches,
    Cancelling,
    Sessions,
    Within,
):
    """All of it."""
