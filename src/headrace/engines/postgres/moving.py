"""Moving jobs to other lines, in the transaction that applies the changes which make that necessary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.core.change import Change
from headrace.engine.statements import Statement, Statements
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.lines import Lines
from headrace.engines.sql.lines import Collected
from headrace.engines.sql.record import encode, rank_of

__all__ = ["Moving"]


class Moving:
    """The moves of one session; ``lines``: those that the session knows."""

    def __init__(self, schema: str, lines: Callable[[], Lines]) -> None:
        self._schema, self._lines = schema, lines

    async def statements(self, changes: Sequence[Change]) -> Statements[None]:
        """Put the jobs of these changes where they stand after them, for the transaction that applies them next.

        The lines are interned now. The limit of profiles does not hold for them: the jobs are stored already.

        :raises Collected: when it is run; then the transaction must not be committed
        """
        lines = self._lines()
        learned = await lines.learn([change.job for change in changes], limited=False)
        found = zip(changes, learned.lines_of_taken(), strict=True)
        rows = [(change.job.seq, change.rev, line, rank_of(change.job)) for change, line in found]

        def run() -> Statements[None]:
            document = {"collected": learned.collected, "lock": lines.lock, "rows": rows}
            if (yield Statement(sql("move", self._schema), encode(document))) != "true":
                lines.forget(learned.collected)
                raise Collected

        return run()
