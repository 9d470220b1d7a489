"""Passes of TVM's pipelines over functions, in place of which others run."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx

from tvm_scatter.options import current_options

_STOCK = "_tvm_scatter_stock"


class ReplacedPass:
    """A pass that TVM's pipelines look up when they run.

    Parameters
    ----------
    name : str
        Its name in ``tvm.tirx.transform``.
    changed : function from pass to pass
        What runs in its place where options do not switch this package off, given TVM's own pass.
    """

    def __init__(
        self, name: str, changed: Callable[[tvm.transform.Pass], tvm.transform.Pass]
    ) -> None:
        self.name, self.changed = name, changed

    def install(self) -> None:
        """Let TVM find the other one. Calling it again changes nothing."""
        stock = self._stock()

        def make() -> tvm.transform.Pass:
            return self.changed(stock()) if current_options().enabled else stock()

        setattr(make, _STOCK, stock)
        setattr(tirx.transform, self.name, make)

    def uninstall(self) -> None:
        """Restore TVM's own pass."""
        setattr(tirx.transform, self.name, self._stock())

    def _stock(self) -> Callable[[], tvm.transform.Pass]:
        # After a reload of this package, an older wrapper may be installed: unwrap it.
        installed = getattr(tirx.transform, self.name)
        stock: Callable[[], tvm.transform.Pass] = getattr(installed, _STOCK, installed)
        return stock
