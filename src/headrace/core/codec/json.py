"""Payloads and results as JSON text: strict both ways, never pickle, no coercion."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
from msgspec import inspect

from headrace.core.codec.roundtrip import Misfit, binary, check, customs, find_nan, find_unknown, has_objects, watched
from headrace.core.defaults import MAX_JSON_DEPTH
from headrace.core.validation import is_too_deep

__all__ = ["Codec", "Misfit", "Parameter", "RecordCodec", "Unsupported"]

_ABSENT = object()
_astuple = msgspec.structs.astuple


class Unsupported(Exception):
    """A type has no JSON form here; the message says which and why."""


class Parameter(msgspec.Struct, frozen=True):
    """One field of a payload."""

    name: str
    type: Any
    required: bool
    default: Any = None


class _Nested(ValueError):
    """The refusal of a model, with the path to the field within the model."""

    def __init__(self, message: str, path: Sequence[str | int]) -> None:
        super().__init__(message)
        self.path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _is_model(cls: type) -> bool:
    # Pydantic is optional: a class can be a model only if pydantic was imported already.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(cls, type) and issubclass(cls, pydantic.BaseModel)


_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}
"""How a value of a derived class is made a plain one; its ``str()`` may not: Django's ``SafeString`` returns itself."""


def _enc_hook(value: Any) -> Any:
    cls: Any = type(value)
    # As text at once, which avoids a model's values as objects; unless the class overrides how it is written.
    if _is_model(cls) and cls.model_dump is sys.modules["pydantic"].BaseModel.model_dump:
        return msgspec.Raw(cls.__pydantic_serializer__.to_json(value))
    return _plain_hook(value)


def _plain_hook(value: Any) -> Any:
    """Return a value in the types that JSON has."""
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    for base, plain in _PLAIN.items():
        if isinstance(value, base):
            return plain(value)
    raise NotImplementedError(f"a {type(value).__qualname__} has no JSON form")


_encode = msgspec.json.Encoder(enc_hook=_enc_hook).encode


def _dec_hook(cls: type, value: Any) -> Any:
    if cls is object:
        return value
    if not _is_model(cls):
        raise NotImplementedError(f"a {cls.__qualname__} has no JSON form")
    return _read_model(cls, msgspec.json.encode(value))


def _read_model(model: Any, text: bytes | msgspec.Raw) -> Any:
    """Read a model from its JSON text; :raises _Nested:"""
    try:
        return model.model_validate_json(bytes(text), strict=True, by_alias=True, by_name=True)
    except sys.modules["pydantic"].ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _Nested(first["msg"], first["loc"]) from None


