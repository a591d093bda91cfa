"""Numbered migrations: files of SQL beside an engine, each applied once and recorded by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import resources

import msgspec

from headrace.errors import SchemaTooNew, SchemaTooOld

__all__ = ["Migration", "available", "missing", "refuse_old"]


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    name: str
    script: str

    @property
    def checksum(self) -> str:
        """A checksum of the text."""
        return sha256(self.script.encode()).hexdigest()


@cache
def available(package: str) -> tuple[Migration, ...]:
    """Return what this version knows, in order: the files in the folder ``migrations`` of an engine's package."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(Migration(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in files)


def missing(known: Sequence[Migration], done: Sequence[str], place: object) -> list[Migration]:
    """Return the migrations that a store still needs.

    :raises SchemaTooNew: it went through more than this version knows. :raises SchemaTooOld: a version before the first
    release made it.
    """
    names = [migration.name for migration in known]
    # Every version since then begins a store with the same migration.
    if done and names[0] not in done:
        raise SchemaTooOld(
            f"{place} was made by a version of headrace before 0.1.0 and cannot be migrated:"
            " let its jobs end with that version, then use a new store"
        )
    strange = [name for name in done if name not in names]
    if strange:
        raise SchemaTooNew(
            f"{place} has schema {strange[-1]}, this version of headrace knows {names[-1]}: upgrade headrace"
        )
    return [migration for migration in known if migration.name not in done]


def refuse_old(steps: Sequence[Migration], place: object) -> None:
    """Refuse a store that still needs steps; :raises SchemaTooOld:"""
    if steps:
        raise SchemaTooOld(f"{place} needs {', '.join(step.name for step in steps)}: run `headrace migrate`")
