"""Installs the changes into TVM's tuner, and removes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.s_tir.meta_schedule import relax_integration, tir_integration
from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.runner import LocalRunner, RPCRunner

from . import arguments
from .as_it_is import MeasureOnce, is_scheduled, only_design

#: TVM's modules that create tuning tasks, for Relax modules and for single functions.
_MAKE_TASKS = (relax_integration, tir_integration)
#: Functions that allocate arguments, for runners whose caller names none.
_RUNNERS: dict[Any, Callable[..., Any]] = {
    LocalRunner: arguments.local_arguments,
    RPCRunner: arguments.rpc_arguments,
}
_STOCK = "_tvm_scatter_stock"


def install_tuner() -> None:
    """Change how TVM's tuner measures functions. Calling it again changes nothing."""
    for module in _MAKE_TASKS:
        module.TuneContext = _with_designs_as_they_are(module.TuneContext)
    for runner, allocate in _RUNNERS.items():
        runner._cls.__init__ = _with_arguments(runner._cls.__init__, allocate)
    XGBModel._cls.update = _of_what_is_searched(XGBModel._cls.update)


def uninstall_tuner() -> None:
    """Restore TVM's tuner."""
    for module in _MAKE_TASKS:
        module.TuneContext = _stock(module.TuneContext)
    for runner in _RUNNERS:
        runner._cls.__init__ = _stock(runner._cls.__init__)
    XGBModel._cls.update = _stock(XGBModel._cls.update)


def _stock(function: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(function, _STOCK, function)


def _with_designs_as_they_are(context: Callable[..., Any]) -> Callable[..., Any]:
    # After a reload of this package, an older wrapper may be installed: unwrap it.
    stock = _stock(context)

    def make(mod: Any = None, **settings: Any) -> Any:
        # A space object from the caller is kept; only named kinds of spaces are replaced.
        if isinstance(settings.get("space_generator"), str) and is_scheduled(mod):
            settings |= {"space_generator": only_design(), "search_strategy": MeasureOnce()}
        return stock(mod, **settings)

    setattr(make, _STOCK, stock)
    return make


def _with_arguments(init: Callable[..., None], allocate: Callable[..., Any]) -> Callable[..., None]:
    stock = _stock(init)

    def init_with_arguments(self: Any, *args: Any, **kwargs: Any) -> None:
        # Imported here, because it is an optional dependency that every runner imports anyway.
        from cloudpickle import register_pickle_by_value

        stock(self, *args, **kwargs)
        if self.f_alloc_argument is None:
            register_pickle_by_value(arguments)
            self.f_alloc_argument = allocate

    setattr(init_with_arguments, _STOCK, stock)
    return init_with_arguments


def _of_what_is_searched(update: Callable[..., None]) -> Callable[..., None]:
    stock = _stock(update)

    def update_if_searched(self: Any, context: Any, candidates: Any, results: Any) -> None:
        # A single design needs no prediction, and TVM's features need loops of constant length.
        if not is_scheduled(context.mod):
            stock(self, context, candidates, results)

    setattr(update_if_searched, _STOCK, stock)
    return update_if_searched
