"""The rules of the house, read from the source. A rule nobody runs is a wish."""

from __future__ import annotations

import ast
import re
import types
from pathlib import Path

import pytest

import sleeper

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sleeper"
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted({path.parent for path in MODULES})
VAGUE = {
    *("util", "utils", "helper", "helpers", "common", "base", "misc", "core", "impl"),
    *("manager", "handler", "factory", "provider", "stuff", "tools", "shared"),
}
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
ROOM_ENTRIES_MAX = 13
ROOMS_MAX = 18  # the package itself: what docs/design.md draws, and deploy to come
PUBLIC_NAMES_MAX = 25

Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), named(path))


def functions_in(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def is_public(name: str) -> bool:
    return not name.startswith("_")


def has_docstring(node) -> bool:
    return ast.get_docstring(node) is not None


def is_overload(function: Function) -> bool:
    return any(ast.unparse(item).endswith("overload") for item in function.decorator_list)


def public_definitions(tree: ast.Module):
    """Module-level functions and classes without an underscore, and their public methods."""
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, Function)) or not is_public(node.name):
            continue
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, Function) and is_public(method.name):
                    yield f"{node.name}.{method.name}", method


def words_of(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize("path", MODULES, ids=named)
class TestEveryModule:
    """What each module of the package keeps to."""

    def test_fits_in_a_sitting(self, path):
        """No module has more than 400 lines."""
        assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX, (
            "split it along a noun, not at a line"
        )

    def test_has_functions_that_fit_on_a_screen(self, path):
        """No function has more than 60 lines, its docstring included."""
        too_long = [
            f"{function.name}: {length} lines"
            for function in functions_in(tree_of(path))
            if (length := function.end_lineno - function.lineno + 1) > FUNCTION_LINES_MAX
        ]

        assert too_long == []

    def test_has_a_name_that_says_what_lives_there(self, path):
        """No module or room is a drawer for leftovers."""
        parts = path.relative_to(SOURCE).with_suffix("").parts

        assert [part for part in parts if words_of(part) & VAGUE] == [], (
            "name it after the thing it knows"
        )

    def test_names_its_classes_after_what_they_are(self, path):
        """No class is a helper, manager, factory or the like."""
        classes = [node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]

        assert [name for name in classes if words_of(name) & VAGUE] == []

    def test_says_what_lives_there(self, path):
        """Every module opens with a docstring, and it is more than a promise."""
        docstring = ast.get_docstring(tree_of(path))

        assert docstring
        assert "TODO" not in docstring

    def test_documents_every_public_name(self, path):
        """Every public function, class and method has a docstring."""
        undocumented = [
            name
            for name, node in public_definitions(tree_of(path))
            if not has_docstring(node) and not (isinstance(node, Function) and is_overload(node))
        ]

        assert undocumented == []

    def test_imports_its_own_package_at_the_top(self, path):
        """
        No function imports a module of ours: a lazy import hides a cycle. Only the
        composition root (a missing extra) and the public door (start-up time) may wait.
        """
        if path in (SOURCE / "__init__.py", SOURCE / "instance" / "instance.py"):
            return
        lazy = [
            f"line {node.lineno}"
            for function in functions_in(tree_of(path))
            for node in ast.walk(function)
            if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sleeper"))
            or (
                isinstance(node, ast.Import)
                and any(n.name.startswith("sleeper") for n in node.names)
            )
        ]

        assert lazy == []

    def test_makes_data_classes_by_our_own_decorator(self, path):
        """Python's compiles every method at import: `from sleeper.language.value_classes import dataclass`."""
        if path.name == "value_classes.py":
            return
        theirs = [
            f"line {node.lineno}"
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
            if "dataclass" in {each.name for each in node.names}
        ]

        assert theirs == []

    def test_leaves_no_anonymous_to_do(self, path):
        """A TODO names an issue, as in TODO(#12), or does not exist."""
        lines = path.read_text().splitlines()
        anonymous = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")

        assert [line for line in lines if anonymous.search(line)] == []


@pytest.mark.parametrize("room", ROOMS, ids=named)
class TestEveryRoom:
    """What each folder of the package keeps to."""

    def test_can_be_taken_in_at_a_glance(self, room):
        """No room has more than 13 entries."""
        entries = [
            entry.name
            for entry in room.iterdir()
            if entry.name not in ("__init__.py", "__main__.py", "__pycache__", "py.typed")
        ]

        limit = ROOMS_MAX if room == SOURCE else ROOM_ENTRIES_MAX
        assert len(entries) <= limit, sorted(entries)

    def test_keeps_no_code_in_its_door(self, room):
        """
        An `__init__.py` holds a docstring and nothing else, but for those that users import:
        `sleeper` and `sleeper.spark`.
        """
        if room in (SOURCE, SOURCE / "spark"):
            return
        body = tree_of(room / "__init__.py").body

        assert [type(node).__name__ for node in body] == ["Expr"]
        assert has_docstring(tree_of(room / "__init__.py"))


class TestErrors:
    """The module that all others may import."""

    def test_import_nothing(self):
        """errors.py stands on nothing, so that every room may stand on it."""
        imports = [
            ast.unparse(node)
            for node in ast.walk(tree_of(SOURCE / "errors.py"))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]

        assert imports == ["from __future__ import annotations"]

    def test_are_all_drawn_in_the_tree(self):
        """The drawing at the top of errors.py shows every class."""
        tree = tree_of(SOURCE / "errors.py")
        drawn = set(re.findall(r"\w+", ast.get_docstring(tree)))

        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}

        assert classes - drawn == set()


class TestThePublicDoor:
    """`import sleeper`, as a user sees it."""

    def test_lists_its_names_in_order(self):
        """`sleeper.__all__` is sorted and short."""
        assert list(sleeper.__all__) == sorted(sleeper.__all__)
        assert 0 < len(sleeper.__all__) <= PUBLIC_NAMES_MAX

    def test_lists_exactly_what_can_be_imported(self):
        """Every listed name is there, and no other public name but the rooms themselves."""
        listed = {name: getattr(sleeper, name) for name in sleeper.__all__}
        not_names = {"annotations", "import_module", "Any", "TYPE_CHECKING"}
        rooms_and_modules = {
            name for name, value in vars(sleeper).items() if isinstance(value, types.ModuleType)
        }

        others = {name for name in vars(sleeper) if is_public(name)} - rooms_and_modules

        assert others - set(listed) - not_names == set()
