"""Makes one function, with one expression for each element, of several tensor operators.

The operators' own legalizations say what they compute, so nothing is described twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import (
    BRANCH,
    FUNCTIONS,
    function_name,
    substitute,
)
from tvm_scatter.emit.expression_length import MOST_CHOICES
from tvm_scatter.emit.expressions import all_of, choices
from tvm_scatter.emit.kept import REINTERPRET, kept_value
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.read_forms import broadcast_position, read
from tvm_scatter.ops.shapes import is_empty, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.problem.reductions import DATA_DTYPES, FLOATS

from .added_rows import added, is_short_sum
from .hidden_loads import HiddenLoads
from .legalizations import stock
from .machine_arithmetic import as_floats, as_integers, as_result, steps_kept
from .own_sizes import OwnSizes
from .plan_read import ReadPlan, plan_read
from .reads import is_read
from .reshaped import reshaped
from .target import target_of

#: The most operators that are made one, and tensors that they read: each is a parameter of kernels.
_MOST_OPERATORS = 32
_MOST_LEAVES = 12
#: The most divisions by sizes that are not known. Each is dear, and what TVM makes of some within
#: each other grows so fast that it compiles for hours.
_MOST_DIVISIONS = 12
#: The most nodes of an expression, with all that stands in it.
_MOST_NODES = 4000
#: The most numbers that may wrap around and are computed from each other: TVM compiles 16 in 10 s.
_MOST_STEPS_KEPT = 8
_INTEGERS_ONLY = (
    *(tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
    *(tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor),
)
_SIMPLE = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max),
    *(tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or, tirx.Not),
    *(tirx.Select, tirx.Cast, tirx.IntImm, tirx.FloatImm, tvm.ir.Var),
)


#: Operators that compute each element of their result from a few elements of their operands.
PRODUCERS = frozenset(
    f"relax.{name}"
    for name in (
        *(
            "abs",
            "add",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "ceil",
            "clip",
            "cos",
            "divide",
        ),
        *("equal", "erf", "exp", "floor", "floor_divide", "floor_mod", "greater", "greater_equal"),
        *("isfinite", "isinf", "isnan", "less", "less_equal", "log", "logical_and", "logical_not"),
        *("logical_or", "maximum", "minimum", "mod", "multiply", "negative", "not_equal", "power"),
        *(
            "round",
            "rsqrt",
            "sigmoid",
            "sign",
            "sin",
            "sqrt",
            "square",
            "subtract",
            "tanh",
            "trunc",
        ),
        *("where", "astype", "nn.relu", "nn.leakyrelu", "nn.silu", "nn.gelu", "nn.gelu_tanh"),
        *("broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape", "squeeze"),
    )
)

#: Those of them that CPUs call a function for, or divide integers. While a scatter waits for it,
#: no rows of other edges are on their way.
CALLS = frozenset(
    f"relax.{name}"
    for name in (
        *("cos", "erf", "exp", "log", "power", "sigmoid", "sin", "tanh"),
        *("nn.gelu", "nn.gelu_tanh", "nn.silu", "ceil", "floor", "round", "trunc"),
        *("floor_divide", "floor_mod", "mod"),
    )
)


#: Those of them of which TVM's own legalization is wrong: the power of a negative number on GPUs,
#: comparisons with a NaN, what loses digits or rounds often, and what 16-bit floats have no
#: function for.
_MENDED = frozenset(
    f"relax.{name}"
    for name in (
        *("power", "logical_not", "equal", "not_equal", "mod", "floor_mod", "round"),
        *("isfinite", "isinf", "isnan", "tanh", "sin", "cos"),
        *("nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.silu", "rsqrt"),
    )
)

#: Those of them that move nothing: they give the same elements another shape.
RESHAPES = frozenset(f"relax.{name}" for name in ("expand_dims", "flatten", "reshape", "squeeze"))
#: Those that compute nothing: each element of their result is one of their operand's.
MOVES = RESHAPES | {"relax.broadcast_to", "relax.permute_dims"}
#: The others, which compute each element from those at the same place, if no shape differs.
ELEMENTWISE = PRODUCERS - MOVES
#: The legalization of this one asks a real block builder.
_PRODUCT = "relax.matmul"


#: Makes the term of a sum, see :meth:`Inliner.with_terms`.
Terms = Callable[[Any, te.Tensor, Mapping[Any, te.Tensor], Sequence[Any], Sequence[Any]], Any]


class NotInlined(ScatterError):
    """Why operators cannot be made one expression. Its text is a clause."""


class Inliner:
    """Evaluates calls as tensor expressions of placeholders for the leaves."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._tensors: dict[Any, te.Tensor] = {}
        self._reads_nothing = any(map(is_empty, leaves))
        sizes = self._sizes = OwnSizes(leaf.ty.shape.values for leaf in leaves)
        self._leaves = [
            te.placeholder(
                [sizes.expressed(size) for size in leaf.ty.shape.values],
                str(leaf.ty.dtype),
                name=f"leaf{at}",
            )
            for at, leaf in enumerate(leaves)
        ]
        self._tensors.update(zip(leaves, self._leaves, strict=True))

    def add_unknown(self, var: Any) -> None:
        """Let a tensor be one that the function gets, and that nothing in it computes."""
        shape = [self._sizes.expressed(size) for size in var.ty.shape.values]
        self._tensors[var] = te.placeholder(shape, str(var.ty.dtype), name="unknown")

    def add(self, var: Any, call: relax.Call) -> None:
        """Evaluate a call that a variable is bound to.

        Raises
        ------
        NotInlined
            If its legalization emits anything else than one tensor expression.
        """
        for operand in operands_of(call):
            scalar = scalar_of(operand)
            if scalar is not None:
                self._tensors[operand] = _constant(scalar)
        if is_read(call):
            plan = plan_read(call, target_of(call.args[0]), current_options())
            assert plan is not None, "what TVM computes is not inlined"
            self._add_read(var, plan)
            return
        if call.op.name in RESHAPES:
            shape = [self._sizes.expressed(size) for size in call.ty.shape.values]
            moved = reshaped(self._tensors[call.args[0]], shape)
            if moved is not None:
                self._tensors[var] = moved
                return
        if call.op.name == _PRODUCT:
            self._tensors[var] = _dots(call, *(self._tensors[each] for each in call.args))
            return
        legalize = None if call.op.name in _MENDED else stock.get(call.op.name)
        legalize = legalize or call.op.get_attr("FLegalize")
        traced = legalize(_Tracer(self._tensors, self._sizes), call)
        if not isinstance(traced, te.Tensor):
            raise NotInlined(f"{call.op.name} is not one tensor expression")
        self._tensors[var] = traced

    def add_producer(self, var: Any, call: relax.Call) -> None:
        """As :meth:`add`, but a sum of a few rows is evaluated term by term."""
        if is_short_sum(call):
            self._tensors[var] = added(call, self._tensors[call.args[0]])
        else:
            self.add(var, call)

    def _add_read(self, var: Any, plan: ReadPlan) -> None:
        check = plan.read.check
        data, *indices = (self._tensors[each.expression] for each in (check.data, *check.indices))
        form, wrap = plan.read.form, plan.read.has_negative()
        self._tensors[var] = read(form, data, indices, wrap, plan.guard)

    def add_number(self, var: Any, number: Any) -> None:
        """Let a variable be a constant without axes."""
        self._tensors[var] = _constant(scalar_of(number))

    def add_range(self, var: Any, call: relax.Call) -> None:
        """Let a variable have evenly spaced numbers."""
        first, _, step = map(self.sized, call.args)
        shape = [self.sized(size) for size in call.ty.shape.values]
        dtype = str(call.ty.dtype)
        self._tensors[var] = te.compute(
            shape, lambda at: (first + step * at).astype(dtype), name="range"
        )

    def alias(self, var: Any, other: Any) -> None:
        """Let a variable have the elements of another one at their places."""
        self._tensors[var] = self._tensors[other]

    @property
    def leaves(self) -> list[te.Tensor]:
        """The placeholders for the leaves."""
        return self._leaves

    def sized(self, size: Any) -> Any:
        """A size in the variables of the leaves."""
        return self._sizes.expressed(size)

    def expression(self, var: Any, at: Sequence[Any]) -> Any:
        """An element of a tensor, over coordinates and elements of placeholders.

        Raises
        ------
        NotInlined
            As :meth:`function`.
        """
        self._refuse_empty_leaves()
        shape = self._tensors[var].shape
        return self._checked(self._value(var, at, shape), at, shape)

    def function(self, var: Any, logits: Any = None) -> tirx.PrimFunc:
        """The function that computes the tensor of a variable from the leaves.

        Parameters
        ----------
        logits : relax.Var, optional
            A tensor that broadcasts to the other one. The function computes it as well, in the same
            shape.

        Raises
        ------
        NotInlined
            If an element is not one expression that can be computed anywhere.
        """
        shape = self._tensors[var].shape
        self._refuse_empty_leaves()
        at = _coordinates(shape)
        results = [self._stored(self._value(var, at, shape), at, shape, "updates")]
        if logits is not None:
            results.append(self._stored(self._value(logits, at, shape), at, shape, "logits"))
        return te.create_prim_func([*self._leaves, *results]).without_attr("global_symbol")

    def with_terms(self, var: Any, logits: Any, sums: Any, terms: Terms) -> tirx.PrimFunc:
        """As :meth:`function`, with the terms of the sums that the logits read, and these sums.

        Parameters
        ----------
        sums : relax.Var
            The sums, of which :meth:`add_unknown` has been told.
        terms : callable
            The term of an element, given its logit, the tensor of the sums, those of the leaves by
            their variables, the coordinates of the element and the sizes of these axes.

        Raises
        ------
        NotInlined
            As :meth:`function`, and what ``terms`` raises.
        """
        shape, tensor = self._tensors[var].shape, self._tensors[sums]
        self._refuse_empty_leaves()
        at = _coordinates(shape)
        values = [self._value(each, at, shape) for each in (var, logits)]
        if any(each.same_as(tensor) for each in all_of(values[0], te.Tensor)):
            raise NotInlined("the updates are computed from what their logits are a sum of")
        term = _with_loads_inlined(terms(values[1], tensor, self._tensors, at, shape))
        values.append(_in_simple_places(term, dict(zip(at, shape, strict=True))))
        results = [
            self._stored(value, at, shape, name)
            for value, name in zip(values, ("updates", "logits", "terms"), strict=True)
        ]
        every = [*self._leaves, *results, tensor]
        return te.create_prim_func(every).without_attr("global_symbol")

    def _refuse_empty_leaves(self) -> None:
        """Raise if a leaf has no elements: there is no place to read at."""
        if self._reads_nothing:
            raise NotInlined("they are computed from a tensor that has no elements")

    def reduction(self, var: Any) -> tirx.PrimFunc:
        """The function that computes the tensor of a variable, which is bound to a reduction.

        Raises
        ------
        NotInlined
            As :meth:`function`, and if it is not one reduction.
        """
        tensor = self._tensors[var]
        if not isinstance(tensor.op, te.ComputeOp) or not len(tensor.op.reduce_axis):
            raise NotInlined(f"{tensor.op.name} is no reduction")
        [reduce] = tensor.op.body
        axes = [*tensor.op.axis, *tensor.op.reduce_axis]
        sizes = [axis.dom.extent for axis in axes]
        at = [tirx.Var(f"i{number}", "int64") for number in range(len(axes))]
        places = dict(zip((axis.var for axis in axes), at, strict=True))
        value = _with_loads_inlined(substitute(reduce.source[0], places))
        value = _in_simple_places(value, dict(zip(at, sizes, strict=True)))
        element = self._element(value, at, sizes)
        reduced = [te.reduce_axis((0, axis.dom.extent), "k") for axis in tensor.op.reduce_axis]
        result = te.compute(
            tensor.shape,
            lambda *own: tirx.Reduce(
                reduce.combiner, [element(*own, *(k.var for k in reduced))], reduced, True, 0, []
            ),
            name="reduced",
        )
        return te.create_prim_func([*self._leaves, result]).without_attr("global_symbol")

    def _value(self, var: Any, at: Sequence[Any], shape: Sequence[Any]) -> Any:
        """An element of a tensor that broadcasts to a shape, as one expression of the leaves."""
        tensor = self._tensors[var]
        first = tirx.IntImm("int64", 0)
        place = [
            first if isinstance(coordinate, int) else coordinate
            for coordinate in broadcast_position(tensor.shape, at)
        ]
        return _in_simple_places(_inlined(tensor, place), dict(zip(at, shape, strict=True)))

    def _stored(self, value: Any, at: Sequence[Any], shape: Sequence[Any], name: str) -> te.Tensor:
        """The tensor of some shape that has an expression at each of its places."""
        return te.compute(shape, self._element(value, at, shape), name=name)

    def _element(self, value: Any, at: Sequence[Any], shape: Sequence[Any]) -> Callable[..., Any]:
        """A function of coordinates that gives an expression, which is checked, in their place."""
        value = self._checked(value, at, shape)

        def element(*own: Any) -> Any:
            casts = (tirx.Cast("int64", each) for each in own)
            return substitute(value, dict(zip(at, casts, strict=True)))

        return element

    def _checked(self, value: Any, at: Sequence[Any], shape: Sequence[Any]) -> Any:
        """An expression in the sizes of the leaves, that every backend can compute."""
        value = as_floats(_without_nested_numbers(self._sizes.within(value)))
        _check(value)
        _check_divisions(value)
        if choices(value) > MOST_CHOICES:
            raise NotInlined("it chooses too often by what it has chosen")
        if steps_kept(value) > _MOST_STEPS_KEPT:
            raise NotInlined("so many steps, each of which may wrap around, take long to compile")
        _check_sizes(value, shape, at, self._leaves)
        return value


