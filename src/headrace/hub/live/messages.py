"""The messages that clients send over a socket: one row each, as operations are over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.auth.api_keys import Scope
from headrace.core.words import VOCABULARIES, Words, worded
from headrace.http.job_events import status_of
from headrace.http.problems import id_of
from headrace.hub.auth.caller import Caller
from headrace.hub.remote_workers.held_job import LeaseLost
from headrace.hub.remote_workers.messages import StaleJob
from headrace.hub.remote_workers.operations import WORK, Received, WorkMessage
from headrace.hub.server.operation import Bounded

if TYPE_CHECKING:
    from headrace.hub.live.socket import Socket

__all__ = ["BY_NAME", "MESSAGES", "Authenticate", "Message", "Nothing", "OneBatch", "OneJob", "Reply"]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message without fields."""


class Authenticate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key of the client."""

    key: str


class OneJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job that is meant."""

    job_id: str


class FollowedJob(OneJob, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A subscription to a job."""

    words: Words | None = None
    """The words for its statuses; none: ours."""


class FollowedStats(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A subscription to the counts."""

    words: Words | None = None
    """The words for statuses; none: ours."""


class OneBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The batch that is meant."""

    batch_id: str


class Welcome(msgspec.Struct, frozen=True):
    """Name and scopes of the caller that was authenticated."""

    name: str
    scopes: tuple[Scope, ...]
    customer: str | None


class Reply(msgspec.Struct, frozen=True):
    """The reply to a message; it carries the id of the message."""

    type: str | None
    """None: the fields contain it."""
    fields: Any = None
    undelivered: Callable[[], Awaitable[None]] | None = None
    """Called if the reply could not be sent."""
    then: Callable[[], None] | None = None
    """Called once the reply was sent, so that nothing that follows from it is sent earlier."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message: its name, its scope, its fields, and the function that serves it."""

    name: str
    summary: str
    scope: Scope | None
    """None: no key is needed, nor authentication."""
    bounded: Bounded
    do: Callable[[Socket, Any], Awaitable[Reply]]
    takes: type[msgspec.Struct] = Nothing
    read: Callable[[Mapping[str, Any]], Any] | None = None
    """Makes of its fields what ``do`` is given; None: the struct that it takes."""
    example: Mapping[str, Any] = field(default_factory=dict)
    beside: bool = False
    """It may take long: other messages are handled meanwhile."""
    waits: bool = False
    """It may take very long, and is not counted with those that run beside others."""


async def authenticate(socket: Socket, given: Authenticate) -> Reply:
    """Authenticate the socket."""
    caller: Caller = socket.authenticate(given.key)
    return Reply("authenticated", Welcome(caller.name, tuple(sorted(caller.scopes)), caller.customer))


async def subscribe_job(socket: Socket, given: FollowedJob) -> Reply:
    """Send the status of the job, and from then on its changes, until it has ended."""
    subscription = await socket.subscribe(given.job_id, VOCABULARIES[given.words or "headrace"])
    return Reply("job_status", worded(status_of(subscription.job), subscription.words), then=subscription.begin)


async def unsubscribe_job(socket: Socket, given: OneJob) -> Reply:
    """Send no more of the job; one that was not subscribed to is ignored."""
    socket.unsubscribe(id_of(given.job_id))
    return Reply("unsubscribed", given)


async def subscribe_batch(socket: Socket, given: OneBatch) -> Reply:
    """Send the counts of the batch, and again whenever they have changed, until all of its jobs have ended."""
    told, begin = await socket.subscribe_batch(given.batch_id)
    return Reply("batch_status", told, then=begin)


async def unsubscribe_batch(socket: Socket, given: OneBatch) -> Reply:
    """Send no more of the batch; one that was not subscribed to is ignored."""
    socket.unsubscribe_batch(id_of(given.batch_id))
    return Reply("unsubscribed", given)


async def subscribe_stats(socket: Socket, given: FollowedStats) -> Reply:
    """Send the counts of the store, and again whenever they change."""
    return Reply("stats", await socket.subscribe_stats(VOCABULARIES[given.words or "headrace"]))


async def ping(socket: Socket, given: Nothing) -> Reply:
    """Reply."""
    return Reply("pong")


def _of_workers(message: WorkMessage) -> Message:
    """Return a message of workers as a message of the socket."""

    async def do(socket: Socket, received: Received) -> Reply:
        peer = socket.peer()
        try:
            answer = received.answered(await message.do(peer, received.given))
        except LeaseLost as stale:
            answer = StaleJob(job_id=stale.job, detail=stale.detail)
        return Reply(None, answer, undelivered=lambda: peer.undelivered(answer))

    return Message(
        name=message.name,
        summary=message.summary,
        scope="work",
        bounded=message.bounded,
        do=do,
        takes=message.takes,
        read=message.read,
        example=message.example,
        beside=True,
        waits=message.waits,
    )


_ID = "0198c5a4-7b1e-7cc2-8d4f-5b6a7c8d9e0f"

MESSAGES = (
    Message(
        name="authenticate",
        summary="Say who it is, with a key",
        scope=None,
        bounded="nothing",
        do=authenticate,
        takes=Authenticate,
        example={"key": "hr_…"},
    ),
    Message(
        name="subscribe_job",
        summary="Follow a job to its end",
        scope="read",
        bounded="job",
        do=subscribe_job,
        takes=FollowedJob,
        example={"job_id": _ID},
    ),
    Message(
        name="unsubscribe_job",
        summary="Follow it no longer",
        scope="read",
        bounded="nothing",
        do=unsubscribe_job,
        takes=OneJob,
        example={"job_id": _ID},
    ),
    Message(
        name="subscribe_batch",
        summary="Follow a batch to its end",
        scope="read",
        bounded="batch",
        do=subscribe_batch,
        takes=OneBatch,
        example={"batch_id": _ID},
    ),
    Message(
        name="unsubscribe_batch",
        summary="Follow it no longer",
        scope="read",
        bounded="nothing",
        do=unsubscribe_batch,
        takes=OneBatch,
        example={"batch_id": _ID},
    ),
    Message(
        name="subscribe_stats",
        summary="Follow the counts of the store",
        scope="read",
        bounded="operator",
        do=subscribe_stats,
        takes=FollowedStats,
    ),
    Message(name="ping", summary="Ask for a pong", scope=None, bounded="nothing", do=ping),
    *(_of_workers(message) for message in WORK),
)
"""All messages that a client may send; the tests of scopes and customers iterate over it."""

BY_NAME = {message.name: message for message in MESSAGES}
