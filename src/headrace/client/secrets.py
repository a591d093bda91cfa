"""Secrets that all processes of a store share, such as the one by which browser sessions are signed."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from headrace.core.bounds import checked_name
from headrace.engine import Engine
from headrace.errors import Unavailable
from headrace.runtime.secret import secret_bytes

__all__ = ["shared_secret"]

SECRET = "secret:"
"""What the settings that are such secrets begin with."""
_TRIES = 20


async def shared_secret(engine: Engine, name: str) -> bytes:
    """The secret of this name: made the first time that anybody asks for it, and the same for all from then on."""
    key = SECRET + checked_name(name, "the name of a secret")
    for _ in range(_TRIES):
        for setting in await engine.documents.settings(key):
            if setting.key == key:
                return urlsafe_b64decode(msgspec.json.decode(setting.value, type=dict[str, str])["secret"])
        made = msgspec.json.encode({"secret": urlsafe_b64encode(secret_bytes(32)).decode()}).decode()
        await engine.documents.put_setting(key, made, 0)
    raise Unavailable(f"the secret {name!r} could not be stored")
