"""What every real server of the tests needs: a user to run as, a port, a place, a log and somebody to end it."""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.servers import warden

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
"""Servers refuse to run as root; then they run as nobody."""

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def identity() -> dict[str, Any]:
    """The arguments that make subprocess run something as the user servers run as."""
    if not ROOT:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give(path: Path) -> None:
    """Let the user servers run as own a file or folder."""
    if ROOT:
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)


def place(folder: Path) -> Path:
    """A folder to write to that the user servers run as can get to: this one, or else that for such things."""
    wanted = [folder, Path(tempfile.gettempdir()), Path("/tmp")]
    mine = [each for each in wanted if os.access(each, os.W_OK)]
    return next(each for each in mine if not ROOT or all(_open(way) for way in [each, *each.resolve().parents]))


def _open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def free_port() -> int:
    """A port nobody listens on, from below the range that outgoing connections take theirs from.

    It stays this process's: no other process of the tests is given it before the server starts, nor while it restarts.
    """
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if _reserve(port):
                return port


def _reserve(port: int) -> bool:
    """Whether nobody else has it: by a name that belongs to one process, and is free again when that ends."""
    if sys.platform != "linux":
        return True
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0headrace test port {port}")
    except OSError:
        held.close()
        return False
    held.detach()  # kept open as long as the process lives
    return True


def launch(command: Sequence[str], log: IO[bytes], cwd: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, so that Ctrl-C is for the tests and not for it."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        **identity(),
    )


def guard(pidfile: Path, folder: Path | None) -> subprocess.Popen[bytes]:
    """Start the one who ends the server, and removes its folder, if this process dies without doing so."""
    arguments = [str(os.getpid()), str(pidfile), *([str(folder)] if folder else [])]
    return subprocess.Popen(
        [sys.executable, warden.__file__, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def dismiss(process: subprocess.Popen[bytes]) -> None:
    """End a process that has nothing to lose."""
    process.kill()
    process.wait()
