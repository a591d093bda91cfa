"""Draws the boxes and arrows of ``docs/images``: the way of a job, and the layers. Run by ``make docs``.

A drawing is a list of shapes. Words that do not fit their box are an error here, and so never get into a file.
"""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
IMAGES = HERE / "images"
SOURCE = HERE.parent / "src" / "headrace"

WIDTH = 920
_SIZES = {"head": 14.0, "name": 15.0, "word": 13.0, "path": 12.0}
_WIDE = {"head": 0.6, "name": 0.66, "word": 0.56, "path": 0.61}
"""How wide a sign is at most on average, in ems: as in DejaVu, which is wider than most."""

STYLE = """
    .card { fill: #ffffff; }
    .panel { fill: #f6f8fa; stroke: #d0d7de; }
    .plain { fill: #ffffff; stroke: #57606a; stroke-width: 1.5; }
    .store { fill: #ddebff; stroke: #1f5fbf; stroke-width: 1.5; }
    .pure { fill: #dcf5e3; stroke: #1a7f37; stroke-width: 1.5; }
    .line { fill: none; stroke: #57606a; stroke-width: 1.5; marker-end: url(#tip); }
    .hint { fill: none; stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 5 4; marker-end: url(#tip); }
    .tip { fill: #57606a; }
    .head { fill: #424a53; font-size: 14px; font-weight: 600; }
    .name { fill: #1f2328; font-size: 15px; font-weight: 600; }
    .word { fill: #424a53; font-size: 13px; }
    .path { fill: #424a53; font-size: 12px; font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; }
      .panel { fill: #151b23; stroke: #3d444d; }
      .plain { fill: #1b222c; stroke: #9aa4b0; }
      .store { fill: #12294d; stroke: #6ea8fe; }
      .pure { fill: #10301b; stroke: #4ac26b; }
      .line, .hint { stroke: #9aa4b0; }
      .tip { fill: #9aa4b0; }
      .head, .word, .path { fill: #c3ccd6; }
      .name { fill: #f0f3f6; }
    }
"""


class DoesNotFit(ValueError):
    """A text is wider or higher than the box it is in."""


@dataclass(frozen=True)
class Box:
    """A box with its lines of text: the style of each, and what it says."""

    x: int
    y: int
    width: int
    height: int
    kind: str
    lines: Sequence[tuple[str, str]] = ()

    def svg(self) -> Iterator[str]:
        """The box, and its lines from the top down."""
        size = f'width="{self.width}" height="{self.height}"'
        yield f'  <rect class="{self.kind}" x="{self.x}" y="{self.y}" {size} rx="8"/>'
        y = float(self.y + 6)
        for style, text in self.lines:
            y += _SIZES[style] + 4
            if _wide(style, text) > self.width - 20 or y > self.y + self.height - 5:
                raise DoesNotFit(text)
            yield f'  <text class="{style}" x="{self.x + 12}" y="{y:g}">{html.escape(text)}</text>'


@dataclass(frozen=True)
class Arrow:
    """A line along these points, with a tip at the last; ``hint`` is one that may be lost."""

    points: Sequence[tuple[int, int]]
    kind: str = "line"

    def svg(self) -> Iterator[str]:
        """The line."""
        (x, y), *rest = self.points
        way = f"M{x} {y}" + "".join(f" L{x} {y}" for x, y in rest)
        yield f'  <path class="{self.kind}" d="{way}"/>'


@dataclass(frozen=True)
class Drawing:
    """A picture: its shapes, and what it says to those who cannot see it."""

    title: str
    description: str
    height: int
    shapes: Sequence[Box | Arrow]

    def svg(self) -> str:
        """The whole file."""
        font = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
        seen = f'viewBox="0 0 {WIDTH} {self.height}"'
        tip = 'markerWidth="7" markerHeight="7"'
        spoken = 'role="img" aria-labelledby="title desc"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {seen} {spoken} font-family="{font}">',
            "  <!-- Drawn by docs/drawings.py: `make docs`. -->",
            f'  <title id="title">{html.escape(self.title)}</title>',
            f'  <desc id="desc">{html.escape(self.description)}</desc>',
            f"  <style>{STYLE}  </style>",
            "  <defs>",
            f'    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" {tip} orient="auto">',
            '      <path class="tip" d="M0 0 L10 5 L0 10 z"/>',
            "    </marker>",
            "  </defs>",
            f'  <rect class="card" width="{WIDTH}" height="{self.height}" rx="10"/>',
            *(line for shape in self.shapes for line in shape.svg()),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"


