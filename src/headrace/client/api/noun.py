"""``Noun``: what ``app.jobs``, ``app.queues`` and the other nouns of an App have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.session import Session
    from headrace.engine import Engine
    from headrace.runtime.host import Host

__all__ = ["Noun"]


class Noun:
    """One kind of thing in the store of an App; each call uses the session that is open on the running loop.

    ``by``, of every method that has it: who does it, for ``app.store.audit``.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def _session(self) -> Session:
        return self._app.session

    @property
    def _engine(self) -> Engine:
        return self._app.session.engine

    @property
    def _host(self) -> Host:
        return self._app.host
