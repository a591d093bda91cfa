"""Sends one message: a signed POST to a tested address, with the host name of the URL.

Signatures are those of Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over id, time and body.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from ipaddress import IPv6Address

import httpx2

from headrace.core.defaults import WEBHOOK_TIMEOUT_SECONDS
from headrace.core.webhooks.subscription import SECRET, Credentials
from headrace.hub.webhooks.addresses import Address, Guard

__all__ = ["UNKNOWN", "Undelivered", "headers_of", "send", "signature"]


UNKNOWN = "the name of its host is not known, or leads where webhooks may not go"


class Undelivered(Exception):
    """A message was not taken. The text gives the reason, and contains nothing of the message or the response."""

    def __init__(self, why: str, *, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


async def send(
    guard: Guard,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    patience: float = WEBHOOK_TIMEOUT_SECONDS,
    trust: ssl.SSLContext | None = None,
) -> int:
    """Send a message; return the status of the response, from 200 to 299. Its body is not read.

    :raises Forbidden: the URL leads where nothing may be sent
    :raises Undelivered: it was not taken
    """
    try:
        async with asyncio.timeout(patience):
            failure: Exception | None = None
            for address in await guard.addresses(url):
                try:
                    return await _post(address, httpx2.URL(url), body, headers, trust or _trust())
                except httpx2.ConnectError as error:  # nothing was sent: another address may work
                    failure = error
            raise Undelivered(_told(failure))
    except TimeoutError:
        raise Undelivered(f"no answer within {patience:g} s") from None
    except (OSError, UnicodeError):  # for a name that cannot be resolved
        raise Undelivered(UNKNOWN) from None
    except httpx2.InvalidURL:
        raise Undelivered("its address cannot be used") from None
    except httpx2.HTTPError as error:
        raise Undelivered(_told(error)) from None


async def _post(
    address: Address, url: httpx2.URL, body: bytes, headers: Mapping[str, str], trust: ssl.SSLContext
) -> int:
    # Each message has its own client: a connection made for one name must not be used for another at the same address.
    pinned = url.copy_with(host=f"[{address}]" if isinstance(address, IPv6Address) else str(address))
    async with httpx2.AsyncClient(verify=trust, trust_env=False, follow_redirects=False, timeout=None) as client:
        request = client.build_request(
            "POST",
            pinned,
            content=body,
            headers={**headers, "host": url.netloc.decode("ascii"), "connection": "close"},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        answer = await client.send(request, stream=True)
        try:
            status = answer.status_code
        finally:
            await answer.aclose()
    if 300 <= status < 400:
        raise Undelivered(f"HTTP {status}: redirects are not followed", status=status)
    if not 200 <= status < 300:
        raise Undelivered(f"HTTP {status}", status=status)
    return status


def _told(error: Exception | None) -> str:
    """Return a short reason: messages of libraries may contain what was sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not valid: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return "TLS failed"
        cause = cause.__cause__ or cause.__context__
    if error is None or isinstance(error, httpx2.ConnectError):
        return "no connection"
    return f"the connection failed ({type(error).__name__})"


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message by one secret."""
    key = base64.b64decode(secret.removeprefix(SECRET))
    digest = hmac.new(key, f"{id}.{timestamp}.".encode() + body, sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def headers_of(
    credentials: Credentials, signing: Sequence[str], id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the headers of a message, signed with each of these secrets, so that a secret can be replaced."""
    headers = {
        "content-type": "application/json",
        "user-agent": "headrace",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
    }
    if signing:
        headers["webhook-signature"] = " ".join(signature(one, id, timestamp, body) for one in signing)
    if credentials.bearer is not None:
        headers["authorization"] = f"Bearer {credentials.bearer}"
    return headers
