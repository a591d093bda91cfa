"""Submitting by name: ``submit`` and ``run``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import click

from headrace.cli.completion import known
from headrace.cli.exit_codes import DONE
from headrace.cli.ids import resolve
from headrace.cli.options import PRIORITY, F, State, common, duration, in_words, moment, pairs, priority
from headrace.cli.options import payload as read_payload
from headrace.cli.output.console import document, echo, say
from headrace.cli.output.statuses import record_of, word_of
from headrace.cli.output.words import compact
from headrace.cli.output.words import moment as moment_text
from headrace.cli.session import USER, with_app
from headrace.cli.unknown_names import check_task
from headrace.core.job import AfterWhen, OnDuplicate, OnParentFailure
from headrace.errors import JobCancelled, JobFailed, ResultTimeout

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.handle import JobHandle

__all__ = ["run", "submit"]

SILENCE_SECONDS = 3.0
"""Seconds that ``run`` waits in silence before it explains why nothing happens."""


def job_options(fn: F) -> F:
    """Add the flags that say how a job is to be run."""
    options: list[Callable[[F], F]] = [
        click.option("--payload", metavar="JSON|@FILE|-", help="The whole payload; key=value pairs are laid over it."),
        click.option("--queue", metavar="QUEUE", shell_complete=known("queue"), help="The queue of the job."),
        click.option(
            "--priority",
            type=priority,
            metavar=PRIORITY,
            help="A number, higher first, or system, high, normal or low.",
        ),
        click.option("--delay", type=duration, metavar="DURATION", help="Start no sooner than this from now."),
        click.option("--not-before", type=moment, metavar="MOMENT", help="Start no sooner than this."),
        click.option("--not-after", type=moment, metavar="MOMENT", help="Expire if not started by then."),
        click.option(
            "--require",
            "requires",
            multiple=True,
            metavar="NAME=VALUE",
            help="What a worker must offer, as in gpu_memory_gb=24; may be given several times. Together they take the "
            "place of what the task requires.",
        ),
        click.option("--dedup", metavar="KEY", help="Only one live job of the task may hold this key."),
        click.option(
            "--dedup-for",
            type=duration,
            metavar="DURATION",
            help="Hold the key for this long from now, also if the job completes sooner.",
        ),
        click.option(
            "--on-duplicate",
            type=click.Choice(get_args(OnDuplicate)),
            help="If the key is held: return the job that holds it (default), end with exit code 4 (raise), or replace"
            " what that job is to do.",
        ),
        click.option(
            "--request-key", metavar="KEY", help="Names this request: given again, it finds the job of the first time."
        ),
        click.option("--customer", metavar="CUSTOMER", help="On whose behalf it runs; keys are the customer's own."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; may be given several times."),
        click.option(
            "--meta",
            multiple=True,
            metavar="KEY=VALUE",
            help="Metadata to keep with the job; may be given several times.",
        ),
        click.option(
            "--after",
            multiple=True,
            metavar="ID",
            shell_complete=known("job"),
            help="Wait for this job; may be given several times.",
        ),
        click.option(
            "--after-when",
            type=click.Choice(get_args(AfterWhen)),
            help="When those waited for have all succeeded (default), or all ended, however they did.",
        ),
        click.option(
            "--on-parent-failure",
            type=click.Choice(get_args(OnParentFailure)),
            help="What becomes of it if one of them does not succeed: cancel (default) or fail.",
        ),
        click.option("--timeout", type=duration, metavar="DURATION", help="How long one attempt may take."),
        click.option(
            "--heartbeat", type=duration, metavar="DURATION", help="How long a running job may report nothing."
        ),
        click.option("--max-retries", type=click.IntRange(0), metavar="N", help="Attempts after the first."),
    ]
    for option in reversed(options):
        fn = option(fn)
    return fn


def _options(
    *,
    meta: tuple[str, ...],
    max_retries: int | None,
    tags: tuple[str, ...],
    requires: tuple[str, ...] = (),
    **others: Any,
) -> dict[str, Any]:
    """Return the flags that were given, as JobOptions."""
    if others.get("delay") is not None and others.get("not_before") is not None:
        raise click.UsageError("--delay and --not-before exclude each other")
    first, last = others.get("not_before"), others.get("not_after")
    if first is not None and last is not None and last <= first:
        raise click.UsageError(
            f"--not-after ({moment_text(last)}) must be later than --not-before ({moment_text(first)})"
        )
    if not others["after"] and (others["after_when"] or others["on_parent_failure"]):
        raise click.UsageError("--after-when and --on-parent-failure say more about --after, which is missing")
    chosen = {name: value for name, value in others.items() if value is not None}
    if tags:
        chosen["tags"] = list(tags)
    if requires:
        chosen["requires"] = pairs(requires)
    if meta:
        chosen["metadata"] = pairs(meta)
    if max_retries is not None:
        from headrace.core.lifecycle.retry import Retry

        chosen["retry"] = Retry(max_retries=max_retries)
    return chosen


@click.command()
@click.argument("task", shell_complete=known("task"))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@job_options
@in_words
@common
def submit(state: State, task: str, arguments: tuple[str, ...], payload: str | None, **options: Any) -> None:
    """Submit a job of TASK and print its id.

    A VALUE is JSON if it parses, else text: width=320, name=cat, tags='["a","b"]'.
    """
    body, chosen = read_payload(payload, arguments), _options(**options)

    async def work(app: App) -> None:
        handle = await _submitted(app, task, body, chosen)
        if state.json:
            extra = {"duplicate": handle.duplicate, "replaced": handle.replaced}
            document(record_of(await _record(handle)) | extra)
            return
        echo(str(handle.id))
        if handle.duplicate:
            say(_duplicate_text(handle, chosen))

    with_app(state, work, creates=True)


def _duplicate_text(handle: JobHandle[Any], chosen: dict[str, Any]) -> str:
    job, key = handle.last, chosen.get("request_key")
    if job is not None and key is not None and job.request_key == key:
        return f"already there: this request made it before; it is {word_of(job)}"
    if handle.replaced and job is not None:
        return f"replaced: the job that holds this key has these arguments now; it is {word_of(job)}"
    if job is not None and job.ended:
        from headrace.core.lifecycle.decision import held_until
        from headrace.core.times import moment

        until = held_until(job)
        return "already there: a job that completed holds this key" + (f" until {moment(until, None)}" if until else "")
    return "already there: a live job holds this key"


@click.command()
@click.argument("task", shell_complete=known("task"))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@job_options
@click.option("--wait", type=duration, metavar="DURATION", help="Wait no longer than this; the job goes on.")
@in_words
@common
def run(
    state: State,
    task: str,
    arguments: tuple[str, ...],
    payload: str | None,
    wait: float | None,
    **options: Any,
) -> int:
    """Submit a job of TASK, wait for it, print its result.

    It belongs to this command: an interrupt cancels it. A worker must be running.
    """
    body, chosen = read_payload(payload, arguments), _options(**options)

    async def work(app: App) -> int:
        handle = await _submitted(app, task, body, chosen)
        hint = asyncio.create_task(_explain_silence(app, handle))
        try:
            async with asyncio.timeout(wait):
                await _ended(handle)
        except TimeoutError:
            raise ResultTimeout(handle.id, wait or 0.0) from None
        except asyncio.CancelledError:
            if not handle.duplicate:
                await app.jobs.handle(handle.id).cancel(by=USER)
                say(f"cancelled job {handle.id}")
            raise
        finally:
            hint.cancel()
        return await _print_result(handle, state)

    return with_app(state, work, creates=True)


async def _submitted(app: App, task: str, body: dict[str, Any], chosen: dict[str, Any]) -> JobHandle[Any]:
    await check_task(app, task)
    after = [await resolve(app, one) for one in chosen["after"]]
    return await app.submit(task, body, **chosen | {"after": after})


async def _ended(handle: JobHandle[Any]) -> None:
    async for _ in handle.watch():
        pass


async def _record(handle: JobHandle[Any]) -> Any:
    return handle.last or await handle.refresh()


async def _print_result(handle: JobHandle[Any], state: State) -> int:
    job = await handle.refresh()
    if state.json:
        from headrace.cli.output.follow import ending

        document(record_of(job))
        return ending(job)
    if job.status == "failed":
        raise JobFailed(job, job.error)
    if job.status == "cancelled":
        raise JobCancelled(job)
    echo(job.result if isinstance(job.result, str) else compact(job.result), lines=True)
    return DONE


async def _explain_silence(app: App, handle: JobHandle[Any]) -> None:
    """Explain to the waiting person once why the job does not start."""
    await asyncio.sleep(SILENCE_SECONDS)
    job = await handle.refresh()
    if not job.held and not job.ended:
        say(await app.jobs.explain(handle.id))
