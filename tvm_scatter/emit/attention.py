"""Describes how a kind of target computes attention without a matrix of scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rows:
    """Rows of a tensor, one for each query or key, whose elements lie side by side.

    Attributes
    ----------
    tensor : buffer
        A flat one.
    begin : expression
        Where the first row begins, for some coordinates of the problem.
    stride : int or expression
        From a row to the next.
    """

    tensor: Any
    begin: Any
    stride: Any


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes of a problem.

    Attributes
    ----------
    outer : sequence of (int or expression)
        How many coordinates there are of each kind, such as sequences and heads.
    queries, keys : int or expression
        How many there are for each coordinate.
    depth, width : int
        The elements of a query or a key, and of a value.
    shared : int
        How many neighbours along the last coordinate have the same keys and values.
    """

    outer: Sequence[Any]
    queries: Any
    keys: Any
    depth: int
    width: int
    shared: int


@dataclass(frozen=True)
class AttentionProblem:
    """Queries, keys and values for each of some coordinates, and how a score is computed.

    Attributes
    ----------
    dtype : str
        The type of queries, keys and values. Products are added up in single precision.
    axes : sequence of Var
        The coordinates.
    sizes : AttentionSizes
        How many there are, of queries and keys, too.
    query, key, value, out : Rows
        The tensors.
    factor : float
        What the product of a query and a key is multiplied by.
    product, query_at, key_at : Var
        That product, and which query and key it is of.
    score : expression
        The score, over these and the coordinates.
    seen_score : expression
        The same of a key that is neither too early nor too late for its query.
    masks_only : bool
        Whether each score is the product or minus infinity.
    empty_is_zero : bool
        Whether the result is zero where all scores are minus infinity, and not NaN.
    first, end : expression or None
        Scores are minus infinity for keys before the first one, and from the end on. Both are
        expressions over the query that do not fall from one to the next, and over coordinates but
        the last.
    """

    dtype: str
    axes: Sequence[Any]
    sizes: AttentionSizes
    query: Rows
    key: Rows
    value: Rows
    out: Rows
    factor: float
    product: Any
    query_at: Any
    key_at: Any
    score: Any
    seen_score: Any
    masks_only: bool
    empty_is_zero: bool
    first: Any
    end: Any


@dataclass(frozen=True)
class Attention:
    """What a kind of target does.

    Attributes
    ----------
    refusal : callable
        Why it does not compute attention with a number of elements of each key and of each value,
        as a clause; ``None`` if it does.
    workspace : callable
        The numbers of single precision that it needs memory for beside its tensors, for some sizes.
    emit : callable
        Emits the statements for a problem, given a flat buffer for these if there are any.
    """

    refusal: Callable[[int, int], str | None]
    workspace: Callable[[AttentionSizes], Any]
    emit: Callable[[AttentionProblem, Any], None]
