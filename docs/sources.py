"""What the source of a class or function says: signatures as written, and the docstrings beneath its fields."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Member", "Seen", "read", "read_alias"]

_WIDE = 100


@dataclass(frozen=True)
class Member:
    """A field or method of a class."""

    name: str
    signature: str
    text: str


@dataclass
class Seen:
    """A public name as its source shows it."""

    text: str
    call: str = ""
    """The parameters it is called with, as written."""
    fields: list[Member] = field(default_factory=list)
    methods: list[Member] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """What its constructor keeps on it."""


def read(found: object) -> Seen:
    """What can be said about a class, a function or a type alias."""
    if inspect.isfunction(found):
        node = _node(found)
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        return Seen(inspect.getdoc(found) or "", _call(node, bound=False))
    if not isinstance(found, type):
        return Seen(f"`{found}`")
    seen = Seen(_own_doc(found))
    if issubclass(found, Enum):
        seen.fields = [Member(one.name, f"{one.name} = {one.value!r}", "") for one in found]
        return seen
    for cls in found.__mro__:
        if cls.__module__.partition(".")[0] == "headrace" and not _is_told_elsewhere(cls, found):
            _add(seen, cls)
    return seen


def read_alias(name: str, module: str) -> Seen | None:
    """What a type alias is written as and what stands beneath it, in the module that makes it; None if it is none."""
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    for index, part in enumerate(body):
        if isinstance(part, ast.ImportFrom) and part.module and any(one.name == name for one in part.names):
            return read_alias(name, part.module)
        if isinstance(part, ast.Assign) and any(_name(target) == name for target in part.targets):
            text = next((said for known, _, said in _documented(body[index : index + 2]) if known == name), "")
            return Seen("\n\n".join(one for one in (text, f"`{ast.unparse(part.value)}`") if one))
    return None


def _is_told_elsewhere(cls: type, found: type) -> bool:
    """Classes whose members are listed elsewhere: what all records can do once, the suite is its tests."""
    return (cls.__name__ == "Record" and cls is not found) or cls.__module__.startswith("headrace.conformance")


def _own_doc(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def _node(found: object) -> ast.stmt:
    tree = ast.parse(textwrap.dedent(inspect.getsource(found)))  # type: ignore[arg-type]  # a class or a function
    return tree.body[0]


def _add(seen: Seen, cls: type) -> None:
    """Add what this class of the line of inheritance says and no class before it has said."""
    node = _node(cls)
    assert isinstance(node, ast.ClassDef)
    known = {one.name for one in (*seen.fields, *seen.methods)}
    for name, signature, text in _documented(node.body):
        if name not in known and not name.startswith("_"):
            seen.fields.append(Member(name, signature, text))
    for part in node.body:
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if part.name == "__init__" and not seen.call:
            seen.call = _call(part, bound=True)
            seen.kept = sorted(set(_kept(part)))
            for name, signature, text in _documented(part.body):
                if text and name not in known and not name.startswith("_"):
                    seen.fields.append(Member(name, signature, text))
        elif part.name not in known and (not part.name.startswith("_") or part.name == "__call__"):
            member = _method(part)
            if member is not None and all(one.name != member.name for one in seen.methods):
                (seen.fields if _is_property(part) else seen.methods).append(member)


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str, str]]:
    """Annotated or assigned names, each with the string that stands right beneath it."""
    for index, part in enumerate(body):
        after = body[index + 1] if index + 1 < len(body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            text = after.value.value
        if isinstance(part, ast.AnnAssign):
            name = _name(part.target)
            value = (
                f" = {ast.unparse(part.value)}" if part.value is not None and name == ast.unparse(part.target) else ""
            )
            yield name, f"{name}: {ast.unparse(part.annotation)}{value}", text
        elif isinstance(part, ast.Assign) and text:
            for target in part.targets:
                yield _name(target), _name(target), text


def _name(target: ast.expr) -> str:
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else "_"


def _kept(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and not part.attr.startswith("_"):
            yield part.attr


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not _decorators(node).isdisjoint({"property", "cached_property"})


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Member | None:
    text = ast.get_docstring(node) or ""
    if "overload" in _decorators(node):
        return None
    if _is_property(node):
        result = f": {ast.unparse(node.returns)}" if node.returns else ""
        return Member(node.name, node.name + result, text)
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    name = "" if node.name == "__call__" else node.name
    signature = f"{word}{name}{_call(node, bound=True, wide=None)}{result}"
    return Member(node.name, signature, text)


def _call(node: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool, wide: int | None = _WIDE) -> str:
    """The parameters as written; one per line when they are many, unless ``wide`` is None."""
    args = node.args
    if bound and args.args and "staticmethod" not in _decorators(node):
        args.args = args.args[1:]
    elif bound and args.posonlyargs:
        args.posonlyargs = args.posonlyargs[1:]
    parts = [_spaced(part) for part in _split(ast.unparse(args))]
    text = ", ".join(parts)
    if wide is None or len(text) <= wide:
        return f"({text})"
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")"


def _spaced(part: str) -> str:
    """``a: int=1`` as people write it."""
    name, colon, rest = part.partition(": ")
    return f"{name}: {rest.replace('=', ' = ', 1)}" if colon else part


def _split(text: str) -> Iterator[str]:
    """Parameters apart; commas within brackets and quotes belong to one of them."""
    depth, start, quoted = 0, 0, ""
    for index, sign in enumerate(text):
        if quoted:
            quoted = "" if sign == quoted else quoted
        elif sign in "'\"":
            quoted = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    yield text[start:].strip()
