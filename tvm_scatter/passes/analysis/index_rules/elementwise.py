"""Rules of operators that compute each element by itself, and of broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.ops.shapes import is_one, same_size
from tvm_scatter.passes.analysis.index_facts import ELEMENTWISE, IndexFacts
from tvm_scatter.passes.analysis.integer_ranges import Unproven, number

from .rule import Known, Rule, exactly, shape_of


def carried(facts: IndexFacts, shape: Sequence[Any], wanted: Sequence[Any]) -> IndexFacts:
    """What is known of a tensor of some shape once it is broadcast."""
    offset = len(wanted) - len(shape)
    kept = [same_size(size, wanted[axis + offset]) for axis, size in enumerate(shape)]
    whole = all(kept) and all(map(is_one, wanted[:offset]))
    return facts.but(
        distinct=frozenset(axis + offset for axis in facts.distinct if kept[axis]),
        ascending=facts.uniform or (facts.ascending and whole),
    )


def elementwise(name: str, operands: slice = slice(None)) -> Rule:
    def rule(call: relax.Call, known: Known) -> IndexFacts:
        shape = shape_of(call)
        facts = [carried(known.of(each), shape_of(each), shape) for each in call.args[operands]]
        return ELEMENTWISE[name](known.ranges, *facts)

    return rule


def cast(call: relax.Call, known: Known) -> IndexFacts:
    if str(call.ty.dtype) == "bool":
        raise Unproven
    return known.of(call.args[0])


def clip(call: relax.Call, known: Known) -> IndexFacts:
    data, least, greatest = call.args
    facts = known.of(data)
    low, high = (_limit(each, str(call.ty.dtype), known) for each in (least, greatest))
    return ELEMENTWISE["maximum"](
        known.ranges, ELEMENTWISE["minimum"](known.ranges, facts, high), low
    )


def _limit(value: Any, dtype: str, known: Known) -> IndexFacts:
    """A limit, which is cast to the type of the data."""
    found = exactly(number(value))
    if not known.ranges.fit(found, dtype):
        raise Unproven
    return IndexFacts(found, uniform=True)
