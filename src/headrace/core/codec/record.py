"""Records as other programs read them: as JSON values, by field, and through pydantic, which FastAPI uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

__all__ = ["Record", "plain", "schema_of"]


class Record:
    """A value of the store, a struct that ``to_dict`` turns into JSON values.

    It can also be read by its fields, as in ``dict(record)``: so FastAPI reads what a route returns. Where a return
    type or a pydantic model names it, pydantic accepts an instance, and writes the values of ``to_dict``.
    """

    __slots__ = ()
    __struct_fields__: ClassVar[tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values by field name, as the command line prints it with ``--json``."""
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])

    def keys(self) -> Iterable[str]:
        """Return the names of ``to_dict``."""
        return self.to_dict().keys()

    def __getitem__(self, name: str) -> Any:
        """Return one of the values of ``to_dict``."""
        if not isinstance(name, str):  # a loop over the record requests number 0
            raise TypeError(f"a {type(self).__name__} is read by the names of its fields, not by {name!r}")
        return plain(self._field(name))

    def _field(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    @classmethod
    def _json_schema(cls, *parameters: Any) -> dict[str, Any]:
        """Return the JSON schema of ``to_dict``; ``parameters``: of a generic record."""
        return schema_of(cls)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic import AfterValidator, PlainSerializer, WithJsonSchema  # only here: the caller has it

        def instance(value: Any) -> Any:
            if not isinstance(value, cls):
                raise ValueError(f"a {cls.__name__} of headrace is expected, as it was read from the store")
            return value

        shape = WithJsonSchema(cls._json_schema(*getattr(source, "__args__", ())))
        return handler.generate_schema(Annotated[Any, AfterValidator(instance), PlainSerializer(plain), shape])


def plain(value: Any) -> Any:
    """Return JSON values, records by their own rule."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return msgspec.json.decode(msgspec.json.encode(value))


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type as one document: a schema within another cannot have definitions."""
    schema = msgspec.json.schema(kind)
    whole = _inlined(schema, schema.pop("$defs", {}))
    assert isinstance(whole, dict)
    return whole


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(one, definitions) for name, one in node.items()}
