"""Drafts of tasks by name: tasks that this program does not define."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.client.api.tasks import check_payload, told_unregistered, warn_unregistered
from headrace.client.draft import Draft
from headrace.client.options import check_key, check_options, fill_templates, merged, refuse_function
from headrace.client.submission.parentage import new_id
from headrace.core import defaults, validation
from headrace.core.codec.json import Codec
from headrace.core.codec.roundtrip import Misfit
from headrace.errors import InvalidPayload, PayloadTooLarge, shown
from headrace.worker.handler import check_task_name

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["draft_by_name", "draft_with_warnings"]


_OBJECT = Codec(dict[str, Any], plain=False)  # the annotations that say what its values are stand elsewhere


async def draft_by_name(app: App, name: str, payload: Mapping[str, Any], options: Mapping[str, Any]) -> Draft[Any]:
    """A draft of a task known here, else of one a worker has registered, else, with a warning, of an unknown one."""
    draft, warnings = await draft_with_warnings(app, name, payload, options)
    for warning in warnings:
        warn_unregistered(warning)
    return draft


async def draft_with_warnings(
    app: App, name: str, payload: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Draft[Any], tuple[str, ...]]:
    """A draft of a task by name, and as text what ``draft_by_name`` would warn of: for programs that pass it on."""
    name = check_task_name(name)  # no task can have another, so its job would wait for ever
    if not isinstance(payload, Mapping):
        raise InvalidPayload(name, f"the payload must be a mapping of arguments by name, not {shown(payload)}")
    task = app.tasks.get(name)
    if task is not None:
        return task._with_options(options)._draft_bound(payload), ()
    checked, text = refuse_function(check_options(options)), _payload_text(name, payload)
    doc = await app.session.find_task(name)
    if doc is None:
        whole = merged(app.defaults, checked)
        check_key(checked, whole)
        draft: Draft[Any] = Draft(app, new_id(app, name, text, checked), name, text, whole)
        if await app.session.is_run(name, whole.get("requires") or {}):
            return draft, ()
        return draft, (told_unregistered(name, (*app.tasks, *app.session.task_names)),)
    plain: dict[str, Any] = msgspec.json.decode(text)
    check_payload(doc, plain)
    whole = merged(doc.to_options(), checked)
    check_key(checked, whole)
    properties: dict[str, Any] = doc.schema.get("properties", {})
    known = {one: schema["default"] for one, schema in properties.items() if "default" in schema}
    id = new_id(app, doc.name, text, checked)
    return Draft(app, id, doc.name, text, fill_templates(whole, lambda: known | plain)), ()


def _payload_text(name: str, payload: Mapping[str, Any]) -> str:
    try:
        text = _OBJECT.encode(dict(payload))
    except Misfit as error:
        raise InvalidPayload(name, error.message, error.path or None) from None
    if (size := validation.size_of(text)) > defaults.MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            name, f"the payload is {size} bytes, at most {defaults.MAX_PAYLOAD_BYTES}; pass a reference instead"
        )
    return text
