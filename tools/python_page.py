"""Writes docs/reference/python.md: what `import sleeper` offers, from signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import griffe

import sleeper
from sleeper import errors
from sleeper.instance.instance import Instance
from sleeper.jobs.instance_jobs import InstanceJobs
from sleeper.tables.table import Table

INTRODUCTION = """\
<!-- Generated: run `make docs`. -->

# Python

What `import sleeper` offers, and the classes that calls return. All other modules may change
without notice. Every error is a subclass of `sleeper.SleeperError`; [which one](#errors) says
what to do.

"""
CLASSES: tuple[type, ...] = (Instance, Table, sleeper.Rows, InstanceJobs)
WIDTH = 96
LAMBDA = re.compile(r"<function (?:\w+\.)*<lambda> at 0x[0-9a-f]+>")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
DOCTEST = re.compile(r"(?m)(?:^>>> .*\n?(?:^(?:\.\.\. |(?!\n)).*\n?)*)+")


def python_page() -> str:
    """Return the page."""
    text = INTRODUCTION
    text += "## Functions\n" + "".join(
        function_section(name, getattr(sleeper, name), "###") for name in functions()
    )
    for owner in CLASSES:
        text += class_section(owner)
    text += "\n## Values\n\nSchemas, and what calls return.\n"
    text += "".join(value_section(each) for each in values())
    text += "\n## Spark\n" + "".join(
        function_section(f"spark.{name}", member, "###")
        for name, member in vars(sleeper.spark).items()
        if inspect.isfunction(member) and not name.startswith("_")
    )
    text += "\n## Errors\n\n```text\n" + error_tree() + "```\n\n| class | means |\n|---|---|\n"
    text += "".join(
        f"| `{error.__name__}` | {cell(first_line(error))} |\n" for error in error_classes()
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def functions() -> list[str]:
    """Return the public functions of the package."""
    return [name for name in sleeper.__all__ if inspect.isfunction(getattr(sleeper, name))]


def public_names(owner: type) -> list[str]:
    """Return the public methods and properties of a class, and of those that it inherits from."""
    return [name for name in dir(owner) if not name.startswith("_")]


def class_section(owner: type) -> str:
    """A class: its docstring, a table of its members, and each of them."""
    name = owner.__name__
    text = f"\n## {name}\n\n{described(owner)}\n\n| member | does |\n|---|---|\n"
    members = {each: getattr(owner, each) for each in public_names(owner)}
    for each, member in members.items():
        label = each if is_value(member) else f"{each}()"
        anchor = f"{name}.{each}".lower().replace(".", "")
        text += f"| [`{label}`](#{anchor}) | {cell(first_line(member))} |\n"
    for each, member in members.items():
        text += function_section(f"{name}.{each}", member, "###")
    return text


def is_value(member: object) -> bool:
    """Return whether a member is a property, and not called."""
    return not callable(member)


def function_section(name: str, member: Any, level: str) -> str:
    """A function, method or property: its signature, and what its docstring says."""
    called = member.fget if isinstance(member, property) else member
    text = f"\n{level} {name}\n\n"
    if callable(called) and not isinstance(member, property):
        text += f"```python\n{signature_of(name, called)}\n```\n\n"
    return text + described(called) + "\n"


def signature_of(name: str, called: Callable[..., Any]) -> str:
    """A call as it is written, one argument a line if it is long."""
    signature = inspect.signature(called)
    given = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    parts: list[str] = []
    star = False
    for each in given:
        if each.kind is each.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or each.kind is each.VAR_POSITIONAL
        parts.append(argument(each))
    back = signature.return_annotation
    end = "" if back is signature.empty else f" -> {annotation(back)}"
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def argument(given: inspect.Parameter) -> str:
    """One argument with its type and default."""
    stars = "*" * (given.kind is given.VAR_POSITIONAL) or "**" * (given.kind is given.VAR_KEYWORD)
    text = f"{stars}{given.name}"
    if given.annotation is not given.empty:
        text += f": {annotation(given.annotation)}"
    if given.default is not given.empty:
        text += f" = {ADDRESS.sub('', LAMBDA.sub('...', repr(given.default)))}"
    return text


def annotation(given: Any) -> str:
    """A type as it is written in the source, without the modules of this package."""
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def described(member: Any) -> str:
    """A docstring as Markdown."""
    text = inspect.getdoc(member) or ""
    sections = griffe.Docstring(text, lineno=1).parse("google", warnings=False)
    return "\n\n".join(filter(None, map(section, sections)))


def section(part: Any) -> str:
    """A section of a docstring as Markdown."""
    kind = part.kind.value
    if kind == "text":
        return DOCTEST.sub(lambda code: f"\n```python\n{code[0].rstrip()}\n```\n", part.value)
    if kind in ("parameters", "attributes"):
        title = {"parameters": "Arguments", "attributes": "Attributes"}[kind]
        return titled(
            title, [f"`{each.name}`: {one_line(each.description)}" for each in part.value]
        )
    if kind == "raises":
        entries = [f"`{each.annotation}`: {one_line(each.description)}" for each in part.value]
        return titled("Raises", entries)
    if kind in ("returns", "yields"):
        text = " ".join(one_line(f"{each.description}") for each in part.value)
        return f"**{kind.capitalize()}:** {text}"
    if kind == "admonition":
        return f"**{part.title}:** {one_line(part.value.description)}"
    return one_line(str(part.value))


def titled(title: str, entries: list[str]) -> str:
    """A list under a title."""
    return f"**{title}:**\n\n" + "\n".join(f"- {entry}" for entry in entries)


def one_line(text: str) -> str:
    """Text with single spaces between words."""
    return " ".join(text.split())


def first_line(member: Any) -> str:
    """The first paragraph of a docstring."""
    called = member.fget if isinstance(member, property) else member
    return one_line((inspect.getdoc(called) or "").split("\n\n", maxsplit=1)[0])


def values() -> list[type]:
    """Return the public values, and the values of this package that public methods return."""
    named = (getattr(sleeper, name) for name in sleeper.__all__)
    found = [each for each in named if inspect.isclass(each) and not issubclass(each, Exception)]
    for owner in CLASSES:
        for name in public_names(owner):
            found += returned(getattr(owner, name))
    for each in [*found]:
        if is_dataclass(each):
            found += mentioned(" ".join(f"{one.type}" for one in fields(each)), each.__module__)
    unique = {each.__name__: each for each in found if each not in CLASSES}
    return [unique[name] for name in sorted(unique)]


def returned(member: Any) -> list[type]:
    """Return the classes of this package that a method or property returns."""
    called = member.fget if isinstance(member, property) else member
    if not callable(called):
        return []
    back = getattr(called, "__annotations__", {}).get("return", "")
    return mentioned(f"{back}", called.__module__)


@cache
def names_in(module: str) -> dict[str, Any]:
    """Return the names of a module, with those that it imports for type checkers only."""
    loaded = import_module(module)
    blocks = [
        each
        for each in ast.parse(inspect.getsource(loaded)).body
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
    ]
    late = {
        name.asname or name.name: getattr(import_module(each.module), name.name)
        for block in blocks
        for each in block.body
        if isinstance(each, ast.ImportFrom) and each.module and each.module.startswith("sleeper.")
        for name in each.names
    }
    return {**late, **vars(loaded)}


def mentioned(text: str, module: str) -> list[type]:
    """Return the data classes of this package that an annotation in a module mentions."""
    space = names_in(module)
    found = []
    for dotted in re.findall(r"[A-Za-z_][\w.]*", text):
        first, *rest = dotted.split(".")
        value = space.get(first)
        for name in rest:
            value = getattr(value, name, None)
        if (
            inspect.isclass(value)
            and value.__module__.startswith("sleeper.")
            and is_dataclass(value)
        ):
            found.append(value)
    return found


def value_section(owner: type) -> str:
    """A value: what it is, its attributes, and its public methods."""
    text = f"\n### {owner.__name__}\n\n{described(owner)}\n"
    named = {one.name for one in fields(owner)} if is_dataclass(owner) else set()
    more = [
        f"- `{name}`: {first_line(member)}"
        for name, member in vars(owner).items()
        if not name.startswith("_") and name not in named and inspect.getdoc(member)
        if isinstance(member, property) or inspect.isfunction(member)
    ]
    return text + ("\n" + "\n".join(more) + "\n" if more else "")


def error_tree() -> str:
    """The tree of errors, as the module that defines them draws it."""
    lines = (inspect.getdoc(errors) or "").splitlines()
    drawn = [line for line in lines if line.startswith("    ")]
    return "".join(f"{line[4:]}\n" for line in drawn)


@cache
def error_classes() -> tuple[type, ...]:
    """Return every error class, in the order in which they are defined."""
    return tuple(
        each
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, errors.SleeperError)
    )


def cell(text: str) -> str:
    """Text that fits into one cell of a table."""
    return text.replace("|", "\\|")
