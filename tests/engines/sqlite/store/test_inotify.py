"""What may have happened to files: whoever asks is told, whichever thread or process was faster."""

from __future__ import annotations

import ctypes
import importlib
import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.engines.sqlite.store import files, inotify
from headrace.engines.sqlite.store.files import Inodes
from headrace.engines.sqlite.store.inotify import CONTENT, LISTING, NAME, watch

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def _truncate(file: Path) -> None:
    os.truncate(file, 0)


def _replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("other")
    other.rename(file)


def _move(file: Path) -> None:
    file.rename(file.with_name("moved"))


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told of what other tests did in this process."""
    monkeypatch.setattr(inotify, "_of_process", {})


HARMS: list[Callable[[Path], None]] = [Path.unlink, _move, _replace, _truncate]


@linux
@pytest.mark.parametrize("harm", HARMS)
def test_what_happens_to_a_file_is_told_once_to_everybody(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    one, two = watch({str(file): NAME | CONTENT}), watch({str(file): NAME | CONTENT})
    assert one is not None
    assert two is not None
    assert one.is_quiet()
    assert two.is_quiet()
    harm(file)
    assert not one.is_quiet()  # which takes the events; the other must hear of them all the same
    assert not two.is_quiet()
    assert one.is_quiet()
    assert two.is_quiet()


@linux
def test_what_is_not_of_interest_is_not_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("text")
    name = watch({str(log): NAME})
    assert name is not None
    log.write_text("more")
    assert name.is_quiet(), "it was written to, and has its name"


@linux
def test_two_may_watch_one_path_for_different_things(tmp_path: Path) -> None:
    """The kernel keeps one record of a file, and adds to it."""
    listing = watch({str(tmp_path): LISTING})
    assert watch({str(tmp_path): NAME}) is not None
    assert listing is not None
    assert listing.is_quiet()
    (tmp_path / "new").touch()
    assert not listing.is_quiet()
    (tmp_path / "new").unlink()
    assert not listing.is_quiet()


@linux
def test_a_folder_above_that_is_moved_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    (folder / "file").write_text("text")
    seen = watch({str(folder / "file"): NAME}, map(str, folder.parents))
    assert seen is not None
    assert seen.is_quiet()
    (tmp_path / "above").rename(tmp_path / "elsewhere")
    assert not seen.is_quiet()


def test_what_is_not_there_cannot_be_watched(tmp_path: Path) -> None:
    assert watch({str(tmp_path / "none"): NAME}) is None


def test_where_there_is_no_inotify_nothing_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert watch({str(tmp_path): NAME}) is None


@linux
def test_threads_that_ask_at_the_same_moment_are_both_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    seen = watch({str(file): CONTENT})
    assert seen is not None
    told, stop = [0, 0], threading.Event()

    def ask(number: int) -> None:
        mine = watch({str(file): CONTENT})
        assert mine is not None
        while not stop.is_set():
            told[number] += not mine.is_quiet()
        told[number] += not mine.is_quiet()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for size in range(100):
        os.truncate(file, size)
    stop.set()
    for thread in threads:
        thread.join()
    assert min(told) > 0
    assert not seen.is_quiet()


@linux
def test_who_asks_while_another_has_just_read_the_events_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = watch({str(tmp_path): LISTING}), watch({str(tmp_path): LISTING})
    assert one is not None
    assert two is not None
    quiet, read = list[bool](), os.read

    def slow(file: int, size: int) -> bytes:
        found = read(file, size)
        quiet.append(two.is_quiet())  # at this moment the kernel has nothing to tell
        return found

    (tmp_path / "new").touch()
    monkeypatch.setattr(os, "read", slow)
    assert not one.is_quiet()
    assert quiet == [False]


@linux
def test_who_cannot_ask_because_another_does_is_not_told_that_all_is_quiet(tmp_path: Path) -> None:
    seen = watch({str(tmp_path): LISTING})
    assert seen is not None

    def asks() -> bool:
        try:
            seen._poll(0)
        except RuntimeError:  # the other is within
            return True
        return False

    other = threading.Thread(target=seen._poll, args=(20_000,))
    other.start()
    while not asks():
        pass
    assert not seen.is_quiet()
    (tmp_path / "new").touch()  # which lets the other go
    other.join()
    assert not seen.is_quiet()
    assert seen.is_quiet()


@linux
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_takes_none_of_its_parents_events(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    seen = watch({str(file): CONTENT})
    assert seen is not None
    assert seen.is_quiet()
    child = os.fork()
    if not child:
        own = watch({str(file): CONTENT})
        os.truncate(file, 1)
        os._exit(0 if own is not None and not own.is_quiet() and own.is_quiet() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not seen.is_quiet(), "the child has taken its own"


@linux
def test_what_is_watched_no_more_is_given_back(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one, two = (watch({str(tmp_path / "file"): NAME}, [str(tmp_path)]) for _ in range(2))
    assert one is not None
    assert two is not None
    events = inotify._of_process[os.getpid()]
    assert sorted(events._users.values()) == [2, 2]
    one.close()
    one.close()
    assert two.is_quiet()
    (tmp_path / "file").unlink()
    assert not two.is_quiet()
    two.close()
    assert events._users == {}


@linux
def test_a_descriptor_that_somebody_closed_leaves_nothing_unseen(tmp_path: Path) -> None:
    seen = watch({str(tmp_path): NAME})
    assert seen is not None
    assert seen.is_quiet()
    os.close(inotify._of_process[os.getpid()].file)
    assert not seen.is_quiet()
    assert not seen.is_quiet()


def test_without_what_only_unix_has_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: nothing fails when it is imported, and nothing when it is used."""
    monkeypatch.delattr(os, "O_NONBLOCK")
    monkeypatch.delattr(os, "major")
    monkeypatch.delattr(select, "poll")
    monkeypatch.setattr(files, "_STATX", None)
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", _none)
        importlib.reload(inotify)
        assert inotify.watch({str(tmp_path): NAME}) is None
    importlib.reload(inotify)
    (tmp_path / "file").write_text("abc")
    found = Inodes([str(tmp_path / "file")]).look()
    assert found is not None
    assert found[1] == 3


def _none(*_: object, **__: object) -> None:
    raise TypeError("there is no library of the program itself")


def test_a_look_says_the_same_by_either_call(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 3)
    looks = Inodes([str(tmp_path / "a"), str(tmp_path / "b")])
    found = looks.look()
    assert found is not None
    assert found == looks._look_by_stat()
    assert found[1] == 3
    (tmp_path / "b").unlink()
    assert looks.look() is None
    assert looks._look_by_stat() is None