def _wide(style: str, text: str) -> float:
    return len(text) * _SIZES[style] * _WIDE[style]


# -- the way of a job

_TOP, _PITCH, _HIGH = 52, 122, 102
_COLUMNS = {"program": 28, "store": 337, "worker": 646}
_PANEL, _IN = 270, 246

STEPS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "program": [
        ("1  submit", "check and encode arguments", "client/task.py worker/handler.py core/codec/json.py"),
        (
            "2  make the job",
            "give it an id and its options",
            "client/draft.py client/submission/submit.py core/lifecycle/submission.py",
        ),
        ("3  group the writes", "one write for all that came", "runtime/writes/inserts.py runtime/writes/batcher.py"),
        ("", "", ""),
        ("13  wait", "by hints, and by polling", "client/handle.py runtime/watch/watcher.py"),
    ],
    "store": [
        ("6  claim", "the first of the subqueues", "engine/jobs.py core/lifecycle/claim.py core/limits/selection.py"),
        ("5  wait in a subqueue", "by queue, task, requirements", "core/status.py core/matching/match.py"),
        ("4  insert", "durable when it returns", "engine/jobs.py"),
        ("11  apply", "if rev and owner still hold", "engine/jobs.py core/change.py"),
        ("12  notes and hints", "what the end means to others", "engine/families.py engine/bus.py"),
    ],
    "worker": [
        ("7  fetch", "request as much as fits", "worker/claim/fetcher.py worker/claim/buffer.py"),
        ("8  own", "take the job, wait for a slot", "worker/slots.py worker/owned_job.py"),
        ("9  run", "loop, thread or child process", "worker/execution/run.py worker/execution/call.py"),
        (
            "10  finish",
            "decide the change, write it",
            "worker/owned_job.py core/lifecycle/execution.py runtime/writes/writer.py",
        ),
        (
            "13  follow",
            "release, cancel, count others",
            "runtime/writes/notes.py core/lifecycle/family.py core/batch.py",
        ),
    ],
}
"""The boxes of each column from the top down: name, what is done, in which modules. An empty one leaves room."""

_HEADS = {"program": "a program that submits", "store": "the store, through an engine", "worker": "a worker"}


def _lines(paths: str) -> list[tuple[str, str]]:
    """The paths on as many lines as they need."""
    lines = [""]
    for path in paths.split():
        joined = f"{lines[-1]} {path}".strip()
        if _wide("path", joined) > _IN - 20:
            lines.append(path)
        else:
            lines[-1] = joined
    return [("path", line) for line in lines]


def _row(row: int) -> int:
    return _TOP + row * _PITCH


