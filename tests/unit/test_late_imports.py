"""Modules that are loaded when their first name is used."""

from __future__ import annotations

import importlib
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest

import sleeper
from sleeper.language.late_imports import LateMethod, late_imports

LOADED: list[str] = []
"""Names of the modules that were executed, each time."""


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes a module of the package `sleeper`; it is forgotten after the test."""
    monkeypatch.setattr(sleeper, "__path__", [*sleeper.__path__, str(tmp_path)])
    LOADED.clear()
    monkeypatch.setattr(sleeper, "_loaded", LOADED, raising=False)
    written = []

    def write(name: str, text: str = "") -> str:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        note = "import sleeper\nsleeper._loaded.append(__name__)\n"
        path.write_text(note + "def before(): return globals().get('after', str)()\n" + text)
        importlib.invalidate_caches()
        full_name = f"sleeper.{name.replace('/', '.')}"
        written.append(full_name)
        return full_name

    yield write
    for name in written:
        sys.modules.pop(name, None)
        vars(sleeper).pop(name.rpartition(".")[2], None)


def imported_late(name: str):
    """The module, imported in a block of `late_imports`."""
    with late_imports():
        return importlib.import_module(name)


def test_a_module_is_loaded_when_its_first_name_is_used(write_module):
    """The import alone executes nothing; the first use executes it, and the next do not."""
    name = write_module("first_use", "answer = 42")

    module = imported_late(name)
    before = [*LOADED]

    assert before == []
    assert (module.answer, module.answer) == (42, 42)
    assert [name] == LOADED
    assert type(module) is type(sys)


def test_who_imports_a_name_elsewhere_loads_the_module(write_module):
    """`from module import name` is as ever, and finds the same module."""
    name = write_module("elsewhere", "answer = 42")
    module = imported_late(name)

    from sleeper.elsewhere import answer  # noqa: PLC0415

    assert answer == 42
    assert sys.modules[name] is module
    assert [name] == LOADED


def test_a_module_that_was_loaded_before_stays_loaded(write_module):
    """A late import of it is an ordinary one."""
    name = write_module("loaded_before", "answer = []")
    answer = importlib.import_module(name).answer

    assert imported_late(name).answer is answer
    assert [name] == LOADED


def test_threads_wait_until_the_module_is_whole(write_module):
    """Eight threads call a function at once that needs what stands at the end of the module."""
    name = write_module("slow", "import time\ntime.sleep(0.1)\ndef after(): return 42")
    module, start = imported_late(name), Barrier(8)

    def call(_: int) -> int:
        start.wait()
        return module.before()

    with ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(call, range(8))]

    assert answers == [42] * 8
    assert [name] == LOADED


def test_imports_by_other_threads_are_as_ever_while_a_block_is_open(write_module):
    """A thread that imports while another one is in the block gets a loaded module."""
    name = write_module("other_thread")
    with late_imports():
        thread = Thread(target=importlib.import_module, args=(name,))
        thread.start()
        thread.join()
        loaded = [*LOADED]

    assert loaded == [name]


def test_an_error_of_a_module_is_raised_at_each_use(write_module):
    """A module that cannot be executed says so each time, not that a name is missing."""
    module = imported_late(write_module("broken", "1 / 0\nanswer = 42"))

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            module.answer  # noqa: B018


def test_what_is_set_before_the_first_use_stays(write_module):
    """So tests may replace a name of a module that nothing has used yet."""
    module = imported_late(write_module("replaced", "answer = 42"))

    module.answer = 43

    assert module.answer == 43


def test_only_modules_of_this_package_are_late(write_module, tmp_path, monkeypatch):
    """Packages, and whatever is not ours, are loaded at once."""
    name = write_module("room/__init__")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "not_of_ours.py").write_text("answer = 42")
    with late_imports():
        importlib.import_module(name.removesuffix(".__init__"))
        import not_of_ours  # noqa: PLC0415

    assert LOADED == ["sleeper.room"]
    assert vars(not_of_ours)["answer"] == 42
    sys.modules.pop("sleeper.room")
    sys.modules.pop("not_of_ours")


def test_a_block_leaves_pythons_imports_as_they_were():
    """Also if what is imported does not exist."""
    before = [*sys.meta_path]

    with pytest.raises(ModuleNotFoundError), late_imports():
        importlib.import_module("sleeper.there_is_no_such_module")

    assert before == sys.meta_path


class TestLateMethod:
    """A method whose module is loaded when it is first looked at."""

    def test_is_looked_up_once_and_is_then_the_function_itself(self):
        """Calls, signatures and docstrings are those of the function."""
        found = []

        def add(self, n: int, *, twice: bool = False) -> int:
            """Add."""
            return self.start + n * (1 + twice)

        class Sum:
            start = 10
            add = LateMethod(lambda: found.append(add) or add)

        before = [*found]

        assert before == []
        assert Sum().add(1) == 11
        assert Sum().add(1, twice=True) == 12
        assert Sum.add is add
        assert inspect.signature(Sum.add) == inspect.signature(add)
        assert found == [add]

    def test_of_a_table_is_typed_and_documented(self):
        """`help(sleeper.Table.compact)` shows what `sleeper.tables.compaction_method` says."""
        assert "workers" in inspect.signature(sleeper.Table.compact).parameters
        assert inspect.getdoc(sleeper.Table.compact).startswith("Merge files")