def _coordinates(shape: Sequence[Any]) -> list[Any]:
    return [tirx.Var(f"i{axis}", "int64") for axis in range(len(shape))]


class _Tracer:
    """Takes the place of a block builder: calls a tensor expression at once."""

    def __init__(self, tensors: Mapping[Any, te.Tensor], sizes: OwnSizes) -> None:
        self._tensors = tensors
        self._sizes = sizes

    def call_te(self, compute: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Evaluate a function of tensors, given Relax expressions."""
        more.pop("primfunc_name_hint", None)
        return compute(*map(self._convert, args), **more)

    def lookup_binding(self, _var: Any) -> None:
        """Nothing is bound."""

    def _convert(self, argument: Any) -> Any:
        if isinstance(argument, relax.ShapeExpr):
            return [self._sizes.expressed(size) for size in argument.values]
        if isinstance(argument, relax.Tuple):
            return [self._convert(field) for field in argument.fields]
        if isinstance(argument, relax.Expr) and not tvm.ir.is_prim_expr(argument):
            found = self._tensors.get(argument)
            if found is None:
                raise NotInlined("an operand is no tensor")
            return found
        if isinstance(argument, list | tuple | tvm_ffi.Array):
            return [self._convert(each) for each in argument]
        return argument


def _constant(value: Any) -> te.Tensor:
    return te.compute((), lambda: value, name="scalar")


def _dots(call: relax.Call, rows: te.Tensor, columns: te.Tensor) -> te.Tensor:
    """What ``relax.matmul`` computes of single rows and single columns of equal batches."""
    k = te.reduce_axis((0, rows.shape[-1]), "k")
    dtype = str(call.ty.dtype)

    def dot(*at: Any) -> Any:
        row, column = rows(*at[:-2], 0, k), columns(*at[:-2], k, 0)
        return te.sum(row.astype(dtype) * column.astype(dtype), axis=k)

    return te.compute([*rows.shape[:-2], 1, 1], dot, name="dot")


def operands_of(call: relax.Call) -> list[Any]:
    """The operands of a call that are tensors, those in tuples included."""
    found: list[Any] = []
    for argument in call.args:
        fields = argument.fields if isinstance(argument, relax.Tuple) else [argument]
        found += [each for each in fields if isinstance(each.ty, relax.TensorType)]
    return found


def leaves_of(calls: Mapping[Any, relax.Call], roots: Sequence[Any]) -> list[Any]:
    """The tensors that some calls, and what else stands beside them, are computed from.

    Parameters
    ----------
    calls : mapping
        The calls, by the variables that they are bound to.
    roots : sequence
        What the calls compute, or tensors that nothing computes.

    Raises
    ------
    NotInlined
        If one function cannot compute so many, or from such tensors.
    """
    leaves: list[Any] = []
    for operand in (*(each for call in calls.values() for each in operands_of(call)), *roots):
        if operand in calls or scalar_of(operand) is not None:
            continue
        if not any(operand.same_as(leaf) for leaf in leaves):
            leaves.append(operand)
    if not 0 < len(leaves) <= _MOST_LEAVES or len(calls) > _MOST_OPERATORS:
        raise NotInlined(f"{len(calls)} operators read {len(leaves)} tensors")
    for leaf in leaves:
        if static_shape(leaf) is None or str(leaf.ty.dtype) not in DATA_DTYPES:
            raise NotInlined(f"a tensor of type {leaf.ty} is read")
    return leaves


def scalar_of(operand: Any) -> Any:
    """The value of a constant without axes as an expression; ``None`` for other operands."""
    if not isinstance(operand, tvm.ir.GenericConst) or operand.ty.ndim != 0:
        return None
    return tirx.const(operand.value.numpy()[()].item(), str(operand.ty.dtype))


def _inlined(tensor: te.Tensor, at: Sequence[Any]) -> Any:
    """An element of a tensor as an expression of elements of placeholders."""
    if isinstance(tensor.op, te.PlaceholderOp):
        return tensor(*at)
    if not isinstance(tensor.op, te.ComputeOp) or len(tensor.op.reduce_axis):
        raise NotInlined(f"{tensor.op.name} is no elementwise computation")
    known = {axis.var: place for axis, place in zip(tensor.op.axis, at, strict=True)}
    return _with_loads_inlined(substitute(tensor.op.body[tensor.value_index], known))


def _with_loads_inlined(body: Any) -> Any:
    """An expression of elements of tensors as one of elements of placeholders."""
    # TVM would not let this exception through.
    refusals: list[NotInlined] = []

    def load(call: Any) -> Any:
        # Once refused, nothing more is expanded: each level may double what is to be done.
        if refusals or function_name(call) != "tensor_load":
            return call
        source, *place = call.args
        try:
            return as_result(_inlined(source, place))
        except NotInlined as refusal:
            refusals.append(refusal)
            return call

    value = tvm_ffi.structural_map(body, (tvm.ir.Call, load))
    for refusal in refusals:
        raise refusal
    if len(all_of(value, tvm.ir.Expr)) > _MOST_NODES:
        raise NotInlined("the expression of an element is too long")
    return value


def _in_simple_places(value: Any, sizes: Mapping[Any, Any]) -> Any:
    """An expression whose loads are at what their indices come to where axes have these sizes."""
    value = as_integers(value)
    analyzer = Analyzer()
    for axis, size in sizes.items():
        analyzer.bind(axis, tvm.ir.Range(0, size))

    def load(call: Any) -> Any:
        if function_name(call) != "tensor_load":
            return call
        source, *place = call.args
        return source(*(_simple(each, analyzer) for each in place))

    return tvm_ffi.structural_map(value, (tvm.ir.Call, load))


def _simple(place: Any, analyzer: Any) -> Any:
    """A place simplified. What is loaded there is a number like any other."""
    loads = HiddenLoads()
    return loads.shown(analyzer.simplify(loads.hidden(place)))


def _without_nested_numbers(value: Any) -> Any:
    """An expression that chooses by truth values themselves, if it chooses what it chooses by.

    TVM's ``where`` asks whether the number of a truth value is not 0. What TVM knows of numbers it
    looks for anew at each of them, so that five in each other take it a minute.
    """
    asked = [each for each in all_of(value, tirx.NE) if _truth(each) is not None]
    if not any(_truth(inner) is not None for each in asked for inner in all_of(each.a, tirx.NE)):
        return value

    def truth(comparison: Any) -> Any:
        known = _truth(comparison)
        return comparison if known is None else known

    return tvm_ffi.structural_map(value, (tirx.NE, truth))


def _truth(comparison: tirx.NE) -> Any:
    """The truth value of which it asks whether its number is not 0, or ``None``."""
    number, other = comparison.a, comparison.b
    is_asked = isinstance(number, tirx.Cast) and isinstance(other, tirx.IntImm)
    if not is_asked or other.value != 0 or str(number.value.ty.dtype) != "bool":
        return None
    return number.value


def _check_divisions(value: Any) -> None:
    """Raise if an expression divides by sizes that are not known too often."""
    divisions = [
        each
        for kind in (tirx.FloorDiv, tirx.FloorMod)
        for each in all_of(value, kind)
        if not isinstance(each.b, tirx.IntImm)
    ]
    if len(divisions) > _MOST_DIVISIONS:
        raise NotInlined(f"where to read takes {len(divisions)} divisions")


def _check(value: Any) -> None:
    """Raise if an expression has a part that not every backend can write."""
    for node in all_of(value, tvm.ir.Expr):
        if isinstance(node, te.Tensor) or not tvm.ir.is_prim_expr(node):
            continue
        floating = str(node.ty.dtype).startswith(("float", "bfloat"))
        if isinstance(node, tvm.ir.Call):
            name = function_name(node)
            if name in (BRANCH, "tensor_load") or _keeps(node):
                continue
            if name in FUNCTIONS and (floating or name == "isnan"):
                continue
            raise NotInlined(f"{name} is not known to be computable anywhere")
        if isinstance(node, _SIMPLE) or (isinstance(node, _INTEGERS_ONLY) and not floating):
            continue
        raise NotInlined(
            f"{type(node).__name__} of {node.ty} is not known to be computable anywhere"
        )


def _keeps(call: Any) -> bool:
    """Whether it is what keeps a float, or a part of that."""
    is_part = function_name(call) == REINTERPRET and str(call.args[0].ty.dtype) in FLOATS
    return is_part or kept_value(call) is not None


def _check_sizes(
    value: Any, shape: Sequence[Any], at: Sequence[Any], leaves: Sequence[te.Tensor]
) -> None:
    """Raise if a symbolic size is not the size of a leaf."""
    known = {dim for leaf in leaves for dim in leaf.shape if isinstance(dim, tvm.ir.Var)} | {*at}
    for expression in (value, *shape):
        for var in [] if isinstance(expression, int) else all_of(expression, tvm.ir.Var):
            if tvm.ir.is_prim_expr(var) and var not in known:
                raise NotInlined(f"{var} is the size of no tensor that is read")