def way_of_a_job() -> Drawing:
    """From the submit to what the end means for other jobs."""
    shapes: list[Box | Arrow] = []
    height = _row(5) - (_PITCH - _HIGH) + 28
    for column, x in _COLUMNS.items():
        shapes.append(Box(x - 12, 16, _PANEL, height - 32, "panel", [("head", _HEADS[column])]))
    for column, steps in STEPS.items():
        kind = "store" if column == "store" else "plain"
        for row, (name, what, paths) in enumerate(steps):
            if name:
                lines = [("name", name), ("word", what), *_lines(paths)]
                shapes.append(Box(_COLUMNS[column], _row(row), _IN, _HIGH, kind, lines))
    program, store, worker = (x + _IN // 2 for x in _COLUMNS.values())
    half = _HIGH // 2
    for x, rows in ((program, (0, 1)), (worker, (0, 1, 2)), (store, (3,))):
        shapes += [Arrow([(x, _row(row) + _HIGH), (x, _row(row + 1) - 1)]) for row in rows]
    shapes += [Arrow([(store, _row(row)), (store, _row(row - 1) + _HIGH + 1)]) for row in (2, 1)]
    left, right = _COLUMNS["store"], _COLUMNS["store"] + _IN
    edge, near = _COLUMNS["program"] + _IN, _COLUMNS["worker"]
    shapes += [
        Arrow([(edge, _row(2) + half), (left - 1, _row(2) + half)]),
        Arrow([(right, _row(0) + half), (near - 1, _row(0) + half)]),
        Arrow([(near, _row(3) + half), (right + 1, _row(3) + half)]),
        Arrow([(left, _row(4) + half), (edge + 1, _row(4) + half)], "hint"),
        Arrow([(right, _row(4) + half), (near - 1, _row(4) + half)]),
    ]
    return Drawing(
        "The way of a job",
        "A program submits: arguments are encoded, the job is made, its write is grouped with others and inserted. "
        "The job waits in its subqueue until a worker claims it, owns it, runs its handler and writes the end, which "
        "the store applies. Notes say what the end means to other jobs, and the worker processes them; hints wake "
        "callers that wait.",
        height,
        shapes,
    )


# -- the layers

PACKAGES = {
    "__main__": "python -m headrace",
    "cli": "the command line; writes through App",
    "hub": "HTTP and sockets",
    "dashboard": "the dashboard",
    "endpoints": "routes that are jobs",
    "contrib": "adapters",
    "testing": "for users' tests",
    "conformance": "tests of engines",
    "http": "what all HTTP shells share: problems, entity tags, events, positions",
    "app": "App: declares, submits, runs, opens",
    "client": "what a program holds: task, draft, handle, batch, session; submission/ and api/",
    "worker": "claims jobs, runs them, writes how they ended",
    "maintenance": "sweeper, pruner, planner",
    "logs": "log records as JSON, with the job that they are about",
    "engines": "memory/, remote/, and sqlite/ and postgres/ above sql/: each keeps the contract, none knows another",
    "runtime": "writes/: group commit; watch/: waiting and following; clock and host: time, chance, threads",
    "engine": "the contract: a Protocol for each role, and the values they exchange",
    "config": "settings, and where each comes from",
    "core": "every decision, as pure functions: lifecycle/, limits/, matching/, schedule/, explain/, codec/ …",
    "errors": "every error",
}
"""What each module and package of the root is, in a few words."""

_KINDS = {"engine": "store", "engines": "store", "core": "pure"}


def layers() -> list[list[str]]:
    """What is in the root, layer by layer, as import-linter enforces it; without what is not there yet."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in project["tool"]["importlinter"]["contracts"] if one.get("exhaustive"))
    found = [[name for name in re.findall(r"\w+", layer) if _path(name)] for layer in contract["layers"]]
    return [names for names in found if names]


def _path(name: str) -> str | None:
    """How a module or package of the root is named in pages; None if there is none."""
    if (SOURCE / name / "__init__.py").exists():
        return f"{name}/"
    return f"{name}.py" if (SOURCE / f"{name}.py").exists() else None


def package_layers() -> Drawing:
    """The layers of the root, one above the other."""
    shapes: list[Box | Arrow] = [
        Box(32, 10, WIDTH - 48, 32, "card", [("head", "What is above may import what is below.")])
    ]
    left, gap, high = 44, 12, 53
    y = 48
    top = y
    for names in layers():
        rows = -(-len(names) // 5)  # more than five in one row could not be read
        each = -(-len(names) // rows)
        width = (WIDTH - left - 16 - gap * (each - 1)) // each
        for place, name in enumerate(names):
            lines = [("name", _path(name) or name), ("word", PACKAGES[name])]
            x, below = left + place % each * (width + gap), place // each * (high + 4)
            shapes.append(Box(x, y + below, width, high, _KINDS.get(name, "plain"), lines))
        y += rows * (high + 4) + 6
    shapes.append(Arrow([(26, top), (26, y - 10)]))
    described = "; ".join(", ".join(_path(name) or name for name in names) for names in layers())
    return Drawing("The packages of headrace, layer by layer", f"From the top down: {described}.", y + 6, shapes)


DRAWINGS = {"way-of-a-job.svg": way_of_a_job, "layers.svg": package_layers}
"""Each drawing, by its file in ``docs/images``."""


def main() -> None:
    """Draw all of them."""
    for name, draw in DRAWINGS.items():
        (IMAGES / name).write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
