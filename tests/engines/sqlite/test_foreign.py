"""A database of something else is refused, and left as it was."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.errors import ConfigError
from headrace.runtime.host import Host


async def test_a_database_of_something_else_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE people (name TEXT)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="something else"):
        await SqliteEngine(path, rules=Rules(), host=Host()).open()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["theirs.db"]
