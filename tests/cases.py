"""Scatters as literal tables: what goes in and what must come out, to be read by eye.

``elements`` is one index for each update element along ``axis``; ``nd`` is one tuple of indices for
each update row; ``put`` is one index tensor for each of some axes. Updates out of
range are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd
from tvm_scatter.problem.reductions import DATA_DTYPES, FLOATS, INTEGERS

NUMBERS = (*FLOATS, *INTEGERS)
SIGNED = (*FLOATS, *(dtype for dtype in INTEGERS if dtype.startswith("i")))
SIGNED_INTEGERS = tuple(dtype for dtype in INTEGERS if dtype.startswith("i"))
T, F = True, False


@dataclass(frozen=True)
class Case:
    """One scatter and its result.

    Attributes
    ----------
    form : str
        ``elements``, ``nd`` or ``put``.
    data, index, updates, expected : nested lists
        ``index`` is a tuple of them for ``put``.
    options : dict
        Arguments of the operator: axis or axes, include_self, wrap_negative, unique.
    dtypes : tuple of str
        Data types for which the numbers hold.
    shapes : dict
        Shapes of empty operands, which lists cannot say.
    """

    form: str
    reduction: str
    data: Any
    index: Any
    updates: Any
    expected: Any
    options: dict[str, Any]
    dtypes: tuple[str, ...] = DATA_DTYPES
    shapes: Any = None

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order of the updates."""
        return self.reduction == "update" and not self.options.get("unique", False)

    @property
    def has_negative_index(self) -> bool:
        """Whether unsigned index types cannot hold the index."""
        return any((np.asarray(index, np.int64) < 0).any() for index in self._indices)

    @property
    def _indices(self) -> tuple[Any, ...]:
        return self.index if isinstance(self.index, tuple) else (self.index,)

    def arrays(self, dtype: str, index_dtype: str) -> list[np.ndarray[Any, Any]]:
        """Data, indices and updates."""
        shapes = self.shapes or {}
        data = self._array(self.data, dtype, shapes.get("data"))
        updates = self._array(self.updates, dtype, shapes.get("updates"))
        indices = [self._array(index, index_dtype, shapes.get("index")) for index in self._indices]
        return [data, *indices, updates]

    def result(self, dtype: str) -> np.ndarray[Any, Any]:
        """What must come out."""
        return self._array(self.expected, dtype, (self.shapes or {}).get("data"))

    @staticmethod
    def _array(value: Any, dtype: str, shape: Any) -> np.ndarray[Any, Any]:
        if dtype == "bfloat16":
            import ml_dtypes

            array = np.asarray(value, np.float64).astype(ml_dtypes.bfloat16)
        else:
            array = np.asarray(value).astype(dtype)
        return array if shape is None else array.reshape(shape)

    def build(self, *parameters: Any) -> Any:
        """The operator applied to Relax parameters."""
        data, *indices, updates = parameters
        if self.form == "elements":
            return scatter_elements(
                data, indices[0], updates, reduction=self.reduction, **self.options
            )
        if self.form == "nd":
            return scatter_nd(data, indices[0], updates, self.reduction, **self.options)
        return index_put(data, indices, updates, reduction=self.reduction, **self.options)


def elements(
    data: Any, index: Any, updates: Any, reduction: str, expected: Any, **more: Any
) -> Case:
    """One index for each update element."""
    return _case("elements", data, index, updates, reduction, expected, more)


def nd(data: Any, index: Any, updates: Any, reduction: str, expected: Any, **more: Any) -> Case:
    """One tuple of indices for each update row."""
    return _case("nd", data, index, updates, reduction, expected, more)


def put(data: Any, index: Any, updates: Any, reduction: str, expected: Any, **more: Any) -> Case:
    """One index tensor for each of some axes."""
    return _case("put", data, index, updates, reduction, expected, more)


def _case(
    form: str, data: Any, index: Any, updates: Any, reduction: str, expected: Any, more: Any
) -> Case:
    dtypes = more.pop("dtypes", NUMBERS)
    shapes = more.pop("shapes", None)
    return Case(form, reduction, data, index, updates, expected, more, dtypes, shapes)


