"""What is asked of a scatter by an attribute is asked of what any pass makes of it.

The attributes are those that the operators have: a new one is held to this without being named.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import tvm_scatter
from tvm_scatter.lowering import legalize
from tvm_scatter.lowering.batched import is_batch, scatters_of
from tvm_scatter.lowering.lower import lower
from tvm_scatter.lowering.plan import plan
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.scatter_call import FACTS, ScatterCall, is_scatter
from tvm_scatter.options import Options
from tvm_scatter.passes import (
    DeferBoundsCheck,
    FoldBroadcastIndex,
    HorizontalFusion,
    MergeScatterChains,
    ReuseBuffers,
)

_LLVM = tvm.target.Target("llvm")
_CUDA = tvm.target.Target("nvidia/nvidia-h100")
_SHAPE = (1000, 16)


def parameter(name, shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


DATA = parameter("data", _SHAPE)
ROWS = [parameter(f"rows{at}", (250, 16)) for at in range(2)]
INDICES = [parameter(f"index{at}", (250,), "int64") for at in range(2)]
#: A call of each operator, as it is without any attribute.
CALLS = {
    ops.SCATTER_ELEMENTS: ops.scatter_elements(DATA, parameter("i", (250, 16), "int64"), ROWS[0]),
    ops.INDEX_PUT: ops.index_put(DATA, [INDICES[0]], ROWS[0]),
    ops.SCATTER_ND: ops.scatter_nd(DATA, parameter("i", (250, 1), "int64"), ROWS[0]),
    ops.COPY_RANGES: ops.copy_ranges(DATA, [ROWS[0]], [(0, 0, 0, 250)], 0),
}
#: Attributes that say where an operator writes.
_PLACES = ("axis", "axes", "ranges")
_OTHERS = {"reduction": "add", "operator": "somebody's", "fill": "0", "known": "unique"}


def changed(operator):
    """For each attribute that does not say where the operator writes, another value."""
    found = {}
    for name, value in CALLS[operator].attrs.items():
        if name not in _PLACES:
            found[name] = _OTHERS[name] if isinstance(value, str) else type(value)(not value)
    return found


def asked(call, **wanted):
    """A call that asks for more; where it writes stays as it is."""
    return ScatterCall.from_call(call).replace(**wanted).to_call()


def put(emit, data, at, updates, axis=0, **wanted):
    index = at if isinstance(at, relax.Expr) else relax.const(np.asarray(at), "int64")
    return emit(asked(ops.index_put(data, [index], updates, [axis]), **wanted))


def of_elements(emit, wanted):
    return of_broadcast_index(emit, ops.scatter_elements, wanted[0])


def of_stock_elements(emit, wanted):
    reduction = wanted[0].get("reduction", "update")
    return of_broadcast_index(emit, partial(relax.op.scatter_elements, reduction=reduction), {})


def of_broadcast_index(emit, make, wanted):
    column = emit(relax.op.expand_dims(INDICES[0], 1))
    index = emit(relax.op.broadcast_to(column, (250, 16)))
    call = make(DATA, index, ROWS[0])
    return [emit(asked(call, **wanted) if wanted else call)]


def element_of_a_row(emit, wanted):
    row = emit(relax.op.take(DATA, relax.const(3, "int64"), 0))
    value = emit(relax.op.sum(ROWS[0]))
    written = put(emit, row, [5], value, **wanted[0])
    back = emit(relax.op.expand_dims(written, 0))
    return [put(emit, DATA, [3], back, **(wanted[1] | {"reduction": "update"}))]


def column_of_rows(emit, wanted):
    part = emit(relax.op.strided_slice(DATA, [0], [2], [5]))
    value = emit(relax.op.sum(ROWS[0]))
    written = put(emit, part, [5], value, axis=1, **wanted[0])
    return [put(emit, DATA, [2, 3, 4], written, **(wanted[1] | {"reduction": "update"}))]


def known_rows(emit, wanted):
    tensor = DATA
    for start, rows, more in zip((0, 100), ROWS, wanted, strict=True):
        tensor = put(emit, tensor, np.arange(start, start + 250), rows, **more)
    return [tensor]


def rows_in_a_chain(emit, wanted):
    tensor = DATA
    for index, rows, more in zip(INDICES, ROWS, wanted, strict=True):
        tensor = put(emit, tensor, index, rows, **more)
    return [tensor]


def tuples_in_a_chain(emit, wanted):
    tensor = DATA
    for index, rows, more in zip(INDICES, ROWS, wanted, strict=True):
        tuples = emit(relax.op.expand_dims(index, 1))
        tensor = emit(asked(ops.scatter_nd(tensor, tuples, rows), **more))
    return [tensor]


def elements_in_a_chain(emit, wanted):
    tensor = DATA
    for index, rows, more in zip(INDICES, ROWS, wanted, strict=True):
        column = emit(relax.op.expand_dims(index, 1))
        index = emit(relax.op.broadcast_to(column, (250, 16)))
        tensor = emit(asked(ops.scatter_elements(tensor, index, rows), **more))
    return [tensor]


def independent(emit, wanted):
    return [
        put(emit, DATA, index, rows, **more)
        for index, rows, more in zip(INDICES, ROWS, wanted, strict=True)
    ]


def new_data(emit, wanted):
    data = emit(relax.op.negative(DATA))
    return [put(emit, data, INDICES[0], ROWS[0], **wanted[0])]


def new_data_of_copied_ranges(emit, wanted):
    data = emit(relax.op.negative(DATA))
    return [emit(asked(ops.copy_ranges(data, [ROWS[0]], [(0, 0, 0, 250)], 0), **wanted[0]))]


#: The pass, the target, the program, and the operator whose attributes it sets.
REWRITES = {
    "fold": (FoldBroadcastIndex, _LLVM, of_elements, ops.SCATTER_ELEMENTS),
    "fold of TVM's": (FoldBroadcastIndex, _LLVM, of_stock_elements, ops.SCATTER_ELEMENTS),
    "nested": (MergeScatterChains, _LLVM, element_of_a_row, ops.INDEX_PUT),
    "nested in a slice": (MergeScatterChains, _LLVM, column_of_rows, ops.INDEX_PUT),
    "copy ranges": (MergeScatterChains, _LLVM, known_rows, ops.INDEX_PUT),
    "select rows": (MergeScatterChains, _CUDA, rows_in_a_chain, ops.INDEX_PUT),
    "join": (MergeScatterChains, _LLVM, rows_in_a_chain, ops.INDEX_PUT),
    "join of tuples": (MergeScatterChains, _LLVM, tuples_in_a_chain, ops.SCATTER_ND),
    "join of elements": (MergeScatterChains, _LLVM, elements_in_a_chain, ops.SCATTER_ELEMENTS),
    "batch": (partial(HorizontalFusion, always=True), _LLVM, independent, ops.INDEX_PUT),
    "in place": (ReuseBuffers, _LLVM, new_data, ops.INDEX_PUT),
    "copy ranges in place": (ReuseBuffers, _LLVM, new_data_of_copied_ranges, ops.COPY_RANGES),
}
_MERGING = ("copy ranges", "select rows", "join", "join of tuples", "join of elements")
#: What TVM's own operator cannot be asked for.
_ONLY_OURS = (
    "fill",
    "ordered",
    *FACTS,
    "checked",
    "include_self",
    "wrap_negative",
    "operator",
    "in_place",
    "leaves_out",
    "temporary",
)
CASES = [
    (rewrite, name)
    for rewrite, (*_, operator) in REWRITES.items()
    for name in changed(operator)
    if rewrite != "fold of TVM's" or name not in _ONLY_OURS
]


def module(build, *wanted):
    """A function of a program whose scatters ask for something."""
    builder = relax.BlockBuilder()
    with builder.function("main", [DATA, *ROWS, *INDICES]):
        with builder.dataflow():
            output = builder.emit_output(relax.Tuple(build(builder.emit, wanted)))
        builder.emit_func_output(output)
    return builder.get()


def scatters(mod):
    """The scatters of a module, each of a batch by itself."""
    found = []

    def visit(expression):
        if is_scatter(expression):
            found.append(ScatterCall.from_call(expression))
        elif is_batch(expression):
            found.extend(scatters_of(expression))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def changed_by(rewrite, *wanted):
    """The scatters before and after, and whether the pass has changed anything."""
    make, target, build, _ = REWRITES[rewrite]
    before = module(build, *wanted)
    with target, tvm_scatter.options(bounds="drop"):
        after = make()(before)
    return scatters(after), not tvm_ffi.structural_equal(before, after)


def is_kept(rewrite, name, value, call):
    """Whether a call asks for what was asked for, or need not."""
    if name == "operator":
        return value in call.operator
    if rewrite in _MERGING and name in (*FACTS, "wrap_negative"):
        # These are about the indices of one scatter, and found anew for those of all.
        return True
    if rewrite.startswith("nested") and name in ("in_range", "known"):
        # The inner one's indices and the outer one's together are not looked at yet.
        return True
    if rewrite == "select rows" and name == "include_self":
        # It means nothing to updates; their numbers begin from -1.
        return True
    return getattr(call, name) == value


@pytest.mark.parametrize("rewrite", REWRITES)
def test_every_rewrite_happens(rewrite) -> None:
    assert changed_by(rewrite, {}, {})[1]


@pytest.mark.parametrize(("rewrite", "name"), CASES)
def test_what_is_asked_for_is_kept(rewrite, name) -> None:
    value = changed(REWRITES[rewrite][-1])[name]
    after, _ = changed_by(rewrite, {name: value}, {name: value})
    written_back = name == "reduction" and rewrite.startswith("nested")
    assert after and (written_back or all(is_kept(rewrite, name, value, call) for call in after))
    if written_back:
        assert [getattr(call, name) for call in after] == [value]


@pytest.mark.parametrize("name", changed(ops.INDEX_PUT))
@pytest.mark.parametrize("rewrite", ["nested", "nested in a slice", *_MERGING[:3], "batch"])
def test_what_is_asked_for_of_one_only(rewrite, name) -> None:
    """They stay apart, unless it is nothing but a name or what is known of one's indices."""
    value = changed(ops.INDEX_PUT).get(name, True)
    for wanted in ({name: value}, {}), ({}, {name: value}):
        after, happened = changed_by(rewrite, *wanted)
        if name in ("operator", "wrap_negative") and rewrite != "batch":
            continue
        if name in FACTS:
            # Of all together only what holds for all is known.
            held = [getattr(call, name) for call in after]
            assert not happened or rewrite != "batch" or held == [type(value)()] * 2
            continue
        if rewrite.startswith("nested") and name in ("reduction", "include_self"):
            # The inner one reduces; the outer one writes back.
            assert happened or name == "include_self"
            continue
        assert not happened and len(after) == 2, wanted


