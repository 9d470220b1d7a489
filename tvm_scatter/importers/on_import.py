"""Runs a function when another module is imported, without importing that module now.

TVM's importers need PyTorch and ONNX, which are optional and slow to import. So the importers are
extended only when they are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], None]


class _Watcher(MetaPathFinder):
    """A finder that adds the actions to the loaders of other finders."""

    def __init__(self, name: str, action: Action) -> None:
        self.name = name
        self.action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Watcher):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                # This loader object serves one module only, so changing it affects no other.
                execute = partial(self._execute, spec.loader.exec_module)
                spec.loader.exec_module = execute  # type: ignore[method-assign]
                return spec
        return None

    def _execute(self, execute: Action, module: ModuleType) -> None:
        execute(module)
        self.action(module)


_watchers: dict[str, _Watcher] = {}


def when_imported(name: str, action: Action) -> None:
    """Call ``action`` with the module ``name``: now if it is imported, else as soon as it is."""
    forget(name)
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    _watchers[name] = _Watcher(name, action)
    sys.meta_path.insert(0, _watchers[name])


def forget(name: str) -> None:
    """Remove the action that :func:`when_imported` has registered for a module."""
    watcher = _watchers.pop(name, None)
    if watcher in sys.meta_path:
        sys.meta_path.remove(watcher)
