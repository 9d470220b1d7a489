"""Sequential: updates applied in order, one thread for each batch. The meaning of scatter itself."""

from __future__ import annotations

from tvm.tirx.script import builder as T

from tvm_scatter.emission import Operands
from tvm_scatter.strategies.llvm import loops
from tvm_scatter.strategy import Config, Implementation


class Sequential(Implementation):
    """All updates of a batch in order; the last one wins."""

    name = "sequential"
    deterministic = True
    summary = "few updates, or many batches"

    def emit(self, operands: Operands, config: Config) -> None:
        sizes, problem = operands.sizes, operands.problem
        loops.copy_data(operands)
        with T.parallel(sizes.batch) as b:
            with T.serial(sizes.count) as k:
                with T.serial(sizes.slice) as s:
                    place, valid = loops.destination(operands, b, k, s)
                    with T.If(valid):
                        with T.Then():
                            at = loops.out_position(operands, b, place, s)
                            old = operands.out[at]
                            update = loops.update_value(operands, b, k, s)
                            value = loops.combine(problem.reduction, problem.data_dtype, old, update)
                            T.buffer_store(operands.out, value, [at])
