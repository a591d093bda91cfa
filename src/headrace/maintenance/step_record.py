"""Steps of the store's time on record, so that whoever sweeps next knows of them as well."""

from __future__ import annotations

import logging

import msgspec

from headrace.core.clock_steps import SETTING, Step, Steps, on_record
from headrace.core.moments import length
from headrace.engine import Engine, Setting
from headrace.runtime.host import Host

__all__ = ["StepRecord"]

_log = logging.getLogger("headrace.sweeper")

_TRIES = 10


class StepRecord:
    """Reads the record, and adds what the clock of this host has noticed."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine, self._host = engine, host
        self._written: tuple[Step, ...] = ()
        """What this host had noticed when it last wrote."""

    @property
    def is_behind(self) -> bool:
        """Whether the clock of this host has noticed a step that is not on record."""
        return self._noticed() != self._written

    def _noticed(self) -> tuple[Step, ...]:
        if (clock := self._host.store_clock) is None:
            return ()
        clock.look()
        return clock.steps

    async def known(self) -> tuple[Step, ...]:
        """All steps, those noticed here included, which are on record now."""
        noticed, known = self._noticed(), tuple[Step, ...]()
        for _ in range(_TRIES):
            setting = await self._find()
            known = () if setting is None else _read(setting)
            wanted = on_record(known, noticed, self._host.clock.now())
            if wanted == known or not wanted:
                break
            rev = 0 if setting is None else setting.rev
            if await self._engine.documents.put_setting(SETTING, Steps(wanted).to_text(), rev) is not None:
                for step in wanted:
                    if step not in known:
                        _tell(step)
                known = wanted
                break
        self._written = noticed
        return known

    async def _find(self) -> Setting | None:
        return next((one for one in await self._engine.documents.settings(SETTING) if one.key == SETTING), None)


def _read(setting: Setting) -> tuple[Step, ...]:
    try:
        return Steps.from_text(setting.value).steps
    except msgspec.MsgspecError as error:
        _log.warning("the setting %r cannot be read, and is written anew: %s", setting.key, error)
        return ()


def _tell(step: Step) -> None:
    way, seconds = ("forward", step.by) if step.by > 0 else ("back", -step.by)
    _log.warning(
        "the store's time went %s by %s: its clock was set, or the machine slept; attempts that began before are judged"
        " without that",
        way,
        length(seconds),
    )
