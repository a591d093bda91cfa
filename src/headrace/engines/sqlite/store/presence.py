"""What the kernel holds for a worker: a lock on a file beside the database, released when its process ends.

``flock`` and not ``fcntl``: such a lock belongs to the open file, so nothing that the process opens or closes elsewhere
releases it, and a child that has the descriptor holds it as well. It is never unlocked, only closed: unlocking would
release it for all that share it.

The files and their folder have the owner and the mode of the database, as the files that SQLite makes beside it: users
of the one may use the others, and no other users may, whatever the umask is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from uuid import UUID

from headrace.engine import Attended, WorkerRow

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Presence", "directory_of", "folder_mode"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MAX_TRIES = 10


def directory_of(path: Path) -> Path:
    """Return the directory in which the workers of this file have their locks."""
    return path.with_name(path.name + "-workers")


def folder_mode(mode: int) -> int:
    """Return the mode of a folder for files of this mode: their readers may enter it."""
    return mode | (mode & 0o444) >> 2


class Presence:
    """The lock that one session holds, and checks of others' locks."""

    def __init__(self, path: Path) -> None:
        self._path, self._directory = path, directory_of(path)
        self._held: tuple[UUID, int, str] | None = None
        """The worker, the descriptor, and the proof."""

    def attend(self, worker: UUID) -> Attended | None:
        """Hold the lock of this worker, and no other; None: this system cannot."""
        if (held := self._held) is not None:
            if held[0] == worker and _proof_of(self._file(worker)) == held[2] == _proof_of(held[1]):
                return Attended(held[2], held[1])
            if held[0] != worker and _proof_of(self._file(held[0])) == held[2]:
                self._unlink(held[0])  # dead and buried, or it would not be another
            self.let_go()
        if fcntl is None or _boot() is None:
            return None
        for _ in range(_MAX_TRIES):
            try:
                self._held = self._lock(worker)
            except OSError:  # a directory that cannot be written, a system without such locks
                return None
            if self._held is not None:
                return Attended(self._held[2], self._held[1])
        return None

    def let_go(self) -> None:
        """Release the lock; the file stays, so that others see that it is free."""
        held, self._held = self._held, None
        if held is not None and _proof_of(held[1]) == held[2]:  # code that closes all files may have closed it
            os.close(held[1])

    def gone(self, rows: Iterable[WorkerRow]) -> frozenset[UUID]:
        """Return those of these workers with free locks, of the ones that have theirs on this machine."""
        boot = _boot()
        if fcntl is None or boot is None:
            return frozenset()
        return frozenset(
            row.info.id
            for row in rows
            if row.proof is not None and row.proof.startswith(f"{boot} ") and self._is_free(row.info.id, row.proof)
        )

    def remove(self, worker: UUID) -> None:
        """Remove the file of a worker that is dead."""
        self._unlink(worker)

    def tidy(self, known: frozenset[UUID]) -> None:
        """Remove the files of workers that died before they were known: files that are not locked."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                if (worker := UUID(name)) not in known:
                    self._remove_if_free(worker)

    def _file(self, worker: UUID) -> Path:
        return self._directory / str(worker)

    def _lock(self, worker: UUID) -> tuple[UUID, int, str] | None:
        with contextlib.suppress(FileExistsError):
            self._directory.mkdir(0o700)
            self._share(self._directory, folder=True)
        file = self._file(worker)
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # another has just removed the directory, which was empty
            return None
        self._share(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # probed just now
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        proof = _proof(os.fstat(descriptor))
        if proof is None or _proof_of(file) != proof:  # removed before it was locked
            os.close(descriptor)
            return None
        return worker, descriptor, proof

    def _share(self, made: Path | int, *, folder: bool = False) -> None:
        """Give the users of the database access to what was made."""
        with contextlib.suppress(OSError):  # the database is gone, or another user made this, with its own mode
            like = os.stat(self._path)
            mode = like.st_mode & 0o666
            os.chmod(made, folder_mode(mode) if folder else mode)
            if not os.geteuid():  # else only root could check it
                os.chown(made, like.st_uid, like.st_gid)

    def _is_free(self, worker: UUID, proof: str) -> bool:
        try:
            descriptor = os.open(self._file(worker), os.O_RDONLY)
        except OSError:
            return False
        try:
            if _proof(os.fstat(descriptor)) != proof:
                return False
            # Shared, so that two checks at once both find it free.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _remove_if_free(self, worker: UUID) -> None:
        descriptor = os.open(self._file(worker), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _proof_of(self._file(worker)) == _proof(os.fstat(descriptor)):
                self._unlink(worker)  # while it is locked: a process that opened it meanwhile finds that it is gone
        finally:
            os.close(descriptor)

    def _unlink(self, worker: UUID) -> None:
        with contextlib.suppress(OSError):
            self._file(worker).unlink()
        with contextlib.suppress(OSError):  # others are in it
            self._directory.rmdir()


@cache
def _boot() -> str | None:
    """Return which run of which kernel this is; None: it does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return None


def _proof(found: os.stat_result) -> str | None:
    boot = _boot()
    return None if boot is None else f"{boot} {found.st_dev} {found.st_ino}"


def _proof_of(file: Path | int) -> str | None:
    try:
        return _proof(os.stat(file))
    except OSError:
        return None
