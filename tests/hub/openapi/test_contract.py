"""The OpenAPI document is a promise: schemathesis asks a hub, in a process of its own, for all of it.

``make fuzz`` asks for more, in a new order each time: ``HEADRACE_EXAMPLES`` for each operation, by ``HEADRACE_SEED``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.hub.operations import OPERATIONS
from tests.hub.openapi.asking import STREAMS, asked
from tests.support.seed import examples, seed
from tests.support.servers.schemas import url_of

GIVEN = os.environ.get("HEADRACE_EXAMPLES")
EXAMPLES = int(GIVEN or examples(25))
SEED = seed() if GIVEN else 15
"""A run of all tests asks the same each time; what is random says how to repeat it, in the first lines of pytest."""
PARTS = 6
"""Of how many parts of the operations a run of all tests has one covered: that of its seed."""
COVERED = [one.name for one in OPERATIONS if one.name not in STREAMS]
if GIVEN is None:
    COVERED = COVERED[seed() % PARTS :: PARTS]

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(max(600, EXAMPLES * 20)),
]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("sqlite", marks=pytest.mark.xdist_group("contract on SQLite")),
        # What differs by the store is tested elsewhere; `make fuzz` asks on PostgreSQL, too.
        *([] if GIVEN is None else [pytest.param("postgres", marks=pytest.mark.xdist_group("contract on PostgreSQL"))]),
    ],
)
def test_the_hub_answers_as_its_document_says(engine: str, tmp_path: Path) -> None:
    url = url_of(tmp_path) if engine == "postgres" else f"sqlite:///{tmp_path}/jobs.db"
    verdict = asked(tmp_path, url, examples=EXAMPLES, seed=SEED, covered=COVERED)
    assert verdict.code == 0, verdict.said
    assert verdict.phases == {"Examples", "Coverage", "Fuzzing", "Stateful"}, verdict.said
    assert verdict.cases > 50 * len(COVERED), verdict.said
    assert verdict.scenarios >= EXAMPLES, verdict.said
    assert verdict.links > 0, verdict.said
    assert "Traceback" not in verdict.log, verdict.log
    assert "Warning" not in verdict.log, verdict.log
    print(verdict.said)  # noqa: T201 - with -s, as make fuzz has it, the figures are seen
