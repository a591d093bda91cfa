"""All that the contract says can travel: every argument and every answer of every verb, walked by their types."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import cycle, islice
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import pytest

from headrace import errors
from headrace.core.attempt import ErrorInfo
from headrace.core.change import Change, Verdict
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Status, Verb
from headrace.engine import (
    Documents,
    Engine,
    Entries,
    Families,
    Hint,
    InsertAnswer,
    Jobs,
    Records,
    Refused,
    Rollups,
    Workers,
)
from headrace.engine.wire import decode, encode
from headrace.errors import (
    ConfigError,
    Duplicate,
    HeadraceError,
    JobNotFound,
    StoreLost,
    TransitionRefused,
    Unavailable,
)

ROLES = (Jobs, Records, Entries, Families, Rollups, Workers, Documents, Engine)
"""All but ``transactions``, which are of one process; of the bus only hints travel."""

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


def verbs() -> Iterable[tuple[str, Any]]:
    """Every type that a verb takes or gives, under a name."""
    for role in ROLES:
        for name, verb in vars(role).items():
            if inspect.iscoroutinefunction(verb):
                for what, kind in get_type_hints(verb).items():
                    yield f"{role.__name__}.{name}: {what}", kind
    yield "Bus.send: hint", Hint


def samples(kind: Any) -> list[Any]:
    """Values of a type that between them have each of its parts in each of its forms."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin in (Union, types.UnionType):
        return [value for one in args for value in samples(one)]
    if origin is Literal:
        return list(args)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return [tuple(samples(one)[0] for one in args)]
    if origin in _MANY:
        return [_MANY[origin](samples(args[0])), _MANY[origin](())]
    if origin in (dict, Mapping):
        keys = samples(args[0])
        return [dict(zip(keys, cycle(samples(args[1])), strict=False)), {}]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)
    struct = origin or kind
    assert isinstance(struct, type), f"no samples of {kind}"
    assert issubclass(struct, msgspec.Struct), f"no samples of {kind}"
    return _structs(struct, args)


def _structs(struct: type[msgspec.Struct], args: tuple[Any, ...]) -> list[Any]:
    hints = get_type_hints(struct)
    of = dict(zip(getattr(struct, "__parameters__", ()), args, strict=True))
    fields = {name: samples(_filled(hints[name], of)) for name in struct.__struct_fields__}
    most = max(map(len, fields.values()), default=1)
    columns = [list(islice(cycle(values), most)) for values in fields.values()]
    return [struct(**dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True)] or [struct()]


def _filled(hint: Any, of: dict[Any, Any]) -> Any:
    """The type of a field of a generic struct that is used with these types."""
    if isinstance(hint, TypeVar):
        return of[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(of[one] for one in parameters)] if parameters else hint


_MANY: dict[Any, Any] = {list: list, Sequence: list, tuple: tuple, frozenset: frozenset}
JOB = Job(
    id=ID,
    spec=Spec(task="t", created_at=AT),
    payload_text="{}",
    status=Status.QUEUED,
    available_at=AT,
    arrived_at=AT,
    updated_at=AT,
)
ERRORS: list[HeadraceError] = [
    ConfigError("a setting that cannot be"),
    TransitionRefused(JOB, Verb.SUBMIT, "its parent has ended"),
    JobNotFound(ID),
    Duplicate(JOB),
    errors.KeyReused(JOB),
    errors.Stale(JOB),
    errors.JobFailed(JOB, ErrorInfo("ValueError", "no", None, {"a": 1})),
    errors.NotOpen("not open"),
    errors.Overloaded("full"),
    errors.Unstorable("half a character"),
    errors.SchemaTooNew("newer"),
    errors.SchemaTooOld("older"),
    Unavailable("away", outcome="unknown", ids=[ID]),
    StoreLost("gone", outcome="refused"),
]
_PLAIN: dict[Any, list[Any]] = {
    type(None): [None],
    bool: [True, False],
    int: [7, 0, 2**62],
    float: [1.5, 0.0],
    str: ["text", "", 'üñ\0 "'],
    bytes: [b"x", b""],
    UUID: [ID],
    datetime: [AT],
    Any: ["text", {"a": [1, None, 2.5]}],
    Retry: [Retry(), Retry(0, backoff=[1, 2], retry_on=[OSError], give_up_on=["Mine"])],
    HeadraceError: list(ERRORS),
}


def told(value: Any) -> Any:
    """What can be compared: an error is the same as another if it says the same and carries the same."""
    if isinstance(value, HeadraceError):
        return type(value), value.args, vars(value)
    if isinstance(value, Refused):
        return told(value.error)
    return [told(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in verbs()])
def test_every_argument_and_answer_travels(kind: Any) -> None:
    for value in samples(kind):
        assert told(decode(encode(value), kind)) == told(value)


def test_the_walk_meets_what_it_must() -> None:
    kinds = dict(verbs())
    assert len(kinds) > 80
    assert {type(one) for one in samples(Verdict)} == set(get_args(Verdict))
    assert {type(one) for one in samples(InsertAnswer)} == set(get_args(InsertAnswer))
    assert any(change.inserts for change in samples(Change))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_says_the_same_on_the_other_side(error: HeadraceError) -> None:
    back = decode(encode(error), HeadraceError)
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_an_error_of_somebody_elses_arrives_as_the_nearest_that_all_know() -> None:
    class Full(errors.Overloaded):
        pass

    back = decode(encode(Full("no room")), HeadraceError)
    assert type(back) is errors.Overloaded
    assert str(back) == "no room"


def test_what_is_no_part_of_the_contract_does_not_travel() -> None:
    with pytest.raises(NotImplementedError, match="object does not travel"):
        encode(object())
