"""Writes random messages in Relax, from the result backwards, so that every operator is needed.

The axes of a tensor are letters: ``n`` for nodes, ``e`` for edges, ``h`` and ``w`` for heads and
columns, ``1`` for an axis of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from softmax_programs import Attention, emit_attention
from tvm import relax

from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd
from tvm_scatter.ops.read_ops import index as index_read
from tvm_scatter.problem.reductions import FLOATS

#: The axes of the data, and of the updates that are scattered along its nodes.
_SHAPES = (("nw", "ew"), ("nw", "ew"), ("n", "e"), ("nhw", "ehw"), ("wn", "we"), ("nwh", "ewh"))

#: The axes of values that are weighted by a softmax, and of their logits.
_ATTENTIONS = (("ehw", "eh"), ("ehw", "eh"), ("ew", "e"), ("ew", "ew"), ("e", "e"))

#: Types of indices; most models have the first.
_INDICES = ("int64", "int64", "int32", "int8", "uint8")
_WHOLE = (
    *("negative", "abs", "sign", "square", "relu", "double", "floor", "ceil", "trunc", "round"),
)
_INTEGER = ("abs", "square", "double", "half", "rest", "bits", "other bits")
_REAL = (
    *("negative", "abs", "square", "relu", "leakyrelu", "exp", "tanh", "sigmoid", "sin", "cos"),
    *("gelu", "silu", "reciprocal", "root", "inverse root", "logarithm", "power", "erf"),
)


@dataclass(frozen=True)
class Style:
    """What a program computes with.

    Attributes
    ----------
    dtype : str
        The type of data and messages.
    reduction : str
        How all its scatters reduce.
    whole : bool
        Whether all numbers are small and whole, so that every order of adding gives the same.
        If not, functions such as ``exp`` are used, and nothing that jumps where they are rounded.
    limit : int
        The largest absolute value of a message.
    bad : bool
        Whether some indices are out of bounds.
    wraps : bool
        Whether negative indices occur that count from the end.
    nans : bool
        Whether some numbers are none.
    """

    dtype: str
    reduction: str
    whole: bool
    limit: int
    bad: bool
    wraps: bool
    nans: bool

    @staticmethod
    def draw(
        random: Random, dtypes: tuple[str, ...], bounds: str, reduction: str, nans: bool
    ) -> Style:
        """A style in which whole numbers are neither rounded nor overflow when reduced."""
        dtype = random.choice(dtypes)
        precise = dtype in ("float32", "float64")
        return Style(
            dtype=dtype,
            reduction=reduction,
            whole=not precise or random.random() < 0.6,
            limit=1 if reduction == "mul" else (4 if precise else 2),
            bad=bounds != "trust" and random.random() < (0.3 if bounds == "raise" else 0.6),
            wraps=random.random() < 0.5,
            # GPUs saturate what is limited to 0 and 1, and so give 0 for a NaN where others give 1.
            nans=nans and dtype in FLOATS and reduction != "mul",
        )

    @property
    def least(self) -> int:
        """The smallest value of a message."""
        return 0 if self.dtype.startswith("u") else -self.limit


@dataclass(frozen=True)
class Leaf:
    """A parameter.

    Attributes
    ----------
    kind : str
        ``value``, ``mask``, or the axis that its indices address.
    """

    var: Any
    axes: str
    kind: str


class MessageWriter:
    """Emits the operators of a program.

    Attributes
    ----------
    leaves : list of Leaf
        The parameters that it needs.
    """

    def __init__(
        self,
        random: Random,
        builder: relax.BlockBuilder,
        style: Style,
        sizes: dict[str, Any],
        softmax: bool = True,
    ) -> None:
        self._softmax = softmax
        self._random, self._builder = random, builder
        self._style, self._sizes = style, sizes
        self.leaves: list[Leaf] = []
        self._made: dict[str, list[Any]] = {}
        self._left = 0

    def program(self) -> Any:
        """One or several scatters, and what else is returned."""
        random = self._random
        data_axes, axes = random.choice(_SHAPES)
        for each in (data_axes, axes):
            # Every size is that of a parameter.
            self._leaf(each)
        data = self._data(data_axes)
        message = self._message(axes)
        results = [self._scatter(data, data_axes, message, axes)]
        all_axes = [data_axes]
        if self._chance(0.3):
            # Another scatter: of the same message, of a part of it, or of one that reads the first.
            first = self._whole_again(results[0])
            self._made.setdefault(data_axes, []).append(first)
            other = random.choice([message, *self._made.get(axes, ())])
            other = other if self._chance(0.5) else self._message(axes)
            into = first if self._chance(0.5) else self._data(data_axes)
            results.append(self._scatter(into, data_axes, other, axes))
            all_axes.append(data_axes)
        real = self._style.dtype in FLOATS and not self._style.whole
        if self._softmax and real and self._chance(0.5):
            attention, attention_axes = self._attention()
            results.append(attention)
            all_axes.append(attention_axes)
        if random.random() < 0.2:
            results.append(random.choice([message, *self._made.get(axes, ())]))
        followed = map(self._followed, results, all_axes)
        return relax.Tuple([*followed, *results[len(all_axes) :]])

    def _followed(self, own: Any, axes: str) -> Any:
        """What a layer computes of what it has scattered."""
        if self._chance(0.2):
            return own
        own = self._whole_again(own)
        value = self._bounded(own)
        self._left = self._random.randint(0, 5)
        while self._left > 0:
            # Sometimes of the scatter's own result once more.
            other = self._chance(0.1) and self._left > 1
            value = self._step(axes, value)
            value = self._emit(relax.op.add(value, own)) if other else value
            value = self._bounded(value)
        if len(axes) == 3 and self._chance(0.5):
            first, *rest = self._shape(axes)
            value = self._emit(relax.op.reshape(value, [first, rest[0] * rest[1]]))
            value = self._emit(relax.op.nn.relu(value)) if self._chance(0.5) else value
        if self._style.whole and self._chance(0.2):
            value = self._emit(relax.op.astype(value, self._random.choice(["float32", "int32"])))
        return value

    def _whole_again(self, result: Any) -> Any:
        """A scatter's result, of which others compute; means of whole numbers are not whole."""
        style = self._style
        if style.reduction == "mean" and style.whole and style.dtype in FLOATS:
            return self._emit(relax.op.round(result))
        return result

    def _attention(self) -> tuple[Any, str]:
        """Messages that are weighted by a softmax over the edges of each node, and their axes."""
        axes, logit_axes = self._random.choice(_ATTENTIONS)
        for each in (axes.replace("e", "n"), axes, logit_axes):
            self._leaf(each)
        kind = Attention(
            dtype=self._style.dtype,
            view=self._random.choice(["expand_dims", "broadcast_to"]),
            tiny=self._random.choice([None, 1e-16]),
            wraps=self._style.wraps,
        )
        logits, values = self._message(logit_axes), self._message(axes)
        index = self._leaf("e", "n", ["int64"])
        nodes = self._sizes["n"]
        found = emit_attention(kind, self._builder, logits, values, index, nodes)
        return found, axes.replace("e", "n")

    def _emit(self, value: Any) -> Any:
        return self._builder.emit(value)

    def _shape(self, axes: str) -> list[Any]:
        return [self._sizes[axis] for axis in axes]

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    # Leaves

    def _new(self, axes: str, kind: str, dtype: str) -> Any:
        name = f"{kind}{len(self.leaves)}"
        var = relax.Var(name, relax.TensorType(self._shape(axes), dtype))
        self.leaves.append(Leaf(var, axes, kind))
        return var

    def _leaf(self, axes: str, kind: str = "value", dtypes: Sequence[str] = ()) -> Any:
        dtypes = dtypes or {"value": [self._style.dtype], "mask": ["bool"]}.get(kind, _INDICES)
        alike = [
            leaf.var
            for leaf in self.leaves
            if (leaf.axes, leaf.kind) == (axes, kind) and str(leaf.var.ty.dtype) in dtypes
        ]
        if alike and self._chance(0.6):
            return self._random.choice(alike)
        return self._new(axes, kind, self._random.choice(dtypes))

    def _data(self, axes: str) -> Any:
        chosen = self._random.randrange(3)
        if chosen == 0:
            return self._emit(relax.op.zeros(self._shape(axes), self._style.dtype))
        data = self._leaf(axes)
        if chosen == 1:
            # An intermediate value, which a scatter may overwrite.
            data = self._emit(relax.op.add(data, relax.const(0, self._style.dtype)))
            self._made.setdefault(axes, []).append(data)
        return data

    # Values

    def _message(self, axes: str) -> Any:
        self._left = self._random.randint(1, 8)
        value = self._value(axes)
        while self._left > 0 and self._chance(0.9):
            value = self._step(axes, value)
        return value

    def _value(self, axes: str) -> Any:
        """A tensor of some axes."""
        known = self._made.get(axes)
        if known and self._chance(0.2):
            return self._random.choice(known)
        if self._left <= 0:
            return self._of_another_type(axes) if self._chance(0.1) else self._leaf(axes)
        return self._step(axes)

    def _of_another_type(self, axes: str) -> Any:
        """A parameter that is stored in another type."""
        if not self._style.whole or self._style.nans:
            return self._leaf(axes)
        stored = self._random.choice(["bfloat16", "float16", "float32"])
        if {stored, self._style.dtype} == {"bfloat16", "float16"}:
            # ptxas 13.0 to 13.5 takes the bits of one for those of the other if an integer is made
            # of the result (cvt.rn.f16.bf16, cvt.rzi.s32.f16): TVM's kernels give 2 for 1.
            stored = "float32"
        leaf = self._new(axes, "value", stored)
        return self._emit(relax.op.astype(leaf, self._style.dtype))

    def _step(self, axes: str, first: Any = None) -> Any:
        """An operator, whose first operand is given or drawn."""
        self._left -= 1
        forms = [
            MessageWriter._unary,
            MessageWriter._binary,
            MessageWriter._binary,
            MessageWriter._chosen,
            MessageWriter._cast,
        ]
        if first is None:
            forms += [MessageWriter._moved, MessageWriter._broadcast]
            if "e" in axes and axes.count("e") == 1:
                forms += [MessageWriter._gathered] * 5
        form = self._random.choice(forms)
        made = form(self, axes, first)
        self._made.setdefault(axes, []).append(made)
        return made

    def _operand(self, axes: str, first: Any) -> Any:
        return self._value(axes) if first is None else first

    def _smaller(self, axes: str) -> Any:
        """A tensor that broadcasts to some axes."""
        if self._chance(0.15):
            return relax.const(self._random.choice([0, 1, 1, 2]), self._style.dtype)
        axes = "".join("1" if self._chance(0.25) else axis for axis in axes)
        return self._value(axes[self._random.choice([0, 0, 0, len(axes) - 1]) :])

    def _unary(self, axes: str, first: Any) -> Any:
        names = _WHOLE if self._style.whole else _REAL
        if self._style.whole and self._style.dtype not in FLOATS:
            names = _INTEGER
        return self._function(self._random.choice(names), self._operand(axes, first))

    def _function(self, name: str, value: Any) -> Any:
        op, dtype = relax.op, self._style.dtype
        unary: dict[str, Callable[[Any], Any]] = {
            "double": lambda x: op.add(x, x),
            "reciprocal": lambda x: op.divide(relax.const(1, dtype), self._above(x, 1)),
            "root": lambda x: op.sqrt(self._above(x, 0)),
            "inverse root": lambda x: op.rsqrt(self._above(x, 1)),
            "logarithm": lambda x: op.log(self._above(x, 1)),
            "power": lambda x: op.power(self._above(x, 1), relax.const(1.5, dtype)),
            "half": lambda x: op.floor_divide(x, relax.const(2, dtype)),
            "rest": lambda x: op.floor_mod(x, relax.const(2, dtype)),
            "bits": lambda x: op.bitwise_and(x, relax.const(3, dtype)),
            "other bits": lambda x: op.bitwise_xor(x, relax.const(1, dtype)),
        }
        compute = unary.get(name) or getattr(op.nn, name, None) or getattr(op, name)
        return self._bounded(self._emit(compute(value)))

    def _above(self, value: Any, least: int) -> Any:
        positive = self._emit(relax.op.abs(value))
        return self._emit(relax.op.add(positive, relax.const(least, self._style.dtype)))

    def _binary(self, axes: str, first: Any) -> Any:
        left, right = self._operand(axes, first), self._smaller(axes)
        if self._chance(0.3):
            left, right = right, left
        name = self._random.choice(["add", "subtract", "multiply", "maximum", "minimum"])
        value = self._emit(getattr(relax.op, name)(left, right))
        return self._bounded(self._whole(value, axes))

    def _whole(self, value: Any, axes: str) -> Any:
        if len(value.ty.shape) == len(axes):
            return value
        return self._emit(relax.op.broadcast_to(value, self._shape(axes)))

    def _bounded(self, value: Any) -> Any:
        """A value no larger than what does not round or overflow when it is reduced."""
        most, least = (
            relax.const(limit, self._style.dtype)
            for limit in (self._style.limit, self._style.least)
        )
        return self._emit(relax.op.maximum(self._emit(relax.op.minimum(value, most)), least))

    def _chosen(self, axes: str, first: Any) -> Any:
        value, other = self._operand(axes, first), self._smaller(axes)
        if self._chance(0.5):
            value, other = other, value
        return self._whole(self._emit(relax.op.where(self._mask(axes), value, other)), axes)

    def _mask(self, axes: str) -> Any:
        chosen = self._random.randrange(5)
        axes = "".join("1" if self._chance(0.25) else axis for axis in axes)
        if (
            chosen == 0
            and len(axes) == 1
            and self._style.dtype in ("float16", "float32", "float64")
        ):
            return self._emit(relax.op.isnan(self._leaf(axes)))
        if chosen == 1:
            other = self._leaf(axes, "mask") if self._chance(0.5) else self._compared(axes)
            return self._emit(relax.op.logical_not(other))
        if chosen == 2:
            both = self._leaf(axes, "mask"), self._leaf(axes[-1:], "mask")
            name = self._random.choice(["logical_and", "logical_or"])
            return self._emit(getattr(relax.op, name)(*both))
        return self._compared(axes) if chosen == 3 else self._leaf(axes, "mask")

    def _compared(self, axes: str) -> Any:
        # What is rounded must not decide.
        draw = self._value if self._style.whole else self._leaf
        name = self._random.choice(["greater", "less_equal", "equal", "not_equal"])
        return self._emit(getattr(relax.op, name)(draw(axes), self._leaf(axes[-1:])))

    def _cast(self, axes: str, first: Any) -> Any:
        value, own = self._operand(axes, first), self._style.dtype
        wider = ["float32", "int32", "int64"] if self._style.whole else ["float64"]
        wider = ["float64"] if self._style.nans else wider
        there = self._emit(relax.op.astype(value, self._random.choice(wider)))
        return self._emit(relax.op.astype(there, own))

    def _moved(self, axes: str, _first: Any) -> Any:
        """A tensor of other axes: transposed, reshaped, or with axes of one element."""
        if self._sizes["e"] == 0:
            # TVM 0.27 gives what it squeezes an element if it has none, and reads 0 in a new shape
            # as the old size, where it transposes by reshaping, too.
            return self._value(axes)
        op, chosen = relax.op, self._random.randrange(4)
        order = list(range(len(axes)))
        self._random.shuffle(order)
        if chosen == 0:
            source = self._value("".join(axes[at] for at in order))
            return self._emit(op.permute_dims(source, [order.index(at) for at in range(len(axes))]))
        if chosen == 1:
            # The same elements in an order that is no transposition.
            source = self._value("".join(axes[at] for at in order))
            flat: Any = 1
            for axis in axes:
                flat = flat * self._sizes[axis]
            if self._chance(0.5):
                source = self._emit(op.reshape(source, [flat]))
            return self._emit(op.reshape(source, self._shape(axes)))
        ones = [at for at, axis in enumerate(axes) if axis == "1"]
        if chosen == 2 and ones and len(axes) > 1:
            at = self._random.choice(ones)
            return self._emit(op.expand_dims(self._value(axes[:at] + axes[at + 1 :]), at))
        at = self._random.randint(0, len(axes))
        return self._emit(op.squeeze(self._value(axes[:at] + "1" + axes[at:]), [at]))

    def _broadcast(self, axes: str, _first: Any) -> Any:
        return self._emit(relax.op.broadcast_to(self._smaller(axes), self._shape(axes)))

    # Reads and scatters

    def _gathered(self, axes: str, _first: Any) -> Any:
        at = axes.index("e")
        source = axes.replace("e", "n")
        chosen = self._random.randrange(6)
        if chosen == 0:
            index = self._leaf(axes, "n", ["int64"])
            return self._emit(relax.op.gather_elements(self._value(source), index, at))
        if chosen == 1 and at == 0:
            return self._emit(
                relax.op.gather_nd(self._value(source), self._leaf("e1", "n", ["int64"]))
            )
        if chosen == 2 and axes == "e":
            # Every size is that of a parameter.
            self._leaf("nw")
            indices = [self._leaf("e", "n"), self._leaf("e", "w")]
            return self._emit(index_read(self._value("nw"), indices, [0, 1]))
        modes = ["fast"] if self._style.wraps else ["fast", "index_select"]
        mode = self._random.choice(modes)
        return self._emit(relax.op.take(self._value(source), self._index(), at, mode=mode))

    def _index(self) -> Any:
        """The nodes of edges; sometimes they are computed."""
        index = self._leaf("e", "n")
        if self._chance(0.15):
            return self._emit(relax.op.take(self._leaf("n", "n"), index, 0))
        if self._chance(0.1):
            return self._emit(relax.op.maximum(index, relax.const(0, str(index.ty.dtype))))
        return index

    def _scatter(self, data: Any, data_axes: str, message: Any, axes: str) -> Any:
        at = axes.index("e")
        how: dict[str, Any] = {
            "reduction": self._style.reduction,
            "include_self": self._chance(0.7),
            "wrap_negative": self._style.wraps or self._chance(0.5),
            "ordered": self._style.reduction == "update",
        }
        chosen = self._random.randrange(6)
        if chosen == 1 and self._sizes["e"] == 0:
            chosen = 0
        if chosen == 0:
            call = scatter_elements(data, self._leaf(axes, "n"), message, at, **how)
        elif chosen == 1:
            index = self._leaf("e", "n")
            inner = "".join(axis if axis == "e" else "1" for axis in axes)
            index = self._emit(relax.op.reshape(index, self._shape(inner)))
            index = self._emit(relax.op.broadcast_to(index, self._shape(axes)))
            call = scatter_elements(data, index, message, at, **how)
        elif chosen == 2 and at == 0:
            call = scatter_nd(data, self._leaf("e1", "n"), message, **how)
        else:
            call = index_put(data, [self._leaf("e", "n")], message, [at], **how)
        return self._emit(call)
