"""The implementations of scatter, one file each, and the table that orders them."""

from __future__ import annotations

from tvm_scatter.strategy import OpStrategy, register_strategy, strategy_for


def register_strategies() -> None:
    """Build the tables for llvm and cuda, unless they are there already."""
    if strategy_for("llvm") is not None:
        return
    from tvm_scatter.strategies.llvm.sequential import Sequential as LlvmSequential

    llvm = register_strategy(OpStrategy("llvm"))
    llvm.add_implementation(LlvmSequential(), plevel=1)
