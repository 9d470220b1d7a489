"""The implementations of scatter, one file each, and the table that orders them."""

from __future__ import annotations

from tvm_scatter.selection.strategy import OpStrategy, register_strategy, strategy_for


def register_strategies() -> None:
    """Build the tables for llvm and cuda, unless they are there already."""
    if strategy_for("llvm") is not None:
        return
    _register_llvm()
    _register_cuda()


def _register_llvm() -> None:
    from tvm_scatter.strategies.llvm.backend import LLVM
    from tvm_scatter.strategies.llvm.ordered import Ordered
    from tvm_scatter.strategies.llvm.parallel_injective import ParallelInjective
    from tvm_scatter.strategies.llvm.partitioned import Partitioned
    from tvm_scatter.strategies.llvm.private_bins import PrivateBins
    from tvm_scatter.strategies.llvm.sequential import Sequential
    from tvm_scatter.strategies.llvm.sort_based import SortBased
    from tvm_scatter.strategies.llvm.widened import Widened

    llvm = register_strategy(OpStrategy(LLVM))
    llvm.add_implementation(PrivateBins(), plevel=30)
    llvm.add_implementation(Ordered(), plevel=27)
    llvm.add_implementation(Partitioned(), plevel=25)
    llvm.add_implementation(ParallelInjective(), plevel=20)
    llvm.add_implementation(SortBased(), plevel=15)
    llvm.add_implementation(Widened(), plevel=5)
    llvm.add_implementation(Sequential(), plevel=1)


def _register_cuda() -> None:
    from tvm_scatter.strategies.cuda.backend import CUDA
    from tvm_scatter.strategies.cuda.bucketed import Bucketed
    from tvm_scatter.strategies.cuda.column_resident import ColumnResident
    from tvm_scatter.strategies.cuda.common_index import CommonIndex
    from tvm_scatter.strategies.cuda.gather_form import GatherForm
    from tvm_scatter.strategies.cuda.grouped import Grouped
    from tvm_scatter.strategies.cuda.lane_bins import LaneBins
    from tvm_scatter.strategies.cuda.ordered import Ordered
    from tvm_scatter.strategies.cuda.owned_rows import OwnedRows
    from tvm_scatter.strategies.cuda.owned_softmax import OwnedSoftmax
    from tvm_scatter.strategies.cuda.parallel_injective import ParallelInjective
    from tvm_scatter.strategies.cuda.partitioned import Partitioned
    from tvm_scatter.strategies.cuda.patched import Patched
    from tvm_scatter.strategies.cuda.row_resident import RowResident
    from tvm_scatter.strategies.cuda.segmented import Segmented
    from tvm_scatter.strategies.cuda.sequential import Sequential
    from tvm_scatter.strategies.cuda.shared_bins import SharedBins
    from tvm_scatter.strategies.cuda.sort_based import SortBased
    from tvm_scatter.strategies.cuda.split_bins import SplitBins
    from tvm_scatter.strategies.cuda.tiled import Tiled

    cuda = register_strategy(OpStrategy(CUDA))
    cuda.add_implementation(LaneBins(), plevel=55)
    cuda.add_implementation(SharedBins(), plevel=50)
    cuda.add_implementation(RowResident(), plevel=45)
    cuda.add_implementation(GatherForm(), plevel=40)
    cuda.add_implementation(Partitioned(), plevel=35)
    cuda.add_implementation(Ordered(), plevel=34)
    cuda.add_implementation(Bucketed(), plevel=33)
    cuda.add_implementation(Grouped(), plevel=32)
    cuda.add_implementation(Segmented(), plevel=30)
    cuda.add_implementation(ParallelInjective(), plevel=20)
    cuda.add_implementation(SortBased(), plevel=15)
    cuda.add_implementation(CommonIndex(), plevel=7)
    cuda.add_implementation(ColumnResident(), plevel=6)
    cuda.add_implementation(SplitBins(), plevel=5)
    cuda.add_implementation(Tiled(), plevel=4)
    cuda.add_implementation(Patched(), plevel=3)
    cuda.add_implementation(OwnedRows(), plevel=2)
    cuda.add_implementation(OwnedSoftmax(), plevel=2)
    cuda.add_implementation(Sequential(), plevel=1)