@pytest.mark.parametrize("operator", [ops.SCATTER_ELEMENTS, ops.INDEX_PUT, ops.SCATTER_ND])
def test_what_is_asked_for_reaches_the_implementation(operator) -> None:
    def lowered(**wanted):
        call = ScatterCall.from_call(CALLS[operator]).replace(**wanted)
        found = lower(call, Options(bounds="raise"), "llvm")
        wraps = found.check.wrap_negative
        return found.problem, found.signature, wraps, found.temporary, found.known

    for name, value in changed(operator).items():
        assert lowered(**{name: value}) != lowered(), name


@pytest.mark.parametrize("name", changed(ops.INDEX_PUT))
def test_legalized_early_or_late(name, monkeypatch) -> None:
    """Where the host waits once, scatters are legalized by another pass than elsewhere."""
    # What is in place would write to a caller's tensor before the host knows.
    wanted = {name: changed(ops.INDEX_PUT)[name], "temporary": True}
    if name == "fill":
        # Plain updates are computed by what reads the data.
        wanted["reduction"] = "add"
    mod = module(independent, wanted, wanted)
    seen = []

    def spy(*arguments):
        found = plan(*arguments)
        seen.extend(
            (each.problem, each.signature.operator, each.temporary) for each in found.lowered
        )
        return found

    monkeypatch.setattr(legalize, "plan", spy)
    found = []
    for make in (DeferBoundsCheck, relax.transform.LegalizeOps):
        seen.clear()
        with _CUDA, tvm_scatter.options(bounds="raise"):
            make()(mod)
        found.append(list(seen))
    assert len(found[0]) == 2 and found[0] == found[1]


@pytest.mark.parametrize("rewrite", REWRITES)
def test_passes_run_a_second_time(rewrite) -> None:
    """As they do where a module that went through them is compiled."""
    _, target, build, _ = REWRITES[rewrite]
    passes = [
        FoldBroadcastIndex(),
        MergeScatterChains(True),
        ReuseBuffers(),
        HorizontalFusion(True),
    ]
    with target, tvm_scatter.options(bounds="drop"):
        once = tvm.transform.Sequential(passes)(module(build, {}, {}))
        twice = tvm.transform.Sequential(passes)(once)
    assert tvm_ffi.structural_equal(once, twice)
