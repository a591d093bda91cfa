"""A socket: a client that sends messages, gets replies, and receives the events of jobs that it subscribed to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.client.api.stats import Stats
from headrace.core.hidden_errors import hidden_news
from headrace.core.job import Job
from headrace.core.updates import Update
from headrace.core.words import HEADRACE, Vocabulary, worded
from headrace.http.job_events import changes, end_of, position_of
from headrace.http.problems import Fault, Problem
from headrace.hub.api.batches import batch_of
from headrace.hub.api.hidden_errors import hides
from headrace.hub.auth.caller import Caller
from headrace.hub.auth.customers import job_of
from headrace.hub.live.batches import BatchReader, BatchTold, batch_told
from headrace.hub.live.messages import BY_NAME, Message
from headrace.hub.remote_workers.peers import SocketPeer
from headrace.hub.server.operation import OperationRequest
from headrace.hub.server.problems import FAULT, problem_of
from headrace.hub.server.sockets import GONE, Closing, ServedSocket, route_of
from headrace.runtime.watch.followers import Reader

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["Socket", "Subscription", "socket_route"]

IDLE_SECONDS = 300.0
"""Seconds after which a silent socket without subscriptions and jobs is closed."""
MAX_OPEN_MESSAGES = 64
"""Messages of workers that are served at the same time; until one is done, no more are read."""
MAX_UNANSWERED_MESSAGES = 1_000
"""Messages of workers without a reply, waiting claims included."""
MAX_PUSHED_MESSAGES = 10_000
"""Messages of the hub that wait to be sent; a client with more is cut off."""

_log = logging.getLogger("headrace.hub")
_encode = msgspec.json.Encoder().encode


def socket_route(hub: Hub) -> WebSocketRoute:
    """Return the route of sockets."""
    return route_of("/ws", "socket", hub, hub.authenticator.socket, Socket)


class Subscription:
    """One job that a socket has subscribed to."""

    def __init__(self, socket: Socket, job: Job, words: Vocabulary) -> None:
        self.socket, self.job, self.words = socket, job, words
        self.reader: Reader | None = None

    def begin(self) -> None:
        """Begin: from now on there may be something to send."""
        self.socket.wake(self.job.id)

    def close(self) -> None:
        """Stop following the job."""
        if self.reader is not None:
            self.reader.close()


class Socket(ServedSocket):
    """One client: it gets replies to its messages, and the events that it subscribed to.

    Events are read when the client has taken the previous ones: nothing accumulates here for a slow client. The server
    cuts off clients that read nothing (``hub.server.connections``).
    """

    _kind = "socket"

    def __init__(self, hub: Hub, websocket: WebSocket, caller: Caller | None) -> None:
        super().__init__(hub, websocket, caller)
        self._jobs: dict[UUID, Subscription] = {}
        self._ready: dict[UUID, None] = {}
        """The jobs that may have updates, in the order in which they are sent."""
        self._batches: dict[UUID, BatchReader] = {}
        self._stats: Stats | None = None
        self._stats_wanted = False
        self._stats_words = HEADRACE
        self._peer: SocketPeer | None = None
        self._pushed: deque[Any] = deque()
        self._beside: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MAX_OPEN_MESSAGES)
        self._sending = asyncio.Lock()

    def _leave(self, cut_off: bool) -> None:
        for subscription in self._jobs.values():
            subscription.close()
        self._jobs.clear()
        for reader in self._batches.values():
            reader.close()
        self._batches.clear()
        if self._stats_wanted:
            self.hub.live.stats.leave(self._hear_stats)
        if self._peer is not None:
            self._peer.close(cut_off)  # what it has sent is still written

    async def _close(self, closing: Closing) -> None:
        if self._problem is not None:
            with suppress(*GONE):
                await self._send("error", {"problem": self._problem.details})
        await super()._close(closing)

    # -- messages of the client

    async def _listen(self) -> None:
        while True:
            patience = None
            if self._caller is None:
                patience = self.hub.options.read_timeout
            elif not self._jobs and not self._batches and not self._stats_wanted:
                patience = IDLE_SECONDS
            try:
                async with asyncio.timeout(patience):
                    received = await self._receive()
            except TimeoutError:
                if self._peer is not None and self._peer.busy:
                    continue
                raise Closing(1000, "nothing was asked for") from None
            text = received.get("text")
            await self._hear(text.encode() if text is not None else received["bytes"])

    async def _hear(self, frame: bytes) -> None:
        id: Any = None
        name = ""
        try:
            document = _document(frame)
            id = _id_of(document)
            message = _message_of(document)
            name = message.name
            self._admit(message)
            fields = {name: value for name, value in document.items() if name not in ("type", "id")}
            given = msgspec.convert(fields, message.takes) if message.read is None else message.read(fields)
            if message.beside:
                return await self._begin(message, given, id)
            reply = await message.do(self, given)
        except (WebSocketDisconnect, Closing):
            raise
        except Exception as error:
            problem = await self._refuse(error, id)
            if isinstance(error, _NoJson):
                raise Closing(1003, "that was no JSON") from None
            if name == "authenticate" and problem.status == 401:
                raise Closing(1008, problem.details.title) from None  # a client that guesses keys must connect for each
            return None
        await self._send(reply.type, reply.fields, id)
        if reply.then is not None:
            reply.then()
        return None

    async def _refuse(self, error: Exception, id: Any) -> Problem:
        problem = problem_of(error)
        if problem is None:
            _log.error("a message of a socket failed", exc_info=error)
            problem = FAULT
        await self._send("error", {"problem": problem.details}, id)
        return problem

    # -- messages of workers

    def peer(self) -> SocketPeer:
        """The workers at the other end."""
        if self._peer is None:
            self._peer = SocketPeer(self.hub, cast(Caller, self._caller), self.push)
        return self._peer

    def push(self, message: Any) -> None:
        """Send a message that is no reply."""
        if len(self._pushed) >= MAX_PUSHED_MESSAGES:
            return self.let_go(Problem(429, "too-slow", "Too slow", "more was to be told than is read"))
        self._pushed.append(message)
        return self._wake.set()

    async def _begin(self, message: Message, given: Any, id: Any) -> None:
        """Serve a message of a worker beside others; messages about one job stay in their order."""
        if not message.waits:
            await self._room.acquire()
        elif len(self._beside) >= MAX_UNANSWERED_MESSAGES:
            raise Problem(
                429,
                "too-many",
                "Too many claims wait",
                f"a socket may have {MAX_UNANSWERED_MESSAGES} messages unanswered",
            )
        task = asyncio.create_task(self._serve(message, given, id), name="headrace-hub-message")
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        if not message.waits:
            task.add_done_callback(lambda _: self._room.release())

    async def _serve(self, message: Message, given: Any, id: Any) -> None:
        reply = None
        try:
            try:
                reply = await message.do(self, given)
            except Exception as error:
                await self._refuse(error, id)
                return
            await self._send(reply.type, reply.fields, id)
        except GONE:  # the client is gone
            if reply is not None and reply.undelivered is not None:
                await reply.undelivered()

    def _admit(self, message: Message) -> None:
        if message.scope is None:
            return
        if self._caller is None:
            raise Problem(401, "key", "A key is needed", 'send {"type": "authenticate", "key": …} first')
        self.hub.authenticator.admit(self._caller, message.scope, message.bounded)

    def authenticate(self, key: str) -> Caller:
        """Authenticate the socket; :raises Problem: 401, or 409 if it is authenticated already"""
        if self._caller is not None and self._caller.key is not None:
            raise Problem(409, "refused", "It is known who this is", "open another socket to be somebody else")
        self._caller = self.hub.authenticator.authenticate(key)
        self._websocket.state.caller = self._caller  # for the access log
        return self._caller

    async def subscribe(self, text: str, words: Vocabulary) -> Subscription:
        """Follow a job from now on, in these words; a second time changes nothing but the words.

        :raises Problem: 404 or 410, both for a missing job and for another customer's
        """
        job = await job_of(self._asking(), text)
        known = self._jobs.get(job.id)
        if known is not None:
            known.job, known.words = job, words
            return known
        self._check_room()
        subscription = Subscription(self, job, words)
        subscription.reader = await self.hub.app.jobs.follow(job, entries=False, wake=lambda: self.wake(job.id))
        try:
            first = await subscription.reader.take()
        except BaseException:
            subscription.close()
            raise
        assert first is not None
        subscription.job = first.job
        self._jobs[job.id] = subscription
        return subscription

    def unsubscribe(self, id: UUID) -> None:
        """Stop following a job."""
        subscription = self._jobs.pop(id, None)
        if subscription is not None:
            subscription.close()

    async def subscribe_stats(self, words: Vocabulary) -> Any:
        """Subscribe to the counts, and return them, in these words."""
        self._stats_wanted, self._stats_words = True, words
        return worded(await self.hub.live.stats.join(self._hear_stats), words)

    async def subscribe_batch(self, text: str) -> tuple[BatchTold, Callable[[], None] | None]:
        """Return a batch as it is now, and what follows it once that was sent; a second time changes nothing.

        :raises Problem: 404, both for a missing batch and for another customer's
        """
        batch = await batch_of(self._asking(), text)
        told = batch_told(batch)
        if told.ended or batch.id in self._batches:
            return told, None
        self._check_room()

        def begin() -> None:
            self._batches[batch.id] = BatchReader(self.hub.app, batch, self._wake.set)

        return told, begin

    def unsubscribe_batch(self, id: UUID) -> None:
        """Stop following a batch."""
        if (reader := self._batches.pop(id, None)) is not None:
            reader.close()

    def _asking(self) -> OperationRequest:
        """To the code that checks ownership, a message looks like a request for an operation."""
        caller, request = cast(Caller, self._caller), cast(Request, self._websocket)
        return OperationRequest(hub=self.hub, caller=caller, request=request, path={}, query=None, body=None)

    def _check_room(self) -> None:
        most = self.hub.options.subscriptions
        if len(self._jobs) + len(self._batches) >= most:
            raise Problem(429, "too-many", "Too many subscriptions", f"a socket may follow {most} jobs and batches")

    # -- what the client receives

    def wake(self, id: UUID) -> None:
        """Note that there may be updates of this job."""
        self._ready[id] = None
        self._wake.set()

    def _hear_stats(self, stats: Stats) -> None:
        self._stats = stats
        self._wake.set()

    async def _tell(self) -> None:
        while self._ready:
            id = next(iter(self._ready))
            del self._ready[id]
            if (subscription := self._jobs.get(id)) is not None:
                await self._tell_of(subscription)
        for reader in list(self._batches.values()):
            await self._tell_of_batch(reader)
        while self._pushed:
            await self._send(None, self._pushed.popleft())
        stats, self._stats = self._stats, None
        if stats is not None:
            await self._send("stats", worded(stats, self._stats_words))

    async def _tell_of(self, subscription: Subscription) -> None:
        assert subscription.reader is not None
        id = subscription.job.id
        try:
            update = await subscription.reader.take()
        except Exception as error:
            problem = problem_of(error) or FAULT
            self.unsubscribe(id)
            return await self._send("error", {"problem": problem.details, "job_id": id})
        if update is None:
            return None
        subscription.job = update.job
        if hides(self.hub.options, cast(Caller, self._caller)):
            update = hidden_news(update)
        for kind, fields in _events(update):
            await self._send(kind, worded(fields, subscription.words))
        if update.over:
            self.unsubscribe(id)
        else:
            self.wake(id)
        return None

    async def _tell_of_batch(self, reader: BatchReader) -> None:
        try:
            batch = reader.take()
        except Exception as error:
            self.unsubscribe_batch(reader.id)
            return await self._send("error", {"problem": (problem_of(error) or FAULT).details, "batch_id": reader.id})
        if batch is None:
            return None
        told = batch_told(batch)
        await self._send("batch_status", told)
        if told.ended:
            self.unsubscribe_batch(reader.id)
        return None

    async def _send(self, type: str | None, fields: Any = None, id: Any = None) -> None:
        """Send a message; ``type``: None where the fields contain it."""
        head = {} if type is None else {"type": type}
        text = _written(head if id is None else {**head, "id": id}, fields)
        async with self._sending:
            await self._websocket.send_text(text)


def _written(head: dict[str, Any], fields: Any) -> str:
    """Return a message as text: its head, and its fields."""
    data = _encode(head)
    rest = b"{}" if fields is None else _encode(fields)
    if not head:
        return rest.decode()
    return (data if rest == b"{}" else data[:-1] + b"," + rest[1:]).decode()


def _events(update: Update) -> Iterator[tuple[str, msgspec.Struct]]:
    for kind, fields in changes(update):
        yield f"job_{kind}", fields
    if update.place is not None:
        yield "queue_position", position_of(update.job, update.place)
    if update.over and (end := end_of(update.job)) is not None:
        yield f"job_{end[0]}", end[1]


class _NoJson(Problem):
    """A frame that is not JSON."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, "malformed", "The frame is no JSON", detail)


def _document(frame: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(frame)
    except RecursionError:
        document = None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _is_json(frame):  # such as a number that is too large for any type
            raise _malformed("", str(error)) from None
        raise _NoJson(str(error)) from None
    if not isinstance(document, dict):
        raise _malformed("", 'a message is an object, as in {"type": "ping"}')
    return document


def _is_json(frame: bytes) -> bool:
    try:
        json.loads(frame, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    return True


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _id_of(document: dict[str, Any]) -> Any:
    id = document.get("id")
    if id is None or (isinstance(id, str) and len(id) <= 256):
        return id
    if isinstance(id, int) and not isinstance(id, bool) and abs(id) < 2**53:
        return id
    raise _malformed("id", "an id is a text of up to 256 characters, or a whole number below 2 to the 53rd")


def _message_of(document: dict[str, Any]) -> Message:
    name = document.get("type")
    message = BY_NAME.get(name) if isinstance(name, str) else None
    if message is None:
        raise _malformed("type", f"the type is one of {', '.join(BY_NAME)}")
    return message


def _malformed(field: str, message: str) -> Problem:
    faults = [Fault(field, message)] if field else []
    return Problem(400, "malformed", "The message cannot be understood", message, faults=faults)
