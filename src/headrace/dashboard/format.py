"""Formats of numbers, durations and moments on the pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec
from markupsafe import Markup, escape

__all__ = ["age", "arguments", "at", "count", "exact", "iso", "length", "percent", "short", "size", "timed"]

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d")
"""As ``headrace.core.times.moment`` writes them."""
MAX_ARGUMENT_CHARACTERS, MAX_ARGUMENTS_CHARACTERS = 40, 100
"""Characters of the value of one argument, and of all arguments, in a row of a table."""
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def count(number: float) -> str:
    """Return a number with separated thousands."""
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def percent(share: float | None) -> str:
    """Return a share of 1 in percent; almost everything is never rounded up to 100."""
    if share is None:
        return "–"
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return f"{min(max(share * 100, 0.1), 99.9):.1f}".removesuffix(".0") + "%"


def length(seconds: float | timedelta | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return "–"
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    left = max(left, 0.0)
    if left < 0.0995:
        return f"{left * 1000:.{0 if left >= 0.01 or not left else 1}f} ms"
    if left < 9.95:
        return f"{left:.1f} s"
    whole = round(left)
    for index, (unit, size) in enumerate(_UNITS):
        if whole >= size:
            more = _UNITS[index + 1] if index + 1 < len(_UNITS) else None
            rest = (whole % size) // more[1] if more else 0
            return f"{whole // size} {unit}" + (f" {rest} {more[0]}" if more and rest else "")
    return "0 s"


def exact(moment: datetime) -> str:
    """Return a moment in UTC, as precise as it is known."""
    return moment.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")


def iso(moment: datetime) -> str:
    """Return a moment for programs."""
    return moment.astimezone(UTC).isoformat("T", "milliseconds").replace("+00:00", "Z")


def at(moment: datetime | None, *, day: bool = False) -> Markup:
    """Return a moment as HTML; the script of the page shows it in the browser's zone, with the date if ``day``."""
    if moment is None:
        return Markup("–")
    shown = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    kind = "day" if day else "at"
    return Markup('<time datetime="{}" data-as="{}" title="{}">{}</time>').format(
        iso(moment), kind, exact(moment), shown
    )


def timed(text: str) -> Markup:
    """Return a sentence with its moments shown like all others of a page: in the browser's zone, exact on hover."""
    parts, end = list[Markup](), 0
    for found in _MOMENT.finditer(text):
        try:
            moment = datetime.fromisoformat(found[0])
            shown = at(moment)
        except (ValueError, OverflowError):  # an error message may quote anything
            continue
        parts += [escape(text[end : found.start()]), shown]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def age(moment: datetime | None, now: datetime | None, *, ago: bool = False) -> Markup:
    """Return how long ago a moment was, or when it will be; the page's script keeps it current. ``ago``: with that
    word.

    Without ``now`` the moment itself is shown, which does not change from one request to the next.
    """
    if moment is None:
        return Markup("–")
    if now is None:
        text = exact(moment)
    elif moment > now:
        text = f"in {_whole(moment - now)}"
    else:
        text = _whole(now - moment) + (" ago" if ago else "")
    return Markup('<time datetime="{}" data-as="{}" title="{}">{}</time>').format(
        iso(moment), "ago" if ago else "age", exact(moment), text
    )


def _whole(span: timedelta) -> str:
    """Return a duration without tenths, which would change all the time."""
    seconds = int(span.total_seconds())
    return f"{seconds} s" if seconds < 10 else length(seconds)


def arguments(payload: str) -> str:
    """Return the first arguments of a job as they are written in Python, cut to the length of a row."""
    try:
        fields = _fields.decode(payload)
    except (msgspec.MsgspecError, UnicodeError):  # no version stores such a payload
        return _cut(payload, MAX_ARGUMENTS_CHARACTERS)
    text = ""
    for name, raw in fields.items():
        # A value may be large: only its beginning is read.
        value = _cut(bytes(memoryview(raw)[: 4 * MAX_ARGUMENT_CHARACTERS + 4]).decode(errors="ignore"))
        text += f"{', ' if text else ''}{name}={value}"
        if len(text) > MAX_ARGUMENTS_CHARACTERS:
            break
    return _cut(text, MAX_ARGUMENTS_CHARACTERS)


def _cut(text: str, most: int = MAX_ARGUMENT_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def size(bytes: float | None) -> str:
    """Return an amount of memory."""
    if bytes is None:
        return "–"
    left = float(bytes)
    for unit in ("B", "KiB", "MiB"):
        if left < 1024:
            return f"{left:.0f} {unit}"
        left /= 1024
    return f"{left:.1f} GiB"


def short(id: object) -> Markup:
    """Return the end of an id, by which people distinguish jobs, as on the command line."""
    text = str(id)
    return escape(text[-8:])
