"""Rules for each module of the package, read from the source. A rule nobody runs is a wish."""

from __future__ import annotations

import ast
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import sleeper
from tests.house.sources import (
    PACKAGE,
    Found,
    Function,
    Source,
    check_finds_marked_lines,
    check_none,
    offenders,
    package,
    read,
)

VAGUE = {
    *("util", "utils", "helper", "helpers", "common", "base", "misc", "core", "impl"),
    *("manager", "handler", "factory", "provider", "stuff", "tools", "shared"),
}
FUNCTION_LINES_MAX = 60
PUBLIC_NAMES_MAX = 30  # what a newcomer can look through
LINES_WITHOUT_REASON_MAX = 800
LONG: Mapping[str, str] = {
    "tables/table.py": "the public methods of a table, each with the contract for its callers",
}
"""Modules of more lines than these, from src/sleeper on, each with the reason why it is one."""
WITH_CODE_IN_INIT = ("__init__.py", "spark/__init__.py")
"""What users import: `sleeper` and `sleeper.spark`."""
TO_DO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")


def words_of(name: str) -> set[str]:
    """The words of a snake_case or CamelCase name."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def is_public(name: str) -> bool:
    return not name.startswith("_")


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


# ---------------------------------------------------------------- rules


def long_functions(source: Source) -> Iterator[Found]:
    docs = {
        node.lineno: node.body[0].end_lineno - node.body[0].lineno + 1
        for node in source.nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if ast.get_docstring(node, clean=False)
    }
    for function in source.functions:
        length = function.end_lineno - function.lineno + 1 - docs.get(function.lineno, 0)
        if length > FUNCTION_LINES_MAX:
            yield function.lineno, f"{function.name} has {length} lines"


def vague_names_of_modules(source: Source) -> Iterator[Found]:
    for part in source.path.relative_to(PACKAGE).with_suffix("").parts:
        if words_of(part) & VAGUE:
            yield 1, part


def vague_names_of_classes(source: Source) -> Iterator[Found]:
    for each in source.classes:
        if words_of(each.name) & VAGUE:
            yield each.lineno, each.name


def modules_without_a_subject(source: Source) -> Iterator[Found]:
    if not source.docstring:
        yield 1, "no docstring"
    elif "TODO" in source.docstring:
        yield 1, "a docstring with a TODO"


def undocumented_names(source: Source) -> Iterator[Found]:
    for name, node in public_definitions(source.tree):
        documented = ast.get_docstring(node) is not None
        if not documented and not (isinstance(node, Function) and is_overload(node)):
            yield node.lineno, name


def lazy_imports(source: Source) -> Iterator[Found]:
    names = {
        node: [node.module or ""]
        if isinstance(node, ast.ImportFrom)
        else [alias.name for alias in node.names]
        for node in source.imports
        if node.col_offset
    }
    ours = [node for node in names if any(each.startswith("sleeper") for each in names[node])]
    for node in ours:
        if any(each.lineno <= node.lineno <= each.end_lineno for each in source.functions):
            yield node.lineno, ast.unparse(node)


def anonymous_to_dos(source: Source) -> Iterator[Found]:
    for line, found in source.matches(TO_DO):
        yield line, found[0]


def code_in_init(source: Source) -> Iterator[Found]:
    for node in source.tree.body:
        if not isinstance(node, ast.Expr):
            yield node.lineno, type(node).__name__
    if len(source.tree.body) != 1 or not source.docstring:
        yield 1, "not a docstring alone"


def wrong_reasons(lines: Mapping[str, int], reasons: Mapping[str, str]) -> Iterator[str]:
    """Long modules without a reason, and reasons without a long module."""
    long = {name for name, count in lines.items() if count > LINES_WITHOUT_REASON_MAX}
    for name in sorted(long - {*reasons}):
        yield f"{PACKAGE}/{name}: {lines[name]} lines, and LONG gives no reason"
    for name in sorted({*reasons} - long):
        count = f"{lines[name]} lines" if name in lines else "not there"
        yield f"{PACKAGE}/{name}: {count}: take it out of LONG"
    for name in sorted(long & {*reasons}):
        if not reasons[name].strip():
            yield f"{PACKAGE}/{name}: LONG has it with an empty reason"


# ---------------------------------------------------------------- what each module keeps to


def test_no_function_is_longer_than_a_screen():
    """No function has more than 60 lines, its docstring included."""
    check_none(offenders(long_functions, package()), "take a step out, and name it")


def test_a_long_module_has_a_reason():
    """A module of more than 800 lines has its reason in LONG, and nothing else is listed there."""
    lines = {source.in_package: len(source.lines) for source in package()}

    check_none(
        wrong_reasons(lines, LONG),
        "if it has two purposes, split it by purpose; else write the reason into LONG",
    )


def test_modules_have_names_that_say_what_lives_there():
    """No module or folder is a drawer for leftovers."""
    check_none(offenders(vague_names_of_modules, package()), "name it after the thing it knows")


def test_classes_are_named_after_what_they_are():
    """No class is a helper, manager, factory or the like."""
    check_none(offenders(vague_names_of_classes, package()), "name it after the thing it is")


def test_modules_say_what_lives_there():
    """Every module opens with a docstring, and it is more than a promise."""
    found = offenders(modules_without_a_subject, package())

    check_none(found, "say in the first line what the module is for")


def test_public_names_are_documented():
    """Every public function, class and method has a docstring."""
    check_none(offenders(undocumented_names, package()), "say what it does, or make it private")


def test_only_doors_import_inside_functions():
    """Elsewhere an import that is not at the top hides what a module depends on. pyproject.toml
    allows doors what ruff refuses to others (PLC0415), with a reason each."""
    project = tomllib.loads(Path("pyproject.toml").read_text())
    allowed = project["tool"]["ruff"]["lint"]["per-file-ignores"]
    doors = {
        name.removeprefix(f"{PACKAGE}/") for name, rules in allowed.items() if "PLC0415" in rules
    }
    late = {each.in_package for each in package() if [*lazy_imports(each)]}

    assert late - doors == set(), "import at the top, and break the cycle, if any"
    assert doors - late == set(), "these import at the top: take them out of pyproject.toml"


def test_to_dos_name_their_issue():
    """A TODO names an issue, as in TODO(#12), or does not exist."""
    check_none(offenders(anonymous_to_dos, package()), "do it, or open an issue and name it")


def test_packages_keep_no_code_in_their_init():
    """Every folder has an `__init__.py`: a docstring and nothing else, but for what users import."""
    names = {each.name for each in package()}
    missing = {f"{each.path.parent}/__init__.py" for each in package()} - names
    inits = [
        each
        for each in package()
        if each.path.name == "__init__.py" and each.in_package not in WITH_CODE_IN_INIT
    ]

    check_none(sorted(missing), "add it, with a docstring")
    check_none(offenders(code_in_init, inits), "move the code into a module")


def test_exceptions_to_rules_are_needed():
    """A module that may break a rule does so: else it is taken off the list."""
    kept = [name for name in WITH_CODE_IN_INIT if not [*code_in_init(read(f"{PACKAGE}/{name}"))]]

    assert kept == []


# ---------------------------------------------------------------- errors, and the public door


class TestErrors:
    """The module that all others may import."""

    def test_import_nothing(self):
        """errors.py stands on nothing, so that every package may stand on it."""
        imports = [ast.unparse(node) for node in read(f"{PACKAGE}/errors.py").imports]

        assert imports == ["from __future__ import annotations"]

    def test_are_all_drawn_in_the_tree(self):
        """The drawing at the top of errors.py shows every class."""
        source = read(f"{PACKAGE}/errors.py")
        drawn = set(re.findall(r"\w+", source.docstring))

        classes = {node.name for node in source.tree.body if isinstance(node, ast.ClassDef)}

        assert classes - drawn == set()


class TestThePublicDoor:
    """`import sleeper`, as a user sees it."""

    def test_lists_its_names_in_order(self):
        """`sleeper.__all__` is sorted and short."""
        assert list(sleeper.__all__) == sorted(sleeper.__all__)
        assert 0 < len(sleeper.__all__) <= PUBLIC_NAMES_MAX

    def test_lists_exactly_what_can_be_imported(self):
        """Every listed name is there, and no other public name but the packages themselves."""
        listed = {name: getattr(sleeper, name) for name in sleeper.__all__}
        not_names = {"annotations", "import_module", "Any", "TYPE_CHECKING"}
        modules = {
            name for name, value in vars(sleeper).items() if isinstance(value, types.ModuleType)
        }

        others = {name for name in vars(sleeper) if is_public(name)} - modules

        assert others - set(listed) - not_names == set()


# ---------------------------------------------------------------- the rules find what they forbid

OF_ONE_SCREEN = "def short():\n" + "    pass\n" * (FUNCTION_LINES_MAX - 1)
OF_MORE = "    async def long(self):  # bad\n" + "        pass\n" * FUNCTION_LINES_MAX

MARKED = {
    long_functions: f"{OF_ONE_SCREEN}class Wide:\n{OF_MORE}",
    vague_names_of_classes: """\
class Keys:
    class KeyUtils:  # bad
        pass
class TreeManager: pass  # bad
class HTTPHandler: pass  # bad
class Handlers: pass
""",
    undocumented_names: """\
def says(): "What."
def says_nothing(): pass  # bad
async def waits(): pass  # bad
def _private(): pass
class Of:  # bad
    def method(self): pass  # bad
    def _private(self): pass
    @overload
    def many(self): ...
""",
    lazy_imports: """\
import sleeper.model.keys
from sleeper.model import keys
if TYPE_CHECKING:
    from sleeper.model import ranges
def at_once():
    import os
    from sleeper.model import keys  # bad
    def inside():
        import sys, sleeper.model.ranges  # bad
async def later():
    if True:
        import sleeper  # bad
""",
    anonymous_to_dos: """\
one = 1  # TODO(#12): two
two = 1  # FIXME  # bad
# TODO(12): three  # bad
# XXX HACK  # bad
AUTODONE = 1
""",
    code_in_init: """\
import os  # bad
""",
}


@pytest.mark.parametrize("rule", MARKED, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_it_forbids(rule):
    """Given a text with good and bad lines, then the rule finds the bad ones alone."""
    check_finds_marked_lines(rule, MARKED[rule])


@pytest.mark.parametrize(
    ("rule", "name", "text", "found"),
    [
        (vague_names_of_modules, "model/key_utils.py", "", ["key_utils"]),
        (vague_names_of_modules, "helpers/tools/keys.py", "", ["helpers", "tools"]),
        (vague_names_of_modules, "model/handles.py", "", []),
        (modules_without_a_subject, "a.py", "import os\n", ["no docstring"]),
        (modules_without_a_subject, "a.py", "# Keys.\n", ["no docstring"]),
        (modules_without_a_subject, "a.py", '"""TODO."""\n', ["a docstring with a TODO"]),
        (modules_without_a_subject, "a.py", '"""Keys."""\n', []),
        (code_in_init, "a/__init__.py", '"""Keys."""\n', []),
        (code_in_init, "a/__init__.py", "", ["not a docstring alone"]),
        (code_in_init, "a/__init__.py", '"""Keys."""\n2\n', ["not a docstring alone"]),
        (code_in_init, "a/__init__.py", "2\n", ["not a docstring alone"]),
    ],
)
def test_a_rule_for_whole_modules_finds_what_it_forbids(rule, name, text, found):
    """Given a module, then its name, or what it is made of, is found or not."""
    assert [each for _, each in rule(Source(f"{PACKAGE}/{name}", text))] == found


def test_a_reason_is_asked_for_above_800_lines_and_goes_with_them():
    """Given long and short modules, then reasons are those of the long ones that are there."""
    lines = {"a.py": 800, "b.py": 801, "c.py": 900, "d.py": 1_000}
    reasons = {"a.py": "short by now", "c.py": "a table", "d.py": " ", "gone.py": "a table"}

    assert [*wrong_reasons(lines, reasons)] == [
        "src/sleeper/b.py: 801 lines, and LONG gives no reason",
        "src/sleeper/a.py: 800 lines: take it out of LONG",
        "src/sleeper/gone.py: not there: take it out of LONG",
        "src/sleeper/d.py: LONG has it with an empty reason",
    ]


def test_a_failure_lists_all_offenders_and_what_to_do():
    """Given two modules with an offender each, then both are in the message, with file and line."""
    of = [
        Source("src/sleeper/a.py", "class KeyUtils: pass\n"),
        Source("src/sleeper/b.py", "\nclass Tools: pass\n"),
    ]

    with pytest.raises(pytest.fail.Exception) as failure:
        check_none(offenders(vague_names_of_classes, of), "name it after the thing it is")

    assert str(failure.value).splitlines() == [
        "2 offenders: name it after the thing it is",
        "src/sleeper/a.py:1: KeyUtils",
        "src/sleeper/b.py:2: Tools",
    ]
