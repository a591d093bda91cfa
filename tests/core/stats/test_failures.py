"""Fingerprints: what makes errors the same, and what does not."""

from __future__ import annotations

import traceback

import pytest
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo
from headrace.core.job import Job
from headrace.core.stats.failures import FINGERPRINT_DIGITS, fingerprint, grouped, place_of
from headrace.core.status import Status
from tests.core.stand import NOW, at, stand

USERS = ("/srv/releases/17/shop/mail.py", 31, "send")
THEIRS = (
    ("/usr/lib/python3.12/json/decoder.py", 355, "raw_decode"),
    ("/srv/venv/lib/python3.12/site-packages/httpx/_client.py", 9, "request"),
    ("/usr/lib/python3/dist-packages/requests/api.py", 9, "get"),
    ("C:\\Python312\\Lib\\json\\decoder.py", 355, "raw_decode"),
    ("/home/me/headrace/src/headrace/worker/perform.py", 64, "invoke"),
    ("<frozen importlib._bootstrap>", 1, "_find"),
)


def trace(*frames: tuple[str, int, str]) -> str:
    lines = "".join(f'  File "{file}", line {line}, in {name}\n    work()\n' for file, line, name in frames)
    return f"Traceback (most recent call last):\n{lines}ValueError: no\n"


def error(*frames: tuple[str, int, str], type: str = "ValueError", message: str = "no") -> ErrorInfo:
    return ErrorInfo(type, message, trace(*frames) if frames else None)


@pytest.mark.parametrize("inner", THEIRS, ids=lambda frame: frame[0])
def test_the_place_is_the_innermost_of_the_users_own(inner: tuple[str, int, str]) -> None:
    assert place_of(error(("/srv/shop/tasks.py", 3, "task"), USERS, inner)) == "mail.py:send"
    assert place_of(error(inner)) is not None, "where no frame is the user's, the innermost will do"


def test_the_place_in_a_real_traceback() -> None:
    def outer() -> None:
        try:
            int("x")
        except ValueError as first:
            raise KeyError("y") from first

    try:
        outer()
    except KeyError:
        text = traceback.format_exc()
    assert place_of(ErrorInfo("KeyError", "'y'", text)) == "test_failures.py:outer"


def test_of_errors_in_a_chain_the_last_one_counts() -> None:
    text = trace(("/srv/a.py", 1, "first")) + "\nDuring handling of the above exception:\n\n" + trace(USERS)
    assert place_of(ErrorInfo("ValueError", "no", text)) == "mail.py:send"


def test_a_group_of_exceptions_has_a_place_too() -> None:
    try:
        raise ExceptionGroup("several", [ValueError(1)])
    except ExceptionGroup:
        text = traceback.format_exc()
    assert place_of(ErrorInfo("ExceptionGroup", "several", text)) is not None


def test_a_deploy_and_another_message_change_nothing() -> None:
    first = fingerprint("mail", error(USERS, THEIRS[0], message="for ann"))
    moved = ("/srv/releases/18/shop/mail.py", 99, "send")
    assert first == fingerprint("mail", error(moved, THEIRS[0], message="for bob"))
    assert first is not None
    assert len(first) == FINGERPRINT_DIGITS


def test_task_type_and_place_tell_errors_apart() -> None:
    others = (
        fingerprint("mail", error(USERS)),
        fingerprint("post", error(USERS)),
        fingerprint("mail", error(USERS, type="KeyError")),
        fingerprint("mail", error(("/srv/releases/17/shop/mail.py", 31, "receive"))),
        fingerprint("mail", error(("/srv/releases/17/shop/post.py", 31, "send"))),
        fingerprint("mail", error()),
    )
    assert len(set(others)) == len(others)
    assert fingerprint("mail", None) is None


def failed(seq: int, info: ErrorInfo | None, finished: float, status: Status = Status.FAILED) -> Job:
    job = replace(stand(status), seq=seq, error=info, fingerprint=fingerprint("work", info), failed_at=None)
    return replace(job, finished_at=at(finished) if status is Status.FAILED else None, updated_at=at(finished))


def test_groups_are_counted_and_the_largest_comes_first() -> None:
    one, two = error(USERS), error(type="KeyError", message="newest")
    jobs = [failed(1, two, 5), failed(2, one, 1), failed(3, two, 2, Status.RETRYING), failed(4, None, 0)]
    first, second = grouped(jobs, 10)
    assert (first.jobs, first.failed, first.first_seen, first.last_seen) == (2, 1, at(2), at(5))
    assert (first.type, first.place, first.message, first.example) == ("KeyError", None, "newest", jobs[2].id)
    assert (second.jobs, second.place) == (1, "mail.py:send")
    assert grouped(jobs, 1) == [first]


def test_a_failure_is_dated_by_when_it_happened() -> None:
    acted = replace(failed(1, error(USERS), 9, Status.RETRYING), failed_at=at(3))
    [group] = grouped([acted], 10)
    assert (group.first_seen, group.last_seen) == (at(3), at(3))


def test_errors_from_before_there_were_fingerprints_are_grouped_by_task_and_type() -> None:
    jobs = [replace(failed(n, error(USERS, message=str(n)), n), fingerprint=None) for n in range(3)]
    held = replace(stand(Status.RUNNING), error=error(USERS))
    [group] = grouped([*jobs, held], 10)
    assert (group.fingerprint, group.jobs, group.type, group.message) == (None, 3, "ValueError", "2")
    assert group.first_seen == NOW
