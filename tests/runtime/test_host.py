"""How much memory processes have."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.runtime import host
from headrace.runtime.host import memory_of, own_memory


def test_memory_is_that_of_all_processes() -> None:
    own = memory_of([os.getpid()])
    assert 10**7 < own < 10**11
    assert memory_of([os.getpid(), os.getpid()]) > own
    assert memory_of([2**22 + 1]) == 0


def test_its_own_memory_grows_with_what_it_keeps() -> None:
    before = own_memory()
    kept = bytearray(os.urandom(64 * 2**20))
    after = own_memory()
    assert before is not None
    assert after is not None
    assert after - before > 32 * 2**20 or sys.platform != "linux"
    assert len(kept) == 64 * 2**20


def test_where_the_system_does_not_tell_it_is_the_most_it_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = own_memory()
    monkeypatch.setattr(host, "_STATM", tmp_path / "none")
    most = own_memory()
    assert now is not None
    assert most is not None
    assert most > now / 2
