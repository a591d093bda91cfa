"""The App of the crash tests, for workers that wait for an answer of PostgreSQL a third as long as others do."""

from __future__ import annotations

from headrace.engines.postgres.store import pool
from tests.crash.app import PATIENCE, app

__all__ = ["app"]

pool._STATEMENT_TIMEOUT_SECONDS = PATIENCE
