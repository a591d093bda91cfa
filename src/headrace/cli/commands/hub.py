"""``hub``: serve an App over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from headrace.cli.exit_codes import code_of
from headrace.cli.options import BadAddress, State, common, duration
from headrace.cli.output.words import counted
from headrace.cli.session import choose, opened

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.cli.process.log_output import Teller
    from headrace.hub import Hub, HubOptions
    from headrace.hub.server.server import HubServer

__all__ = ["chosen", "door_flags", "hub", "hub_options", "prepare", "start", "under_way"]

F = TypeVar("F", bound=Callable[..., Any])


def _number(name: str, default: int, help: str, *, least: int = 0) -> Callable[[F], F]:
    return click.option(name, type=click.IntRange(least), default=default, show_default=True, metavar="N", help=help)


def _span(name: str, default: float, help: str) -> Callable[[F], F]:
    return click.option(name, type=duration, default=default, show_default=True, metavar="DURATION", help=help)


def door_flags(fn: F) -> F:
    """Add the flags that say how a hub is served."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            help="How the log is written to stderr: text, or one JSON object a line "
            "(default: HEADRACE_LOG_FORMAT, else text).",
        ),
        click.option(
            "--errors",
            type=click.Choice(["shown", "hidden"]),
            default="shown",
            show_default=True,
            help="Whether keys with a customer are told the text of errors, or a reference that you can look up.",
        ),
        click.option("--no-access-log", is_flag=True, help="Write no line for each request."),
        click.option("--webhook-http", is_flag=True, help="Let webhooks go over plain http, and not over https alone."),
        click.option(
            "--webhook-allow",
            multiple=True,
            metavar="CIDR",
            help="Let webhooks go to this network although it is private, as in 10.0.0.0/8; may be repeated.",
        ),
        _span("--worker-lease", 60.0, "How long a worker behind the hub may be silent before its jobs go to others."),
        _span(
            "--worker-grace",
            10.0,
            "In which time a worker must be back, at any hub, whose socket or remote engine was cut off without "
            "a goodbye, before its jobs go to others; never less than one heartbeat takes (12.5 s).",
        ),
        click.option("--no-webhooks", is_flag=True, help="Leave the delivery of webhooks to others."),
        click.option("--no-maintenance", is_flag=True, help="Leave sweeping, pruning and planning to others."),
        _number("--sockets", 10_000, "Connections at once; more are answered 503.", least=1),
        click.option(
            "--customer-priority",
            type=click.IntRange(0, 100),
            default=89,
            show_default=True,
            metavar="0-100",
            help="The highest priority that the key of a customer may give its jobs.",
        ),
        _number(
            "--customer-jobs",
            10_000,
            "Live jobs of a customer that its keys may submit; more are answered 429. 0: any number.",
        ),
        _number(
            "--customer-messages",
            20_000,
            "Messages to webhooks of a customer that wait; what would make more is answered 429. 0: any number.",
        ),
        _number("--customer-webhooks", 10, "Subscriptions to webhooks that a customer may have."),
        _number("--submit-burst", 200, "Submits of one key at once, before --submit-rate counts.", least=1),
        click.option(
            "--submit-rate",
            type=click.FloatRange(0),
            default=100.0,
            show_default=True,
            metavar="N",
            help="Submits a second of one key, a bulk being one; more are answered 429. 0: any number.",
        ),
        click.option(
            "--linger",
            type=duration,
            default=0.0,
            metavar="DURATION",
            help="On stop, for how long new requests are still answered while /readyz says no, so that a balancer "
            "turns away first.",
        ),
        _span("--grace", 15.0, "On stop, how long requests and running jobs may take to finish."),
        click.option("--keyfile", type=click.Path(), metavar="FILE", help="The key of the certificate."),
        click.option(
            "--certfile",
            type=click.Path(),
            metavar="FILE",
            help="Serve https with this certificate (PEM, whole chain).",
        ),
        click.option(
            "--proxies",
            default="127.0.0.1",
            show_default=True,
            metavar="ADDRESS[,…]",
            help="Whose headers --proxy-headers believes; networks too, as in 10.0.0.0/8.",
        ),
        click.option(
            "--proxy-headers", is_flag=True, help="Take the client's address and scheme from the proxy's headers."
        ),
        click.option("--root-path", default="", metavar="PATH", help="The prefix that a proxy takes off, as in /jobs."),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=8470,
            show_default=True,
            metavar="PORT",
            envvar="HEADRACE_HUB_PORT",
            help="Where to listen; 0: a free port. Also HEADRACE_HUB_PORT.",
        ),
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            metavar="HOST",
            envvar="HEADRACE_HUB_HOST",
            help="Where to listen; 0.0.0.0 for other machines, which need keys. Also HEADRACE_HUB_HOST.",
        ),
    ):
        fn = option(fn)
    return fn


