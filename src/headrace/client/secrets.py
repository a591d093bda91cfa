"""Secrets that all processes of a store share, such as the one of the dashboard's forms; how they stand."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from headrace.core.bounds import checked_name
from headrace.core.subscription import Credentials
from headrace.engine import Check, Engine
from headrace.errors import SecretMismatch, Unavailable
from headrace.runtime.secret import secret_bytes
from headrace.runtime.signing import SETTING as LEASES
from headrace.runtime.vault import STATUS_PAGES, Vault, setting_of
from headrace.runtime.webhooks import SECRETS, SUBSCRIPTIONS, read_webhooks

__all__ = ["SHARED", "derived_webhooks", "findings", "shared_secret"]

SHARED = "secret:"
"""What the settings that are such secrets begin with."""
_TRIES = 20
_MAKE = "HEADRACE_SECRET=$(python -c 'import secrets; print(secrets.token_urlsafe(32))')"


async def shared_secret(vault: Vault, name: str) -> bytes:
    """The secret of this name: derived; or made the first time that anybody asks for it, and the same for all from then
    on.

    :raises SecretMismatch: others derive it, and this process cannot
    """
    key = SHARED + checked_name(name, "the name of a secret")
    derives = await vault.derives()
    for _ in range(_TRIES):
        setting = await setting_of(vault.engine, key)
        if derives:
            if setting is not None:  # from before
                await vault.engine.documents.put_setting(key, None, setting.rev)
            return vault.derived("shared", name)
        if setting is not None:
            return urlsafe_b64decode(msgspec.json.decode(setting.value, type=dict[str, str])["secret"])
        made = msgspec.json.encode({"secret": urlsafe_b64encode(secret_bytes(32)).decode()}).decode()
        await vault.engine.documents.put_setting(key, made, 0)
    raise Unavailable(f"the secret {name!r} could not be stored")


async def derived_webhooks(engine: Engine) -> list[str]:
    """The ids of the webhooks that sign with what is derived."""
    return [id for id, one in (await _credentials(engine)).items() if one.derived]


async def _credentials(engine: Engine) -> dict[str, Credentials]:
    """By the id of the webhook."""
    settings = await engine.documents.settings(SECRETS)
    return {one.key.removeprefix(SECRETS): msgspec.json.decode(one.value, type=Credentials) for one in settings}


async def findings(vault: Vault) -> list[Check]:
    """What the doctor says of what is signed with; nothing is taken up for that."""
    engine, root = vault.engine, await vault.stored()
    if not vault.is_set and root is None:
        if not await _signs(engine):
            return [
                Check("secret", "ok", "HEADRACE_SECRET is not set; nothing is signed with a secret of the store yet")
            ]
        message = (
            "HEADRACE_SECRET is not set: what leases, webhooks and status pages are signed with is in the store, and"
            " whoever can read that, or a backup of it, can forge them"
        )
        return [Check("secret", "warn", message, f"set the same for every hub and web application: {_MAKE}")]
    if root is None:
        return [Check("secret", "ok", "HEADRACE_SECRET is set; the first hub takes it up")]
    try:
        await vault.derives()
    except SecretMismatch as error:
        return [Check("secret", "fail" if vault.is_set else "warn", str(error), "see guides/keys.md, The secret")]
    found = [Check("secret", "ok", "what leases and webhooks are signed with is derived from HEADRACE_SECRET")]
    subscribed = {one.id for one in read_webhooks(await engine.documents.settings(SUBSCRIPTIONS))}
    for id, kept in (await _credentials(engine)).items():
        if id in subscribed and any(one.text and not one.given for one in kept.secrets):
            message = f"webhook {id} signs with a secret that is in the store, made before HEADRACE_SECRET was set"
            found.append(Check("secret", "warn", message, f"headrace webhooks rotate {id}, and tell its receiver"))
    return found


async def _signs(engine: Engine) -> bool:
    """Whether anything in the store is signed with."""
    for key in (LEASES, STATUS_PAGES, SHARED, SECRETS):
        if await engine.documents.settings(key):
            return True
    return False