CASES: dict[str, Case] = {
    # One axis: index i says where update i goes. Two updates meet at 0, none reaches 3.
    "update_last_wins": elements([1, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8], "update", [7, 6, 8, 4]),
    "add": elements([1, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8], "add", [13, 8, 11, 4]),
    "mul": elements([1, 2, 3, 4], [0, 1, 0, 2], [5, 2, 2, 3], "mul", [10, 4, 9, 4]),
    "min": elements([6, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8], "min", [5, 2, 3, 4]),
    "max": elements([6, 2, 9, 4], [0, 1, 0, 2], [5, 6, 7, 8], "max", [7, 6, 9, 4]),
    "mean": elements([3, 2, 4, 4], [0, 1, 0, 2], [5, 6, 7, 8], "mean", [5, 4, 6, 4]),
    # Without the data: what was there is forgotten wherever an update arrives.
    "add_alone": elements(
        [1, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8], "add", [12, 6, 8, 4], include_self=False
    ),
    "mul_alone": elements(
        [9, 2, 3, 4], [0, 1, 0, 2], [5, 2, 2, 3], "mul", [10, 2, 3, 4], include_self=False
    ),
    "min_alone": elements(
        [1, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8], "min", [5, 6, 8, 4], include_self=False
    ),
    "max_alone": elements(
        [9, 9, 9, 4], [0, 1, 0, 2], [5, 6, 7, 8], "max", [7, 6, 8, 4], include_self=False
    ),
    "mean_alone": elements(
        [9, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8], "mean", [6, 6, 8, 4], include_self=False
    ),
    "unique_update": elements([1, 2, 3, 4], [3, 0], [5, 6], "update", [6, 2, 3, 5], unique=True),
    "unique_add": elements([1, 2, 3, 4], [3, 0], [5, 6], "add", [7, 2, 3, 9], unique=True),
    "unique_mean": elements([2, 2, 3, 4], [3, 0], [6, 6], "mean", [4, 2, 3, 5], unique=True),
    "unique_mean_alone": elements(
        [2, 2, 3, 4], [3, 0], [6, 6], "mean", [6, 2, 3, 6], unique=True, include_self=False
    ),
    # A mean of integers rounds down: (-7 + 0 + 0) / 3, (5 + 2) / 2, (-1 + -2) / 2.
    "mean_rounds_down": elements(
        [-7, 5, -1], [0, 0, 1, 2], [0, 0, 2, -2], "mean", [-3, 3, -2], dtypes=SIGNED_INTEGERS
    ),
    "mean_of_floats": elements(
        [-7, 5, -1], [0, 1, 2], [0, 2, -2], "mean", [-3.5, 3.5, -1.5], dtypes=FLOATS
    ),
    # Negative indices count from the end if asked to, and are out of range if not.
    "wrap": elements(
        [1, 2, 3], [-1, -3, 1], [5, 6, 7], "update", [6, 7, 5], wrap_negative=True
    ),
    "no_wrap": elements([1, 2, 3], [-1, 1, 0], [5, 6, 7], "update", [7, 6, 3]),
    "dropped": elements(
        [1, 2, 3], [3, -4, 1, 127, -128], [5, 6, 7, 8, 9], "add", [1, 9, 3], wrap_negative=True
    ),
    "dropped_alone": elements(
        [1, 2, 3], [3, 1, -1], [5, 6, 7], "add", [1, 6, 3], include_self=False
    ),
    # Not numbers, and numbers at the ends.
    "nan_min": elements(
        [1, nan, 3, 4], [0, 1, 2, 2, 2], [nan, 2, 1, nan, 0], "min", [nan, nan, nan, 4],
        dtypes=FLOATS,
    ),
    "nan_max": elements(
        [1, nan, 3, 4], [0, 1, 2, 2, 2], [nan, 2, 1, nan, 9], "max", [nan, nan, nan, 4],
        dtypes=FLOATS,
    ),
    "nan_max_alone": elements(
        [nan, nan, 3, 4], [0, 2, 2], [1, nan, 9], "max", [1, nan, nan, 4],
        dtypes=FLOATS, include_self=False,
    ),
    "nan_update": elements(
        [1, nan, 3], [0, 1, 2], [nan, inf, -inf], "update", [nan, inf, -inf], dtypes=FLOATS
    ),
    "infinity_add": elements(
        [inf, inf, 1, -inf], [0, 1, 2, 3], [1, -inf, inf, 2], "add", [inf, nan, inf, -inf],
        dtypes=FLOATS,
    ),
    "infinity_min": elements(
        [inf, 2, inf], [0, 1, 1], [inf, -inf, 3], "min", [inf, -inf, inf], dtypes=FLOATS
    ),
    "infinity_min_alone": elements(
        [0, 2, 5], [0, 1, 1], [inf, inf, inf], "min", [inf, inf, 5],
        dtypes=FLOATS, include_self=False,
    ),
    "overflow_int8": elements(
        [127, -128, 100], [0, 1, 2, 2], [1, -1, 100, 100], "add", [-128, 127, 44],
        dtypes=("int8",),
    ),
    "overflow_uint8": elements(
        [255, 16, 1], [0, 1, 2], [2, 17, 255], "mul", [254, 16, 255], dtypes=("uint8",)
    ),
    "overflow_int32": elements(
        [2**31 - 1, -(2**31), 65536], [0, 1, 2], [1, -1, 65536], "add",
        [-(2**31), 2**31 - 1, 131072], dtypes=("int32",),
    ),
    "overflow_int64": elements(
        [2**63 - 1, 2**32, 3], [0, 1, 2], [2, 2**32, 5], "mul", [-2, 0, 15], dtypes=("int64",)
    ),
    "extremes_int64": elements(
        [2**63 - 1, 0, 0], [0, 1, 2], [-(2**63), 2**63 - 1, 2**53 + 1], "max",
        [2**63 - 1, 2**63 - 1, 2**53 + 1], dtypes=("int64",),
    ),
    "extremes_uint32": elements(
        [2**32 - 1, 0, 5], [0, 1, 2], [0, 2**32 - 1, 2**31], "max",
        [2**32 - 1, 2**32 - 1, 2**31], dtypes=("uint32",),
    ),
    # Truth values: a sum or maximum is "any", a product or minimum is "all".
    "bool_update": elements([T, F, T], [0, 1], [F, T], "update", [F, T, T], dtypes=("bool",)),
    "bool_add": elements([T, F, F], [0, 1, 1], [F, T, T], "add", [T, T, F], dtypes=("bool",)),
    "bool_mul": elements([T, T, F], [0, 1, 2], [F, T, T], "mul", [F, T, F], dtypes=("bool",)),
    "bool_min": elements([T, T, F], [0, 1, 2], [F, T, T], "min", [F, T, F], dtypes=("bool",)),
    "bool_max_alone": elements(
        [T, T, F], [0, 0, 2], [F, F, T], "max", [F, T, T], dtypes=("bool",), include_self=False
    ),
    # Axes.
    "axis_0": elements(
        [[1, 2], [3, 4], [5, 6]], [[0, 2], [2, 2]], [[10, 20], [30, 40]], "add",
        [[11, 2], [3, 4], [35, 66]],
    ),
    "axis_1": elements(
        [[1, 2, 3], [4, 5, 6]], [[0, 2], [1, 1]], [[10, 20], [30, 40]], "add",
        [[11, 2, 23], [4, 75, 6]], axis=1,
    ),
    "axis_last_update": elements(
        [[1, 2, 3], [4, 5, 6]], [[0, 0], [2, 1]], [[7, 8], [9, 10]], "update",
        [[8, 2, 3], [4, 10, 9]], axis=-1,
    ),
    "axis_middle": elements(
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], [[[1, 0]], [[0, 0]]], [[[10, 20]], [[30, 40]]],
        "max", [[[1, 20], [10, 4]], [[30, 40], [7, 8]]], axis=1,
    ),
    "mean_axis_1": elements(
        [[1, 2, 3], [4, 5, 6]], [[0, 0], [1, 2]], [[4, 4], [9, 10]], "mean",
        [[3, 2, 3], [4, 7, 8]], axis=1,
    ),
    # Boxes: an index smaller than the data off the axis, and updates larger than the index.
    "box_smaller_than_data": elements(
        [[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[2, 0]], [[10, 20]], "update",
        [[1, 20, 3], [4, 5, 6], [10, 8, 9]],
    ),
    "box_smaller_than_data_mean": elements(
        [[1, 2, 3], [4, 5, 6]], [[0], [0]], [[3], [4]], "mean", [[2, 2, 3], [4, 5, 6]], axis=1
    ),
    "updates_larger_than_box": elements(
        [1, 2, 3], [2, 0], [10, 20, 30, 40], "add", [21, 2, 13]
    ),
    "updates_larger_off_axis": elements(
        [[1, 2], [3, 4]], [[1, 0]], [[10, 20, 30], [40, 50, 60]], "add", [[1, 22], [13, 4]]
    ),
    "scalar_updates": elements([[1, 2], [3, 4]], [[1, 0]], 9, "update", [[1, 9], [9, 4]]),
    # Ranks and sizes at the edge.
    "rank_0": elements(1, 0, 5, "add", 6),
    "rank_0_update": elements(1, 0, 5, "update", 5),
    "no_updates": elements([1, 2], [], [], "add", [1, 2]),
    "no_data": elements(
        [], [], [], "update", [], dtypes=("float32", "int64"),
        shapes={"data": (0, 3), "index": (0, 3), "updates": (0, 3)},
    ),
    "one_into_one": elements([3], [0], [4], "mul", [12]),
    # scatter_nd: the last axis of the index runs over the components.
    "nd_elements": nd([[1, 2], [3, 4]], [[0, 1], [1, 0], [0, 1]], [10, 20, 30], "add",
                      [[1, 42], [23, 4]]),
    "nd_rows": nd([[1, 2], [3, 4], [5, 6]], [[2], [0], [2]], [[7, 8], [9, 10], [11, 12]], "update",
                  [[9, 10], [3, 4], [11, 12]]),
    "nd_wrap": nd([[1, 2], [3, 4]], [[-1, -2], [0, -1]], [10, 20], "max", [[1, 20], [10, 4]]),
    "nd_dropped": nd([[1, 2], [3, 4]], [[0, 2], [2, 0], [1, 1]], [10, 20, 30], "add",
                     [[1, 2], [3, 34]]),
    "nd_box_of_tuples": nd([1, 2, 3], [[[0], [1]], [[2], [0]]], [[10, 20], [30, 40]], "add",
                           [51, 22, 33]),
    "nd_mean": nd([[1, 2], [3, 4]], [[0], [0]], [[3, 4], [5, 3]], "mean", [[3, 3], [3, 4]]),
    # index_put: rows, pairs, an axis in the middle, values that broadcast.
    "put_rows": put([[1, 2], [3, 4], [5, 6]], ([2, 0, 2],), [[7, 8], [9, 10], [11, 12]], "update",
                    [[9, 10], [3, 4], [11, 12]]),
    "put_rows_add": put([[1, 2], [3, 4], [5, 6]], ([2, 0, 2],), [[7, 8], [9, 10], [11, 12]], "add",
                        [[10, 12], [3, 4], [23, 26]]),
    "put_rows_min_alone": put([[1, 2], [3, 4], [5, 6]], ([2, 0, 2],), [[7, 8], [9, 10], [6, 12]],
                              "min", [[9, 10], [3, 4], [6, 8]], include_self=False),
    "put_rows_mean": put([[1, 2], [3, 4], [5, 6]], ([2, 2],), [[7, 8], [9, 10]], "mean",
                         [[1, 2], [3, 4], [7, 8]]),
    "put_columns": put([[1, 2, 3], [4, 5, 6]], ([2, 0, 2],), [[1, 1, 1], [2, 2, 2]], "add",
                       [[2, 2, 5], [6, 5, 10]], axes=[1]),
    "put_pairs": put([[1, 2], [3, 4]], ([0, 1, 0], [1, 0, 1]), [10, 20, 30], "add",
                     [[1, 42], [23, 4]]),
    "put_pairs_wrap": put([[1, 2], [3, 4]], ([-1, 0], [0, -1]), [7, 8], "update", [[1, 8], [7, 4]]),
    "put_box": put([[1, 2], [3, 4]], ([[0], [1]], [0, 1]), [[5, 6], [7, 8]], "update",
                   [[5, 6], [7, 8]]),
    "put_apart": put([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], ([0, 1], [1, 0]),
                     [[10, 20], [30, 40]], "add",
                     [[[1, 12], [3, 24]], [[35, 6], [47, 8]]], axes=[0, 2]),
    "put_value": put([[1, 2], [3, 4]], ([1],), 9, "update", [[1, 2], [9, 9]]),
    "put_value_per_row": put([[1, 2], [3, 4]], ([1, 0],), [[5], [6]], "add", [[7, 8], [8, 9]]),
    "put_value_per_column": put([[1, 2], [3, 4]], ([1, 1],), [5, 6], "add", [[1, 2], [13, 16]]),
    "put_dropped": put([[1, 2], [3, 4]], ([2, -3, 1],), [[5, 5], [6, 6], [7, 7]], "add",
                       [[1, 2], [10, 11]]),
    "put_bool": put([[T, F], [F, F]], ([1, 1],), [[T, F], [F, F]], "add", [[T, F], [T, F]],
                    dtypes=("bool",)),
    "put_columns_max": put([[1, 2, 3], [9, 5, 6]], ([1, 1, 0],), [[7, 4, 0], [4, 8, 1]], "max",
                           [[1, 7, 3], [9, 8, 6]], axes=[1]),
    "put_columns_alone": put([[1, 2, 3], [9, 5, 6]], ([2, 2, 0],), [[7, 4, 0], [4, 8, 1]], "min",
                             [[0, 2, 4], [1, 5, 4]], axes=[1], include_self=False),
    "put_columns_mean": put([[1, 2, 3], [4, 5, 6]], ([2, 2],), [[5, 7], [8, 10]], "mean",
                            [[1, 2, 5], [4, 5, 8]], axes=[1]),
    "put_columns_dropped": put([[1, 2], [3, 4]], ([2, 0, -3],), [[5, 6, 7], [8, 9, 1]], "add",
                               [[7, 2], [12, 4]], axes=[1]),
}  # fmt: skip
