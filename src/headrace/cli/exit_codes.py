"""Errors as exit codes and as one line that names the cause and the remedy."""

from __future__ import annotations

import logging
import traceback

import click

from headrace import errors
from headrace.cli.output.console import complain, echo
from headrace.core.control_characters import printable

__all__ = ["DONE", "FAILED", "INTERRUPTED", "NOT_FOUND", "REFUSED", "UNREACHABLE", "USAGE", "code_of", "report"]

DONE, FAILED, USAGE, NOT_FOUND, REFUSED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.JobNotFound, NOT_FOUND),
    (errors.UnknownTask, NOT_FOUND),
    (errors.UnknownSchedule, NOT_FOUND),
    (errors.UnknownSetting, NOT_FOUND),
    (errors.UnknownWorker, NOT_FOUND),
    (errors.UnknownWebhook, NOT_FOUND),
    (errors.UnknownKey, NOT_FOUND),
    (errors.TransitionRefused, REFUSED),
    (errors.Duplicate, REFUSED),
    (errors.KeyReused, REFUSED),
    (errors.Unstorable, FAILED),
    (errors.SecretMismatch, USAGE),
    (errors.Unreadable, FAILED),
    (errors.EngineError, UNREACHABLE),
    (errors.ConfigError, USAGE),
    (errors.InvalidPayload, USAGE),
    (errors.InvalidResult, USAGE),
    (errors.HeadraceError, FAILED),
)
"""First match wins."""

_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (errors.JobNotFound, "list what is there: headrace jobs"),
    (errors.Overloaded, "the store is behind; try again, or submit more slowly"),
    (errors.SchemaTooNew, "upgrade headrace here, or use a store of this version"),
    (errors.SchemaTooOld, "bring it up to date: headrace migrate"),
    (errors.StoreLost, ""),  # it says itself what to do
    (errors.SecretMismatch, ""),
    (errors.Unavailable, "check --url and that the store is up: headrace doctor"),
)


def code_of(error: BaseException) -> int:
    """Return the exit code that an error ends a command with."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def sentence(error: BaseException) -> str:
    """Return the error as one line."""
    text = " ".join(str(error).split())
    if isinstance(error, click.ClickException):
        return error.format_message()
    if not isinstance(error, errors.HeadraceError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return f"{text} (unexpected; the traceback is shown with --debug)"
    text += noted(error)
    remedy = next((words for kind, words in _REMEDIES if isinstance(error, kind)), None)
    return f"{text or type(error).__name__} — {remedy}" if remedy and "headrace " not in text else text


def noted(error: BaseException) -> str:
    """Return the notes of an error, to follow its text."""
    from headrace.config import OVERRIDE

    # A person who has just typed --url knows where the url comes from.
    notes = [note for note in getattr(error, "__notes__", ()) if OVERRIDE not in note and not _is_code(note)]
    return f" ({'; '.join(notes)})" if notes else ""


def _is_code(note: str) -> bool:
    """Return whether a note shows lines of the user's code, which are shown as they are."""
    return note.startswith("  ")


def report(error: BaseException, debug: bool, *, json: bool = False) -> int:
    """Report an error on stderr, and return the exit code; ``json``: as a line of a JSON log."""
    if json:
        _log(error, debug)
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        echo("interrupted", err=True)
    elif isinstance(error, click.UsageError):
        click.UsageError(printable(error.format_message(), lines=True), error.ctx).show()
    else:
        if debug:
            echo("".join(traceback.format_exception(error)).rstrip(), err=True, lines=True)
        else:
            for note in filter(_is_code, getattr(error, "__notes__", ())):
                echo(note, err=True, lines=True)
        complain(sentence(error))
    return code_of(error)


def _log(error: BaseException, debug: bool) -> None:
    from headrace.cli.process.log_output import json_line

    if isinstance(error, KeyboardInterrupt | click.Abort):
        json_line("headrace.cli", "interrupted")
        return
    facts = {"exception": "".join(traceback.format_exception(error)).rstrip()} if debug else {}
    json_line("headrace.cli", sentence(error), logging.ERROR, **facts)