_TOO_DEEP = f"the value is nested too deep (at most {MAX_JSON_DEPTH}), or contains itself"
_PLACE = re.compile(r" - at (?P<key>`key` in )?`\$\.?(?P<path>[^`]*)`$")
_NAMED = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>[^`]*)`")


def _misfit(error: Exception) -> Misfit:
    """Return the same refusal with its path as a value."""
    message, path = str(error), ""
    if place := _PLACE.search(message):
        message, path = message[: place.start()], place["path"]
    if named := _NAMED.match(message):
        path = f"{path}.{named['name']}" if path else named["name"]
    if isinstance(error.__cause__, _Nested):
        path += error.__cause__.path
    return Misfit(message, path)


def _describe(annotation: Any) -> inspect.Type:
    try:
        node = inspect.type_info(annotation)
    except (TypeError, ValueError, NameError) as error:
        raise Unsupported(str(error)) from None
    for cls in customs(node):
        if not _is_model(cls):
            raise Unsupported(f"{cls.__module__}.{cls.__qualname__} has no JSON form")
    return node


def _to_text(value: Any) -> str:
    """Return the JSON text of a value; what cannot be written raises Misfit."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        raise Misfit("a string holds half of a surrogate pair, which is no text") from None
    except RecursionError:
        raise Misfit(_TOO_DEEP) from None
    except (TypeError, ValueError, OverflowError, NotImplementedError, msgspec.EncodeError) as error:
        raise Misfit(str(error)) from None
    if len(data) > MAX_JSON_DEPTH and is_too_deep(data):  # each level has a bracket
        raise Misfit(_TOO_DEEP)
    # Numbers that JSON lacks are written as null: only a text with a null can have one.
    if value is not None and b"null" in data:
        try:
            plain = msgspec.to_builtins(value, enc_hook=_plain_hook, str_keys=True)
        except TypeError as error:  # keys that the encoder takes and this does not
            raise Misfit(str(error)) from None
        found = find_nan(plain, "")
        if found is not None:
            raise Misfit("NaN and Infinity are not JSON numbers", found.lstrip("."))
    return data.decode()


def _same(decoded: Any, value: Any) -> bool:
    """Return whether a value came back unchanged, which saves checking its parts."""
    try:
        return bool(decoded == value)
    except Exception:  # a user's class may raise anything from ``__eq__``
        return False


class Codec:
    """One value of one type."""

    def __init__(self, annotation: Any, *, plain: bool = True) -> None:
        """``plain``: a value without an annotation must be JSON as it is, not only have a JSON form.

        :raises Unsupported:
        """
        if annotation in (NoReturn, object):  # one is never returned, the other says nothing about the type
            annotation = None if annotation is NoReturn else Any
        self._node = _describe(annotation)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(annotation, dec_hook=_dec_hook)
        self._watched = plain and watched(self._node)
        self._only_none = annotation in (None, type(None))

    def encode(self, value: Any) -> str:
        """Return JSON text that decodes into the type; :raises Misfit:"""
        if value is None and self._only_none:
            return "null"
        text = _to_text(value)
        decoded = self.decode(text)
        if self._watched and not _same(decoded, value):
            try:
                check(value, self._node, "")
            except RecursionError:
                raise Misfit(_TOO_DEEP) from None
            except Misfit as error:
                raise Misfit(error.message, error.path.lstrip(".")) from None
        return text

    def decode(self, text: str) -> Any:
        """Return the value in its type; :raises Misfit:"""
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _misfit(error) from None


class RecordCodec:
    """The arguments of one signature: a JSON object keyed by parameter name, holding what was passed."""

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        """
        :raises Unsupported: naming the parameter
        """
        self.parameters = tuple(parameters)
        self._nodes = {one.name: self._node(one) for one in parameters}
        self._watched = {one: node for one, node in self._nodes.items() if watched(node)}
        self._objects = {one: node for one, node in self._nodes.items() if has_objects(node)}
        self.binary = tuple(name for name, node in self._nodes.items() if binary(node))
        """The parameters that are bytes."""
        # Fields have names of their own, so that no parameter's name can collide with an attribute of a struct.
        self._names = [one.name for one in parameters]
        self._optional = not all(one.required for one in parameters)
        self._models = [
            (f"p{index}", one.name, one.type) for index, one in enumerate(parameters) if _is_model(one.type)
        ]
        """The parameters that are models: they are read from the text, not from the decoder's output."""
        plain = [
            (f"p{index}", kind) if one.required else (f"p{index}", kind, msgspec.field(default_factory=lambda: _ABSENT))
            for index, one in enumerate(parameters)
            for kind in (msgspec.Raw if _is_model(one.type) else one.type,)
        ]
        struct = msgspec.defstruct(
            name if name.isidentifier() else "Payload",
            plain,
            rename={f"p{index}": name for index, name in enumerate(self._names)},
            forbid_unknown_fields=True,
            kw_only=True,
        )
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(struct, dec_hook=_dec_hook)

    @staticmethod
    def _node(parameter: Parameter) -> inspect.Type:
        try:
            return _describe(parameter.type)
        except Unsupported as error:
            raise Unsupported(f"parameter {parameter.name!r}: {error}") from None

    def encode(self, arguments: Mapping[str, Any]) -> str:
        """Return JSON text of the arguments, proved to decode into the signature; :raises Misfit:"""
        try:
            text = _to_text(arguments)
        except Misfit as error:
            raise self._placed(error, arguments) from None
        self._decode(text)
        for name, node in self._watched.items():
            if name in arguments:
                try:
                    check(arguments[name], node, name)
                except RecursionError:
                    raise Misfit(_TOO_DEEP, name) from None
        return text

    def _placed(self, error: Misfit, arguments: Mapping[str, Any]) -> Misfit:
        """Return the refusal with the name of the argument that caused it, found by writing each alone."""
        if error.path:
            return error
        for name, value in arguments.items():
            try:
                _to_text(value)
            except Misfit as found:
                return Misfit(found.message, f"{name}.{found.path}" if found.path else name)
        return error

    def decode(self, text: str) -> dict[str, Any]:
        """Return what was passed, by parameter name; :raises Misfit:"""
        values = zip(self._names, _astuple(self._decode(text)))  # noqa: B905, a name for each field; and it takes longer
        if not self._optional:
            return dict(values)
        return {name: value for name, value in values if value is not _ABSENT}

    def _decode(self, text: str) -> Any:
        try:
            record = self._decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _misfit(error) from None
        for field, name, model in self._models:
            if (raw := getattr(record, field)) is not _ABSENT:
                try:
                    setattr(record, field, _read_model(model, raw))
                except _Nested as error:
                    raise Misfit(str(error), name + error.path) from None
        if self._objects:
            self._check_fields(text)
        return record

    def _check_fields(self, text: str) -> None:
        """Refuse fields that an object within an argument does not have: the decoder drops them silently."""
        plain = msgspec.json.decode(text, type=dict[str, Any])
        for name, node in self._objects.items():
            unknown = find_unknown(plain.get(name), node, name)
            if unknown is not None:
                raise Misfit(f"Object contains unknown field `{unknown.rpartition('.')[2]}`", unknown)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the object."""
        shared: dict[str, Any] = {}

        def hook(cls: Any) -> dict[str, Any]:
            schema: dict[str, Any] = cls.model_json_schema() if _is_model(cls) else {}
            # References start at the root of the document, so a model's parts must be there.
            shared.update(schema.pop("$defs", {}))
            return schema

        types = [one.type for one in self.parameters]
        described, parts = msgspec.json.schema_components(types, schema_hook=hook)
        shared |= parts
        properties: dict[str, Any] = {}
        for one, schema in zip(self.parameters, described, strict=True):
            properties[one.name] = dict(schema)
            if not one.required:
                try:
                    properties[one.name]["default"] = msgspec.json.decode(_to_text(one.default))
                except Misfit:
                    continue  # a default that is not JSON is still a default, but cannot be shown
        whole: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        whole["required"] = [one.name for one in self.parameters if one.required]
        if shared:
            whole["$defs"] = shared
        return whole
