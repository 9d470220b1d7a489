"""Slices whose size PyTorch knows better, and views of nothing: TVM cannot compile the shapes."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import same_shape, shape_of
from tvm_scatter.ops.shapes import is_empty, no_elements

from .call import TorchCall
from .sizes import known_size


def slice_tensor(call: TorchCall) -> Any:
    """``slice`` with a symbolic start or end, or of a symbolic size."""
    data, start, end = call["self"], call["start"], call["end"]
    shape = shape_of(data)
    axis = call.axis(call["dim"], len(shape))
    if all(bound is None or isinstance(bound, int) for bound in (start, end, shape[axis])):
        return None
    size, step = known_size(call, axis), call["step"]
    if size is None or not isinstance(step, int):
        return None
    wanted = [*shape[:axis], size, *shape[axis + 1 :]]
    start = 0 if start is None else start
    if isinstance(start, int) and start == 0 and step == 1 and same_shape(wanted, shape):
        return data

    def part(data: te.Tensor, start: Any, size: Any) -> te.Tensor:
        from_end = tirx.max(start + data.shape[axis], tirx.IntImm("int64", 0))
        first = tirx.Select(start < 0, from_end, start)

        def at(*place: Any) -> Any:
            return data(*place[:axis], first + place[axis] * step, *place[axis + 1 :])

        return te.compute([*data.shape[:axis], size, *data.shape[axis + 1 :]], at, name="part")

    start = tirx.IntImm("int64", start) if isinstance(start, int) else start
    return call.compute(part, data, start, size, name="part")


def unsqueeze(call: TorchCall) -> Any:
    """``unsqueeze`` of no elements, whose shape TVM cannot divide."""
    data = call["self"]
    if not is_empty(data):
        return None
    shape = list(shape_of(data))
    shape.insert(call.axis(call["dim"], len(shape) + 1), 1)
    return call.emit(no_elements(relax.TensorType(shape, data.ty.dtype)))
