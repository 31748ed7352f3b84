"""Imports modules when their first name is used, for doors: modules through which users come in.

    with late_imports():
        from sleeper.operations.reading import export

    export.export(table)  # the module is loaded here

The import is an ordinary statement: type checkers, linters and `.importlinter` see it. Nothing
else of Python is changed: the module is in `sys.modules`, and who imports it anywhere else by
`from ... import name` loads it. Packages, and modules that are not in files, are loaded at once.
`tests/house/test_house.py` lists the doors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock, get_ident
from types import ModuleType
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_PACKAGE: Final = "sleeper."
_KNOWN_BEFORE: Final = frozenset(
    {
        *("__cached__", "__class__", "__file__", "__loader__", "__name__", "__package__"),
        *("__path__", "__spec__"),
    }
)
"""What Python's import and `inspect` ask of modules that they do not use."""


@contextmanager
def late_imports() -> Generator[None]:
    """Let modules of this package that are imported in the block be loaded at first use."""
    finder = _LateFinder(get_ident())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class LateMethod(Generic[Owner, Arguments, Result]):
    """A method that is a function of a module: the first look at the method loads the module.

    Args:
        find: Returns the function. Its first argument is the object whose method it is.
    """

    def __init__(self, find: Callable[[], Callable[Concatenate[Owner, Arguments], Result]]) -> None:
        self._find = find

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    @overload
    def __get__(
        self, instance: None, owner: type
    ) -> Callable[Concatenate[Owner, Arguments], Result]: ...

    @overload
    def __get__(self, instance: Owner, owner: type) -> Callable[Arguments, Result]: ...

    def __get__(self, instance: Owner | None, owner: type) -> Any:
        """Put the function in this object's place, and return it as Python returns methods."""
        setattr(self._owner, self._name, self._find())
        return getattr(owner if instance is None else instance, self._name)


class _LateFinder:
    """Finds modules as Python does, and puts off their loading."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PACKAGE) or get_ident() != self._thread:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if (
            spec is not None
            and spec.submodule_search_locations is None
            and type(spec.loader) is SourceFileLoader
        ):
            spec.loader = _LateLoader(fullname, spec.loader.path)
        return spec


class _LateLoader(SourceFileLoader):
    """Loads a module when its first name is read. Threads that read it meanwhile wait."""

    def __init__(self, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._lock = RLock()
        self._loading = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LateModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing yet: `load` does it."""

    def load(self, module: ModuleType) -> None:
        """Execute the module, unless that was done, or this thread is doing it."""
        with self._lock:
            if self._loading or type(module) is not _LateModule:
                return
            self._loading = True
            try:
                super().exec_module(module)
                object.__setattr__(module, "__class__", ModuleType)
            finally:
                self._loading = False


class _LateModule(ModuleType):
    """A module that was imported and not loaded yet."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _KNOWN_BEFORE:
            loader = super().__getattribute__("__spec__").loader
            assert isinstance(loader, _LateLoader)
            loader.load(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _KNOWN_BEFORE:
            self.__dict__  # noqa: B018 - load it first, so that what is set stays
        ModuleType.__setattr__(self, name, value)
