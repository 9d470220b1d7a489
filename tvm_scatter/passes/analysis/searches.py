"""What is known of the results of searches in sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_scatter.ops.shapes import is_one

from .index_facts import IndexFacts
from .integer_ranges import Range, number


def of_search(size: Any, values: IndexFacts | None) -> IndexFacts:
    """What is known of the positions of values in one sequence.

    A binary search ends at one of the positions from 0 to the size, whether the sequence is sorted
    or not. It never goes to the left for a value where it goes to the right for a lesser one.
    So the positions of ascending values ascend.
    """
    return IndexFacts(Range(0, number(size)), ascending=values is not None and values.ascending)


def of_searching_function(shapes: Sequence[Sequence[Any]], values: IndexFacts | None) -> IndexFacts:
    """What is known of the result of a function that searches in lines of sequences.

    Parameters
    ----------
    shapes : sequence of shapes
        Those of the sequences, (lines, size), and of the values, (lines, count).
    values : IndexFacts or None
        What is known of the values.
    """
    sequences, searched = shapes
    facts = of_search(sequences[-1], values)
    return facts if is_one(searched[0]) else facts.but(ascending=False)
