"""Hints between sessions: who listens hears them, nobody else is disturbed, nothing fails when they are lost."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.engine.bus import Hint, Topic
from headrace.engines.sqlite.bus import LETTERS, SocketBus, directory_of
from headrace.runtime.host import Host
from tests.support.until import until

ALL = frozenset(Topic)


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short directory of the test's own: paths of sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="hr") as folder:
        monkeypatch.setattr("tempfile.gettempdir", lambda: folder)
        yield Path(folder)


@pytest.fixture
async def pair(file: Path) -> AsyncIterator[tuple[SocketBus, SocketBus]]:
    one, two = SocketBus(file, Host()), SocketBus(file, Host())
    one.open()
    two.open()
    yield one, two
    one.close()
    two.close()


def sockets(file: Path) -> list[str]:
    return sorted(entry.name for entry in directory_of(file).glob("*"))


def test_every_topic_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == set(Topic)
    assert len(set(LETTERS.values())) == len(Topic)


async def test_a_hint_reaches_both_sessions(pair: tuple[SocketBus, SocketBus]) -> None:
    heard: list[tuple[int, Hint]] = []
    for at, bus in enumerate(pair):
        bus.listen(ALL, lambda hint, at=at: heard.append((at, hint)))  # type: ignore[misc]
    hint = Hint(Topic.READY, ("default", "Ünï"))
    pair[0].send(hint)
    await until(lambda: len(heard) == 2)
    assert sorted(heard, key=lambda one: one[0]) == [(0, hint), (1, hint)]


async def test_a_bus_that_is_closed_on_its_loop_fails_nobody_on_another_thread(
    pair: tuple[SocketBus, SocketBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair[1].listen(ALL, lambda hint: None)
    looks = [pair[0]._directory]  # at the second look it is gone
    with monkeypatch.context() as patch:
        patch.setattr(SocketBus, "_directory", property(lambda _: looks.pop() if looks else None), raising=False)
        await asyncio.to_thread(pair[0].send, Hint(Topic.READY))
    assert not looks


async def test_a_listener_hears_its_topics_only(pair: tuple[SocketBus, SocketBus], file: Path) -> None:
    heard: list[Topic] = []
    pair[1].listen(frozenset({Topic.ENDED}), lambda hint: heard.append(hint.topic))
    assert [name.partition(".")[2] for name in sockets(file)] == [LETTERS[Topic.ENDED]]
    for topic in (Topic.READY, Topic.ENDED, Topic.CANCEL, Topic.ENDED):
        pair[0].send(Hint(topic))
    await until(lambda: len(heard) == 2)
    assert heard == [Topic.ENDED] * 2


async def test_the_socket_follows_what_is_listened_for(pair: tuple[SocketBus, SocketBus], file: Path) -> None:
    heard: list[Topic] = []
    first = pair[1].listen(frozenset({Topic.ENDED}), lambda hint: heard.append(hint.topic))
    pair[0].send(Hint(Topic.ENDED))
    second = pair[1].listen(frozenset({Topic.CANCEL}), lambda hint: heard.append(hint.topic))
    pair[0].send(Hint(Topic.CANCEL))
    await until(lambda: Topic.CANCEL in heard)
    first()
    assert [name.partition(".")[2] for name in sockets(file)] == [LETTERS[Topic.CANCEL]]
    second()
    assert sockets(file) == []


async def test_a_long_hint_comes_in_pieces(pair: tuple[SocketBus, SocketBus]) -> None:
    heard: list[str] = []
    pair[1].listen(ALL, lambda hint: heard.extend(hint.names))
    names = tuple(f"name-{at:06}-{'x' * 100}" for at in range(1500))
    pair[0].send(Hint(Topic.ENDED, names))
    await until(lambda: len(heard) == len(names))
    assert tuple(heard) == names


async def test_a_name_too_long_for_any_datagram_is_dropped(pair: tuple[SocketBus, SocketBus]) -> None:
    heard: list[Hint] = []
    pair[1].listen(ALL, heard.append)
    pair[0].send(Hint(Topic.ENDED, ("x" * 100_000,)))
    pair[0].send(Hint(Topic.READY))
    await until(lambda: bool(heard))
    assert heard == [Hint(Topic.READY)]


async def test_the_socket_of_a_dead_owner_is_removed(pair: tuple[SocketBus, SocketBus], file: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(directory_of(file) / "dead.cepr"))
    dead.close()
    assert sockets(file) == ["dead.cepr"]
    pair[0].send(Hint(Topic.READY))
    assert sockets(file) == []


async def test_a_listener_who_is_too_slow_holds_nobody_up(pair: tuple[SocketBus, SocketBus]) -> None:
    heard: list[Hint] = []
    pair[1].listen(ALL, heard.append)
    for _ in range(2000):
        pair[0].send(Hint(Topic.READY, ("x" * 1000,)))
    await until(lambda: bool(heard))
    assert len(heard) < 2000


async def test_noise_is_ignored(pair: tuple[SocketBus, SocketBus], file: Path) -> None:
    heard: list[Hint] = []
    pair[1].listen(ALL, heard.append)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"\xff not a hint", str(directory_of(file) / sockets(file)[0]))
    pair[0].send(Hint(Topic.READY))
    await until(lambda: bool(heard))
    assert heard == [Hint(Topic.READY)]


async def test_a_directory_that_others_may_enter_is_not_used(file: Path) -> None:
    directory_of(file).mkdir(mode=0o755)
    bus = SocketBus(file, Host())
    heard: list[Hint] = []
    bus.open()
    bus.listen(ALL, heard.append)
    bus.send(Hint(Topic.READY))
    await until(lambda: bool(heard))
    assert sockets(file) == []
    bus.close()


async def test_a_room_that_is_a_link_is_not_used(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    directory_of(file).symlink_to(tmp_path / "elsewhere")
    bus = SocketBus(file, Host())
    bus.open()
    bus.listen(ALL, lambda hint: None)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    bus.close()


async def test_without_such_sockets_hints_stay_in_the_session(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("socket.AF_UNIX")
    bus = SocketBus(file, Host())
    heard: list[Hint] = []
    bus.open()
    bus.listen(ALL, heard.append)
    bus.send(Hint(Topic.READY))
    await until(lambda: bool(heard))
    bus.close()


def test_two_names_of_one_file_meet(file: Path, tmp_path: Path) -> None:
    file.touch()
    (tmp_path / "link.db").symlink_to(file)
    assert directory_of(tmp_path / "link.db") == directory_of(file)
    assert directory_of(tmp_path / "other.db") != directory_of(file)


async def test_a_closed_bus_says_nothing_and_can_be_opened_again(file: Path) -> None:
    bus = SocketBus(file, Host())
    heard: list[Hint] = []
    bus.listen(ALL, heard.append)
    bus.send(Hint(Topic.READY))
    bus.open()
    assert len(sockets(file)) == 1
    bus.close()
    assert sockets(file) == []
    bus.send(Hint(Topic.READY))
    bus.open()
    bus.send(Hint(Topic.ENDED))
    await until(lambda: bool(heard))
    assert heard == [Hint(Topic.ENDED)]
    bus.close()


async def test_a_hint_may_be_sent_from_another_thread(pair: tuple[SocketBus, SocketBus]) -> None:
    heard: list[Hint] = []
    pair[0].listen(ALL, heard.append)
    await asyncio.to_thread(pair[0].send, Hint(Topic.READY))
    await until(lambda: bool(heard))


async def test_the_last_to_leave_takes_the_room_away_and_the_next_to_listen_makes_it_again(file: Path) -> None:
    one, two = SocketBus(file, Host()), SocketBus(file, Host())
    one.open()
    two.open()
    one.close()
    assert not list(directory_of(file).parent.glob(directory_of(file).name))
    heard: list[Hint] = []
    two.listen(ALL, heard.append)
    one.open()
    one.send(Hint(Topic.READY))
    await until(lambda: bool(heard))
    one.close()
    assert len(sockets(file)) == 1
    two.close()
    assert not list(directory_of(file).parent.glob(directory_of(file).name))
