"""Warns when a submitted job requires what no live worker offers: it would wait without a visible reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from headrace.core.job import Job, Spec
from headrace.core.matching.shortfall import distance, lacks, told_lacks
from headrace.engine import Engine
from headrace.errors import EngineError
from headrace.runtime.host import Host

__all__ = ["Requirements"]

_log = logging.getLogger("headrace.requirements")

_MAX_REMEMBERED_PAIRS = 1000
"""Pairs of task and requirements that are remembered; a store has no more of them."""

_encode = msgspec.json.Encoder(order="sorted").encode


class Requirements:
    """Checks once each pair of task and requirements that is submitted in a session."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine, self._host = engine, host
        self._looked_at: set[tuple[str, bytes]] = set()

    async def look(self, jobs: Iterable[Job]) -> None:
        """Warn of those of these jobs that no live worker can run now; not a second time of the same pair."""
        for spec in {id(job.spec): job.spec for job in jobs}.values():
            if not spec.requires:
                continue
            pair = (spec.task, _encode(spec.requires))
            if pair in self._looked_at or len(self._looked_at) >= _MAX_REMEMBERED_PAIRS:
                continue
            self._looked_at.add(pair)
            try:
                await self._tell(spec)
            except EngineError as error:  # the job is stored; what could not be read is not said
                _log.debug("who meets the requirements of %s is not known: %s", spec.task, error)
            except Exception as error:  # likewise: the submit has gone well, and must not fail
                _log.warning("who meets the requirements of %r cannot be told: %r", spec.task, error)

    async def _tell(self, spec: Spec) -> None:
        now, rules = self._host.clock.now(), self._engine.rules
        rows = [row.as_heard(now, rules) for row in await self._engine.workers.list()]
        able = [row.info for row in rows if row.takes]
        having = [info for info in able if info.runs(spec.task, spec.requires)] or able
        if not having:
            text = "no worker is alive, and jobs of %r require %s: they wait for one that meets it"
            _log.warning(text, spec.task, told_lacks(lacks(spec.requires, {}))[0])
            return
        lacking = [(lacks(spec.requires, info.offers), info.shown) for info in having]
        found, who = min(lacking, key=lambda pair: (distance(pair[0]), pair[1]))
        if found:
            needs, offers = told_lacks(found)
            text = "no live worker meets what jobs of %r need, so they wait: %s; the nearest worker, %s, offers %s"
            _log.warning(text, spec.task, needs, who, offers)