@click.command()
@click.argument("where", required=False, metavar="[MODULE[:APP]]")
@door_flags
@common
def hub(state: State, where: str | None, log_format: str | None, **flags: Any) -> int:
    """Serve an App, or just a store, over HTTP and WebSocket until stopped.

    Any number of hubs may serve one store. Beside it runs what keeps a store in order, unless workers do that already.
    The first SIGINT or SIGTERM stops it gracefully: /readyz says no, streams and sockets are told, requests may finish
    within the grace. The second stops it at once.
    """
    from headrace.worker.process.loops import fast_loop

    options = hub_options(flags)
    with chosen(state, where, log_format) as (app, teller), asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(_serve(app, options, teller))


async def _serve(app: App, options: HubOptions, teller: Teller) -> int:
    from headrace.cli.process.signals import on_signals

    async with AsyncExitStack() as stack:
        logs = stack.enter_context(teller.logs(False))
        await stack.enter_async_context(opened(app))
        app._load()
        server, listener = prepare(app, options)

        def stop() -> None:
            teller("stopping", f"stopping{under_way(server.hub, options.grace)}")
            server.stop()

        with on_signals(stop, server.stop) as signals:
            serving = await start(server, listener, teller)
            await serving
        if server.lost is not None:  # its supervisor should start it anew, once there is a store
            if not logs.has_logged(server.lost):
                raise server.lost
            return code_of(server.lost)
        teller("stopped", "stopped")
    return signals.code


def hub_options(flags: dict[str, Any]) -> HubOptions:
    """Return the settings of the hub, by the flags."""
    from headrace.hub import HubOptions

    root = flags["root_path"].rstrip("/")
    if root and not root.startswith("/"):
        raise click.UsageError(f"--root-path must begin with /, as in /{root}")
    if flags["keyfile"] and not flags["certfile"]:
        raise click.UsageError("--keyfile is the key of --certfile: give that, too")
    for flag in ("worker-lease", "worker-grace"):
        if flags[flag.replace("-", "_")] == 0:
            raise click.UsageError(f"--{flag} must be above 0, as in 10s")
    return HubOptions(
        **{name: flags[name] for name in ("port", "proxy_headers", "proxies", "certfile", "keyfile", "grace")},
        **{name: flags[name] for name in ("linger", "sockets", "webhook_allow", "webhook_http", "errors")},
        **{name: flags[name] for name in ("submit_burst", "customer_priority", "worker_lease", "worker_grace")},
        customer_webhooks=flags["customer_webhooks"],
        submits_per_second=flags["submit_rate"] or None,
        customer_jobs=flags["customer_jobs"] or None,
        customer_messages=flags["customer_messages"] or None,
        host=flags["host"].strip("[]"),
        root_path=root,
        maintenance=not flags["no_maintenance"],
        webhooks=not flags["no_webhooks"],
        access_log=not flags["no_access_log"],
    )


@contextmanager
def chosen(state: State, where: str | None, log_format: str | None) -> Iterator[tuple[App, Teller]]:
    """Choose the App, and set up the output of this command."""
    from headrace.cli.process.log_output import Teller
    from headrace.config import Settings

    state.app = where or state.app
    state.log_format = log_format or Settings.load().log_format
    teller = Teller(state, cast('Literal["text", "json"]', state.log_format), "headrace.hub")
    with teller.others():
        app, url = choose(state)
        with app.override(url=url) if url else nullcontext():
            yield app, teller


def prepare(app: App, options: HubOptions) -> tuple[HubServer, socket.socket]:
    """Return a hub that is ready to serve, and where it listens.

    :raises BadAddress: it cannot be served there
    """
    from headrace.hub import Hub
    from headrace.hub.server.server import HubServer, listen, room_for

    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        where = f"{options.host}:{options.port}"
        raise BadAddress(f"cannot listen on {where}: {error.strerror or error}; choose another --port") from None
    try:
        server = HubServer(Hub(app, options), most=room_for(options.sockets))
        server.config.load()
    except OSError as error:
        listener.close()
        raise BadAddress(f"--certfile and --keyfile cannot be used: {error.strerror or error}") from None
    return server, listener


async def start(server: HubServer, listener: socket.socket, teller: Teller) -> asyncio.Task[None]:
    """Serve from now on, and print where; return the serving, which ends when it is stopped."""
    from headrace.engines.connect import redact

    app, options = server.hub.app, server.hub.options
    host, port = listener.getsockname()[:2]
    serving = await server.begin(listener)
    shown = f"[{host}]" if ":" in host else host
    address = f"{'https' if options.certfile else 'http'}://{shown}:{port}{options.root_path}"
    teller("started", f"hub at {address} on {redact(app.settings.url)}", url=address)
    teller.say(f"open {address}/ in a browser for the dashboard")
    if not await app.keys.list():
        teller.say("there are no keys: only programs of this machine are answered")
    if server.most < options.sockets:
        text = f"the system lets this process have {server.most} connections, and not {options.sockets}: see ulimit -n"
        teller.say(text)
    return serving


def under_way(hub: Hub, grace: float, running: int = 0) -> str:
    """Return what is waited for, in words; ``running``: jobs."""
    left = [counted(sum(hub.access.open.values()), "request"), counted(running, "job")]
    awaited = " and ".join(one for one in left if not one.startswith("0 "))
    return f": {awaited} under way, at most {grace:g} s; once more to stop at once" if awaited else ""
