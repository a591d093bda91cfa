"""``manage.py headrace …``: the ``headrace`` command, with the App of the project."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

__all__ = ["Command"]


class Command(BaseCommand):
    """Runs ``headrace`` in place of this process, so that signals and exit codes are its own."""

    help = "Run the headrace command with the App of this project, as in: manage.py headrace worker"

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass all arguments to ``headrace``, which parses them."""
        environment = {
            **os.environ,
            "HEADRACE_APP": "headrace.contrib.django.worker:app",
            "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        }
        command = [sys.executable, "-m", "headrace", *argv[2:]]
        if os.name == "nt":  # exec would start another process there, and end this one at once
            sys.exit(subprocess.run(command, env=environment, check=False).returncode)
        sys.stdout.flush()
        os.execve(sys.executable, command, environment)

    def handle(self, *args: Any, **options: Any) -> None:
        """Refuse to be called from code: ``project_app()`` has all that the command has."""
        raise NotImplementedError("call the methods of headrace.contrib.django.project_app() instead")
