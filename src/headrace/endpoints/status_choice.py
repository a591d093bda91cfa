"""Which status pages show the jobs of a router: those that it names, or the only ones of its App.

A wrong pair is an error: clients would get addresses at which their jobs are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.endpoints.status import StatusPages
from headrace.endpoints.submit import Misused
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["StatusChoice", "check_status_url"]


def check_status_url(url: str | None) -> None:
    """Refuse an address of jobs that has no place for an id; :raises ConfigError:"""
    if url is not None and "{id}" not in url:
        raise ConfigError(f"status_url must have {{id}} where the id of a job belongs, not {shown(url)}")


class StatusChoice:
    """The status pages of one router."""

    def __init__(
        self, router: str, app: App, named: Iterable[StatusPages] | None = None, *, fixed: bool = False, asks: bool
    ) -> None:
        """``router``: the name of its class. ``named``: what its ``status`` names; None: it names nothing. ``fixed``:
        its ``status_url`` says where the pages are. ``asks``: it knows its callers, or a function of the service
        completes its jobs.

        :raises ConfigError: naming the argument, the cause and the remedy
        """
        self._router, self.app, self._fixed, self._asks = router, app, fixed, asks
        self.named = None if named is None else next(iter(named), None)
        if named is not None and self.named is None:
            raise ConfigError(f"{router}: status must be what shows jobs, as status_router(jobs, ...) returns it")
        if self.named is not None and self.named.app is not app:
            raise ConfigError(
                f"{router}: status shows jobs of another App, so that no job of this router is found there:"
                " make both of the same App"
            )
        if self.named is not None:
            self._check_callers(self.named)

    def choose(self, found: Iterable[StatusPages]) -> StatusPages | None:
        """Return the pages of this router among those that an application has of its App; None: it has none.

        :raises Misused: they do not fit, naming the cause and the remedy
        """
        pages = list(dict.fromkeys(found))
        if self.named is not None:
            if self.named not in pages and not self._fixed:
                raise Misused(
                    f"{self._router}: the application does not include the pages that status names: include them, or"
                    " say with status_url=... where they are"
                )
            return self.named
        if len(pages) > 1:
            raise Misused(
                f"{self._router}: the application shows jobs of this App at {len(pages)} places, so that it is not"
                f" clear which address clients are to get: name one, as in {self._router}(jobs, status=...)"
            )
        if not pages:
            return None
        self._check_callers(pages[0])
        return pages[0]

    def _check_callers(self, pages: StatusPages) -> None:
        if pages.known and not self._asks:
            raise Misused(
                f"{self._router}: its status pages show callers their own jobs (identity=...), and this router does not"
                f" know its callers, so that nobody would see its jobs: give {self._router} the same identity, or name"
                " other pages with status=..."
            )
