"""What each operator of Relax makes of what is known of its operands: a table with a rule for each.

A rule returns facts that hold if the type of the result can hold the range that it names.
"""

from __future__ import annotations

from tvm_scatter.lowering.reads import STOCK_OPERATORS as STOCK_READS
from tvm_scatter.ops.compaction import TRUE_POSITIONS
from tvm_scatter.ops.expectations import (
    EXPECT_COUNT,
    EXPECT_INDICES,
    EXPECT_NUMBERS,
    EXPECT_SIZES,
)
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS, SCATTER_ND
from tvm_scatter.ops.read_ops import NAMES as READS

from . import accesses, elementwise, parts, sorting, values
from .rule import Rule

_VIEWS = ("expand_dims", "flatten", "reshape", "squeeze")
_BINARY = (
    *("add", "bitwise_and", "divide", "floor_divide", "floor_mod", "maximum", "minimum", "mod"),
    *("multiply", "subtract"),
)
_FILLING = ("full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
_UNARY = ("abs", "bitwise_not", "negative")

#: The rule for each operator. Of the result of another one, only its type is known.
RULES: dict[str, Rule] = {
    "relax.arange": values.arange,
    "relax.argsort": sorting.argsort,
    "relax.astype": elementwise.cast,
    "relax.broadcast_to": parts.broadcast,
    "relax.bucketize": sorting.bucketize,
    "relax.clip": elementwise.clip,
    "relax.concat": parts.concat,
    "relax.cumsum": sorting.cumsum,
    "relax.flip": parts.flip,
    "relax.nonzero": sorting.nonzero,
    "relax.permute_dims": parts.permute,
    "relax.repeat": parts.repeat,
    "relax.sort": sorting.sort,
    "relax.split": parts.split,
    "relax.stack": parts.stack,
    "relax.strided_slice": parts.strided_slice,
    "relax.tile": parts.tile,
    "relax.topk": sorting.topk,
    "relax.where": elementwise.elementwise("either", slice(1, 3)),
    TRUE_POSITIONS: sorting.true_positions,
    EXPECT_COUNT: parts.first_operand,
    EXPECT_INDICES: parts.checked_index,
    EXPECT_NUMBERS: parts.first_operand,
    EXPECT_SIZES: parts.first_operand,
    **{f"relax.{name}": parts.reshape for name in _VIEWS},
    **{f"relax.{name}": elementwise.elementwise(name) for name in (*_BINARY, *_UNARY)},
    **{f"relax.{name}": values.filled for name in _FILLING},
    **dict.fromkeys((*STOCK_READS, *READS), accesses.read),
    **dict.fromkeys((INDEX_PUT, SCATTER_ELEMENTS, SCATTER_ND), accesses.scatter),
}
