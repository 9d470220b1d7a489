"""Writes a TIR expression as C++ statements that compute it for neighbouring elements at once.

Each value is either one for all of these elements, or has one for each: a ``Vector``. 16-bit floats
are held in 32 bits, and rounded after each operator as in memory. A value that only moves keeps its
bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import (
    BRANCH,
    function_name,
    loads_of,
    substitute,
    unguarded_loads,
)
from tvm_scatter.emit.kept import kept_value
from tvm_scatter.emit.known_leaves import NOTHING_KNOWN, KnownLeaves
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import numpy_dtype

from .source import c_type

_HALVES = ("float16", "bfloat16")
#: Of integers; floats have infix operators.
_WRAPPING = {tirx.Add: "sum", tirx.Sub: "difference"}
_INFIX = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Div: "/",
    tirx.Mod: "%",
    tirx.EQ: "==",
    tirx.NE: "!=",
    tirx.LT: "<",
    tirx.LE: "<=",
    tirx.GT: ">",
    tirx.GE: ">=",
    tirx.And: "&&",
    tirx.Or: "||",
    tirx.BitwiseAnd: "&",
    tirx.BitwiseOr: "|",
    tirx.BitwiseXor: "^",
}
_PREFIX = {
    tirx.Mul: "product",
    tirx.Min: "min",
    tirx.Max: "max",
    tirx.FloorDiv: "floor_div",
    tirx.FloorMod: "floor_mod",
}
#: What instructions compute for two 16-bit floats at once.
_OF_PAIRS = {tirx.Add: "RoundedSum", tirx.Sub: "RoundedDifference", tirx.Mul: "RoundedProduct"}
#: The same, for an operand and a number.
_WITH_NUMBER = {tirx.Min: "LesserNumber", tirx.Max: "GreaterNumber"}
#: What instructions compare of two 16-bit floats at once.
_COMPARED_IN_PAIRS = {
    tirx.LT: "IsLess",
    tirx.LE: "IsAtMost",
    tirx.GT: "IsGreater",
    tirx.GE: "IsAtLeast",
    tirx.EQ: "IsEqual",
    tirx.NE: "IsUnequal",
}
#: Of 16-bit floats these are 16-bit floats: the first operand where the comparison holds. So TVM's
#: code has them: of a NaN and a number the second, whichever it is.
_OF_HALVES = {tirx.Min: tirx.LT, tirx.Max: tirx.GT}
_EXACT_MATHS = ("fabs", "floor", "ceil", "trunc", "nearbyint")
#: CUDA's functions of float; those of double have no f at the end.
_MATHS = {
    name: f"{name}f"
    for name in [
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "tanh",
        "fabs",
        "floor",
        "ceil",
        "trunc",
        "nearbyint",
        "erf",
        "sin",
        "cos",
        "pow",
    ]
}
#: The most elements of one access.
_MOST_LANES = 16


@dataclass(frozen=True)
class Value:
    """A value in C++.

    Attributes
    ----------
    name : str
        An expression without side effects.
    dtype : str
        Its data type in TIR.
    varies : bool
        Whether it is a ``Vector`` with a value for each element.
    stored : bool
        Whether a 16-bit float is in its own type, and not in 32 bits.
    packed : bool
        Whether it is a vector of 16-bit floats that is made of words, two in each.
    """

    name: str
    dtype: str
    varies: bool
    stored: bool = False
    packed: bool = False

    @property
    def element(self) -> str:
        """The value for element ``i``."""
        return f"{self.name}.at[i]" if self.varies else self.name

    @property
    def type(self) -> str:
        """The C++ type for one element."""
        return stored_type(self.dtype) if self.stored else computed_type(self.dtype)

    @property
    def wide(self) -> str:
        """The value for element ``i`` in the type that is computed with."""
        return f"widen({self.element})" if self.stored else self.element

    @property
    def narrow(self) -> str:
        """The value for element ``i`` in the type that is stored."""
        if self.stored or self.dtype not in _HALVES:
            return self.element
        return f"narrow<{stored_type(self.dtype)}>({self.element})"


def is_half(dtype: str) -> bool:
    """Whether a type has 16 bits in memory, and is computed with in 32."""
    return dtype in _HALVES


def stored_type(dtype: str) -> str:
    """The C++ type of an element in memory."""
    return "bool" if dtype == "bool" else c_type(dtype)


def computed_type(dtype: str) -> str:
    """The C++ type that is computed with."""
    return "float" if dtype in _HALVES else stored_type(dtype)


class NameOfNoneError(LookupError):
    """An expression has a variable that is not known where it is computed."""


class Writer:
    """Writes statements; the template parameter ``count`` is the number of elements.

    Parameters
    ----------
    names : dict
        The C++ names of variables: coordinates, sizes and leaves.
    column : Var or None
        The coordinate along which the elements are neighbours. Its name is that of the first's;
        ``None`` if there is a single element.
    splits : bool
        Whether accesses are to single elements unless the template parameter ``whole`` is set.
    leaves : KnownLeaves
        What is known of their sizes.
    """

    def __init__(
        self,
        names: dict[Any, str],
        column: Any = None,
        prefix: str = "t",
        splits: bool = False,
        leaves: KnownLeaves = NOTHING_KNOWN,
    ) -> None:
        self.leaves = leaves
        self.lines: list[str] = []
        #: For each leaf that is read as vectors, the elements that its offsets are multiples of.
        self.multiples: list[tuple[str, int]] = []
        self._names = names
        self._column = column
        self._prefix = prefix
        self._splits = splits
        self._made = 0
        # By hash, and by whether they are for the first element alone; a dictionary for each block.
        self._known: list[dict[Any, list[tuple[Any, Value]]]] = [{}]
        self._guarded: list[tuple[Any, Any, Value]] = []

    def value(self, expression: Any) -> Value:
        """Write statements that compute an expression."""
        known = self._known_value(expression)
        if known is not None:
            return known
        value = self._new(expression)
        self._known[-1].setdefault(self._digest(expression), []).append((expression, value))
        return value

    def preset(self, expression: Any, value: Value) -> None:
        """Let an expression be a value that is known already."""
        # Of what varies this is not the value for the first element alone.
        for first_only in (False,) if value.varies else (False, True):
            digest = tvm_ffi.structural_hash(expression), first_only
            self._known[0].setdefault(digest, []).append((expression, value))

    def guarded(self, condition: Any, load: Any) -> Value:
        """A load whose value counts only where a condition holds."""
        for other, earlier, value in self._guarded:
            same = tvm_ffi.structural_equal(earlier, load)
            if same and tvm_ffi.structural_equal(other, condition):
                return value
        return self._load(load, str(load.ty.dtype), self.value(condition))

    def preset_guarded(self, condition: Any, load: Any, value: Value) -> None:
        """Let a load whose value counts only where a condition holds be known already."""
        self._guarded.append((condition, load, value))

    def reads_neighbours(self, load: Any) -> bool:
        """Whether a load of all elements is one access."""
        return self._step(load.indices[0]) == 1

    def _known_value(self, expression: Any) -> Value | None:
        digest = self._digest(expression)
        for scope in self._known:
            for earlier, value in scope.get(digest, ()):
                if tvm_ffi.structural_equal(earlier, expression):
                    return value
        return None

    def _digest(self, expression: Any) -> Any:
        return tvm_ffi.structural_hash(expression), self._column is None

    def _new(self, expression: Any) -> Value:
        dtype = str(expression.ty.dtype)
        kind = type(expression)
        if isinstance(expression, tirx.IntImm | tirx.FloatImm):
            return Value(_literal(expression.value, dtype), dtype, False, dtype in _HALVES)
        if isinstance(expression, tvm.ir.Var):
            return self._variable(expression, dtype)
        if isinstance(expression, tvm.ir.TensorLoad):
            return self._load(expression, dtype)
        value = kept_value(expression)
        if value is not None:
            # What computes integers wraps around here, and of floats nothing is cancelled.
            return self.value(value)
        if isinstance(expression, tirx.Select):
            sides = [self.value(each) for each in (expression.true_value, expression.false_value)]
            if _is_leaky_relu(expression) and _are_pairs(*sides):
                return self._of_pairs(dtype, "GreaterOrNan", *sides)
            return self._choice_by(expression.condition, *sides)
        if isinstance(expression, tirx.Cast):
            return self._cast(self.value(expression.value), dtype)
        if isinstance(expression, tirx.Not):
            return self._elementwise("bool", "!{}", self.value(expression.a))
        if kind in _INFIX or kind in _PREFIX:
            operands = self.value(expression.a), self.value(expression.b)
            if dtype in _HALVES:
                return self._of_halves(kind, dtype, *operands, _is_number(expression.b))
            return self._elementwise(dtype, _form(kind, dtype), *operands)
        if isinstance(expression, tvm.ir.Call):
            return self._call(expression, dtype)
        raise ScatterError(f"scatter: updates cannot be computed by {kind.__name__} on CUDA.")

    def _variable(self, var: Any, dtype: str) -> Value:
        if var not in self._names:
            raise NameOfNoneError(str(var))
        name = self._names[var]
        if self._column is None or not var.same_as(self._column):
            return Value(name, dtype, False)
        return self._define(dtype, f"{name} + i", True)

    def _call(self, call: Any, dtype: str) -> Value:
        name = function_name(call)
        if name == BRANCH:
            return self._branch(*call.args)
        operands = [self.value(each) for each in call.args]
        if name == "isnan":
            return self._elementwise("bool", "({0} != {0})", *operands)
        if name == "sigmoid":
            return self._elementwise(dtype, "sigmoid({})", *operands)
        if name not in _MATHS:
            raise ScatterError(f"scatter: updates cannot be computed by {name} on CUDA.")
        function = name if dtype == "float64" else _MATHS[name]
        form = ", ".join(["{}"] * len(operands))
        exact = name in _EXACT_MATHS
        return self._elementwise(dtype, f"{function}({form})", *operands, exact=exact)

    def _of_halves(self, kind: type, dtype: str, a: Value, b: Value, b_is_number: bool) -> Value:
        """An operator of 16-bit floats, whose result is one."""
        varies = a.varies or b.varies
        if varies and kind in _OF_PAIRS:
            return self._of_pairs(dtype, _OF_PAIRS[kind], a, b)
        if kind not in _OF_HALVES:
            return self._elementwise(dtype, _form(kind, dtype), a, b)
        if b_is_number:
            if _are_pairs(a, b):
                return self._of_pairs(dtype, _WITH_NUMBER[kind], a, b)
            return self._elementwise(dtype, _form(kind, dtype), a, b, exact=True)
        if _are_pairs(a, b):
            return self._choice_in_pairs(_OF_HALVES[kind], (a, b), (a, b))
        form = f"({{0}} {_INFIX[_OF_HALVES[kind]]} {{1}} ? {{0}} : {{1}})"
        return self._elementwise(dtype, form, a, b, exact=True)

    def _of_pairs(self, dtype: str, operator: str, *operands: Value) -> Value:
        """An operator whose operands and result are vectors in their own type."""
        kind = f"Vector<{stored_type(dtype)}, count>"
        vectors = ", ".join(_as_vector(each) for each in operands)
        result = Value(self._name(), dtype, True, True, packed=True)
        self.lines.append(f"const {kind} {result.name} = rounded<{operator}>({vectors});")
        return result

    def _elementwise(self, dtype: str, form: str, *operands: Value, exact: bool = False) -> Value:
        text = form.format(*(each.wide for each in operands))
        if dtype in _HALVES and not exact:
            text = f"rounded<{stored_type(dtype)}>({text})"
        elif dtype.startswith(("int", "uint")):
            # C++ computes with at least 32 bits.
            text = f"static_cast<{computed_type(dtype)}>({text})"
        return self._define(dtype, text, any(each.varies for each in operands))

    def _cast(self, value: Value, dtype: str) -> Value:
        if dtype == value.dtype:
            return value
        if dtype in _HALVES:
            text = f"rounded<{stored_type(dtype)}>(static_cast<float>({value.wide}))"
        else:
            text = f"static_cast<{computed_type(dtype)}>({value.wide})"
        return self._define(dtype, text, value.varies)

    def _choice_by(self, condition: Any, yes: Value, no: Value) -> Value:
        """A choice between two values that are known."""
        kind = type(condition)
        if kind in _COMPARED_IN_PAIRS and str(condition.a.ty.dtype) == yes.dtype in _HALVES:
            compared = self.value(condition.a), self.value(condition.b)
            stored = all(each.stored for each in (*compared, yes, no))
            if stored and any(each.varies for each in compared):
                return self._choice_in_pairs(kind, compared, (yes, no))
        return self._choice(self.value(condition), yes, no)

    def _choice_in_pairs(
        self, kind: type, compared: tuple[Value, Value], sides: tuple[Value, Value]
    ) -> Value:
        """The elements of one vector where a comparison holds, of another where it does not."""
        vectors = ", ".join(map(_as_vector, (*compared, *sides)))
        result = Value(self._name(), sides[0].dtype, True, True, packed=True)
        text = f"chosen_where<{_COMPARED_IN_PAIRS[kind]}>({vectors})"
        self.lines.append(f"const auto {result.name} = {text};")
        return result

    def _choice(self, condition: Value, yes: Value, no: Value) -> Value:
        stored = yes.stored and no.stored
        if stored and not condition.varies and (yes.varies or no.varies):
            result = Value(self._name(), yes.dtype, True, True, packed=True)
            text = f"chosen({condition.wide}, {_as_vector(yes)}, {_as_vector(no)})"
            self.lines.append(f"const auto {result.name} = {text};")
            return result
        sides = (yes.element, no.element) if stored else (yes.wide, no.wide)
        varies = condition.varies or yes.varies or no.varies
        text = f"{condition.wide} ? {sides[0]} : {sides[1]}"
        return self._define(yes.dtype, text, varies, stored)

    def _branch(self, condition: Any, yes: Any, no: Any) -> Value:
        """A choice whose sides must not both be evaluated if they read memory."""
        chosen = self.value(condition)
        if not any(True for side in (yes, no) for _ in loads_of(side)):
            return self._choice_by(condition, self.value(yes), self.value(no))
        if not chosen.varies and can_be_moved(condition, yes, no, self.leaves):
            # No branch, so that the loads of several rows are in flight together.
            return self._choice(chosen, self.guarded(condition, yes), self.value(no))
        if chosen.varies:
            return self._one_by_one(tirx.if_then_else(condition, yes, no))
        sides = []
        for side in (yes, no):
            lines, self.lines = self.lines, []
            self._known.append({})
            value = self.value(side)
            self._known.pop()
            sides.append((self.lines, value))
            self.lines = lines
        stored = all(value.stored for _, value in sides)
        varies = any(value.varies for _, value in sides)
        result = Value(self._name(), str(yes.ty.dtype), varies, stored)
        self.lines.append(f"{declared(result)} {result.name};")
        openings = (f"if ({chosen.name}) {{", "} else {")
        for opening, (lines, value) in zip(openings, sides, strict=True):
            self.lines += [opening, *(f"  {line}" for line in lines)]
            text = value.narrow if result.stored else value.wide
            self.lines += [f"  {line}" for line in _assigned(result, text)]
        self.lines.append("}")
        return result

    def _one_by_one(self, expression: Any) -> Value:
        """The value of an expression, computed for one element after the other."""
        assert self._column is not None, "what varies does so along the column"
        own = f"{self._name()}_column"
        inner = Writer(
            {**self._names, self._column: own},
            prefix=f"{self._name()}_",
            leaves=self.leaves,
        )
        value = inner.value(expression)
        dtype = str(expression.ty.dtype)
        result = Value(self._name(), dtype, True, value.stored)
        self.lines += [
            f"{declared(result)} {result.name};",
            "#pragma unroll",
            "for (int i = 0; i < count; ++i) {",
            f"  const auto {own} = {self._names[self._column]} + i;",
            *(f"  {line}" for line in inner.lines),
            f"  {result.name}.at[i] = {value.name};",
            "}",
        ]
        return result

    def _load(self, load: Any, dtype: str, guard: Value | None = None) -> Value:
        """A load; where the guard is false, of the first elements of the leaf."""
        leaf, [offset] = self._names[load.source], load.indices

        def place(name: str) -> str:
            return name if guard is None else f"({guard.name} ? {name} : 0)"

        stored = dtype in _HALVES
        step = self._step(offset)
        multiple = _multiple(self._at_first(offset)) if step == 1 else 1
        if self.leaves.is_short(load.source):
            offset = in_32_bits(offset)
        if step == 0:
            return self._define(dtype, f"{leaf}[{place(self._first(offset).name)}]", False, stored)
        if step == 1:
            self.multiples.append((leaf, multiple))
            parts = f"whole ? {multiple} : 1" if self._splits else multiple
            text = f"load_row<count, {parts}>({leaf} + {place(self._first(offset).name)})"
            result = Value(self._name(), dtype, True, stored, packed=stored)
            self.lines.append(f"const auto {result.name} = {text};")
            return result
        return self._define(dtype, f"{leaf}[{place(self.value(offset).element)}]", True, stored)

    def _step(self, offset: Any) -> int | None:
        """By how much an offset grows from an element to the next; ``None`` if by no constant."""
        if self._column is None:
            return 0
        after = substitute(offset, {self._column: self._column + 1})
        step = Analyzer().simplify(after - offset)
        return int(step) if isinstance(step, tirx.IntImm) else None

    def _at_first(self, offset: Any) -> Any:
        return substitute(offset, {self._column: tirx.const(0, self._column.ty)})

    def _first(self, offset: Any) -> Value:
        """The value of an offset for the first of the elements."""
        column, self._column = self._column, None
        value = self.value(offset)
        self._column = column
        return value

    def wide(self, value: Value) -> str:
        """The value for element ``i`` in the type that is computed with.

        What is packed is converted word by word. That takes fewer instructions, unless its elements
        are taken apart for something else as well.
        """
        if not value.packed:
            return value.wide
        result = Value(self._name(), value.dtype, True)
        self.lines.append(f"const auto {result.name} = widen({value.name});")
        return result.element

    def _define(self, dtype: str, text: str, varies: bool, stored: bool = False) -> Value:
        result = Value(self._name(), dtype, varies, stored)
        if varies:
            self.lines.append(f"{declared(result)} {result.name};")
            self.lines += _assigned(result, text)
        else:
            self.lines.append(f"const {result.type} {result.name} = {text};")
        return result

    def _name(self) -> str:
        self._made += 1
        return f"{self._prefix}{self._made}"


def _are_pairs(*values: Value) -> bool:
    """Whether values are 16-bit floats of which an instruction takes two."""
    of_halves = all(each.stored and each.dtype in _HALVES for each in values)
    return of_halves and any(each.varies for each in values)


def _is_leaky_relu(choice: Any) -> bool:
    """Whether a choice is that of x where it is positive, and else of x times at most one.

    Then it is the greater of both, whatever x is: also infinite, or a zero of either sign.
    """
    condition, x, scaled = choice.condition, choice.true_value, choice.false_value
    if not isinstance(condition, tirx.LT) or not isinstance(scaled, tirx.Mul):
        return False
    zero, slope = condition.a, scaled.b
    return (
        all(isinstance(each, tirx.FloatImm) for each in (zero, slope))
        and float(zero.value) == 0
        and 0 < float(slope.value) <= 1
        and tvm_ffi.structural_equal(condition.b, x)
        and tvm_ffi.structural_equal(scaled.a, x)
    )


def _is_number(expression: Any) -> bool:
    """Whether it is a constant and no NaN, which every form of a minimum gives for a NaN."""
    return isinstance(expression, tirx.FloatImm) and not np.isnan(expression.value)


def _form(kind: type, dtype: str) -> str:
    """How C++ writes an operator."""
    function = _PREFIX.get(kind)
    if dtype.startswith(("int", "uint")):
        function = _WRAPPING.get(kind, function)
    return f"({{}} {_INFIX[kind]} {{}})" if function is None else f"{function}({{}}, {{}})"


def can_be_moved(condition: Any, yes: Any, no: Any, leaves: KnownLeaves) -> bool:
    """Whether a guarded load can be one of the first elements instead, where the guard is false.

    There must be such elements, and what its address depends on must be read by the condition.
    """
    if not isinstance(yes, tvm.ir.TensorLoad) or not isinstance(no, tirx.IntImm | tirx.FloatImm):
        return False
    if not leaves.has_elements(yes.source):
        return False
    read = list(unguarded_loads(condition))
    return all(
        any(tvm_ffi.structural_equal(load, other) for other in read)
        for load in loads_of(yes.indices[0])
    )


def in_32_bits(position: Any) -> Any:
    """A position modulo 2 to the 32, which GPUs compute and extend with one instruction each.

    It is the position itself if that is in a short leaf, whatever its parts are.
    """
    kind = type(position)
    if kind in (tirx.Add, tirx.Sub, tirx.Mul):
        return kind(in_32_bits(position.a), in_32_bits(position.b))
    if kind is tirx.Select:
        sides = (position.true_value, position.false_value)
        return tirx.Select(position.condition, *map(in_32_bits, sides))
    if kind is tirx.IntImm:
        return tirx.IntImm("uint32", int(position.value) % (1 << 32))
    if kind is tirx.Cast and str(position.value.ty.dtype) in ("int32", "int64"):
        return in_32_bits(position.value)
    return tirx.Cast("uint32", position)


def declared(value: Value) -> str:
    """The C++ type of a variable that holds a value."""
    return f"Vector<{value.type}, count>" if value.varies else value.type


def _as_vector(value: Value) -> str:
    """A 16-bit float as a vector in its own type."""
    kind = stored_type(value.dtype)
    if value.varies:
        return value.name if value.stored else f"narrow<{kind}>({value.name})"
    single = value.name if value.stored else value.narrow
    return f"splat<{kind}, count>({single})"


def result_of(value: Value, kind: str = "Data") -> list[str]:
    """Statements that make ``result`` of a value: a ``Vector`` of a type in memory."""
    if value.packed:
        return [f"const auto result = bit_cast<Vector<{kind}, count>>({value.name});"]
    element = value.narrow
    if value.dtype == "bool":
        element = f"static_cast<unsigned char>({element})"
    return [
        f"Vector<{kind}, count> result;",
        "#pragma unroll",
        f"for (int i = 0; i < count; ++i) result.at[i] = bit_cast<{kind}>({element});",
    ]


def declared_in_struct(value: Value) -> str:
    """The C++ type of a field that holds a value."""
    return f"tvm_scatter::{declared(value)}" if value.varies else declared(value)


def _assigned(value: Value, text: str) -> list[str]:
    if not value.varies:
        return [f"{value.name} = {text};"]
    loop = f"for (int i = 0; i < count; ++i) {value.name}.at[i] = {text};"
    return ["#pragma unroll", loop]


def _multiple(offset: Any) -> int:
    """The largest number of elements of an access that certainly divides an offset."""
    found = Analyzer().modular_set(offset)
    lanes = _MOST_LANES
    while int(found.coeff) % lanes or int(found.base) % lanes:
        lanes //= 2
    return lanes


def _literal(value: Any, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "float64":
        return f"bit_cast<double>({np.float64(value).view(np.uint64)}ull)"
    if dtype in _HALVES:
        bits = int(np.asarray(value).astype(numpy_dtype(dtype)).view(np.uint16))
        return f"bit_cast<{stored_type(dtype)}>(static_cast<unsigned short>({bits}))"
    if dtype == "float32":
        return f"bit_cast<float>({np.float32(value).view(np.uint32)}u)"
    number = int(value)
    text = f"{number}ull" if number > np.iinfo(np.int64).max else f"{number}ll"
    if number == np.iinfo(np.int64).min:
        text = f"({number + 1}ll - 1)"
    return f"static_cast<{computed_type(dtype)}>({text})"
