"""The implementations of scatter, one file each, and the table that orders them."""

from __future__ import annotations

from tvm_scatter.strategy import OpStrategy, register_strategy, strategy_for


def register_strategies() -> None:
    """Build the tables for llvm and cuda, unless they are there already."""
    if strategy_for("llvm") is not None:
        return
    _register_llvm()
    _register_cuda()


def _register_llvm() -> None:
    from tvm_scatter.strategies.llvm.sequential import Sequential

    llvm = register_strategy(OpStrategy("llvm"))
    llvm.add_implementation(Sequential(), plevel=1)


def _register_cuda() -> None:
    from tvm_scatter.strategies.cuda.check import check_indices
    from tvm_scatter.strategies.cuda.parallel_injective import ParallelInjective
    from tvm_scatter.strategies.cuda.sequential import Sequential
    from tvm_scatter.strategies.cuda.sort_based import SortBased

    cuda = register_strategy(OpStrategy("cuda", device_check=check_indices))
    cuda.add_implementation(ParallelInjective(), plevel=20)
    cuda.add_implementation(SortBased(), plevel=15)
    cuda.add_implementation(Sequential(), plevel=1)
