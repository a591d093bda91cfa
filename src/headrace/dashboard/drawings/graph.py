"""The family of a job as a drawing: parents and dependencies, from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headrace.core.job import Job

__all__ = ["Edge", "Graph", "Node", "graph"]

WIDE, HIGH, ACROSS, DOWN = 168.0, 34.0, 56.0, 12.0
MAX_JOBS = 60
"""Maximum jobs that are drawn."""


@dataclass(frozen=True)
class Node:
    """A job in the drawing."""

    job: Job
    x: float
    y: float
    width: float = WIDE
    height: float = HIGH


@dataclass(frozen=True)
class Edge:
    """A link from one job to another."""

    path: str
    kind: str
    """``child``: it was submitted by the other; ``after``: it waits for the other."""


@dataclass(frozen=True)
class Graph:
    """All nodes and edges."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float
    more: bool
    """Whether there are more than are drawn."""


def graph(jobs: Iterable[Job]) -> Graph | None:
    """Return the drawing of these jobs; None: none of them is related to another."""
    known: dict[UUID, Job] = {}
    for job in sorted(jobs, key=lambda one: one.seq):
        known.setdefault(job.id, job)
    more = len(known) > MAX_JOBS
    known = dict(list(known.items())[:MAX_JOBS])
    links: list[tuple[UUID, UUID, str]] = [
        (job.parent, job.id, "child") for job in known.values() if job.parent is not None and job.parent in known
    ]
    links += [(other, job.id, "after") for job in known.values() for other in job.after if other in known]
    if not links:
        return None
    columns = _columns(known, links)
    rows: dict[int, int] = {}
    nodes = dict[UUID, Node]()
    for id, job in known.items():
        column = columns[id]
        row = rows.get(column, 0)
        rows[column] = row + 1
        nodes[id] = Node(job, 2 + column * (WIDE + ACROSS), 2 + row * (HIGH + DOWN))
    edges = tuple(_edge(nodes[begin], nodes[end], kind) for begin, end, kind in links)
    width, height = 4 + (max(columns.values()) + 1) * (WIDE + ACROSS) - ACROSS, 4 + max(rows.values()) * (HIGH + DOWN)
    return Graph(tuple(nodes.values()), edges, width, height, more)


def _columns(known: Mapping[UUID, Job], links: list[tuple[UUID, UUID, str]]) -> dict[UUID, int]:
    """Return the column of each job: to the right of all jobs that it comes from."""
    before: dict[UUID, list[UUID]] = {}
    for begin, end, _ in links:
        before.setdefault(end, []).append(begin)
    found: dict[UUID, int] = {}

    def column(id: UUID, path: frozenset[UUID]) -> int:
        if id not in found:
            others = [other for other in before.get(id, ()) if other not in path]
            found[id] = 1 + max((column(other, path | {id}) for other in others), default=-1)
        return found[id]

    for id in known:
        column(id, frozenset())
    return found


def _edge(begin: Node, end: Node, kind: str) -> Edge:
    x1, y1, x2, y2 = begin.x + WIDE, begin.y + HIGH / 2, end.x, end.y + HIGH / 2
    middle = (x1 + x2) / 2
    return Edge(f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}", kind)
