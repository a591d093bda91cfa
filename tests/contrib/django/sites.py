"""A Django project whose programs are run as processes: settings of Django are those of a whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from tests.support.servers.postgres import shared

__all__ = ["PROJECT", "Site", "postgres"]

PROJECT = Path(__file__).with_name("site")


class Site:
    """The project, with its files in a folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        more = {"PYTHONPATH": str(PROJECT), "DJANGO_SETTINGS_MODULE": "shop.settings", "NO_COLOR": "1"}
        self.environment = {**clean, **more, **(environment or {})}

    def manage(self, *words: str, code: int = 0) -> str:
        """What ``manage.py`` prints."""
        return self._run([str(PROJECT / "manage.py"), *words], code)

    def script(self, program: str) -> Any:
        """What a program of the project prints as JSON."""
        head = "import django, json\nfrom django.db import connection, transaction\ndjango.setup()\n"
        return json.loads(self._run(["-c", head + program], 0))

    def _run(self, words: list[str], code: int) -> str:
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=self._folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout if code == 0 else ran.stderr


def postgres() -> dict[str, str]:
    """A new database on the server of the tests, for the environment."""
    with psycopg.connect(shared().url(shared().create_database())) as connection:
        info = connection.info
        found = {
            "NAME": info.dbname,
            "HOST": info.host,
            "PORT": info.port,
            "USER": info.user,
            "PASSWORD": info.password,
        }
    return {f"SHOP_{name}": str(value or "") for name, value in found.items()}
