"""The loops that torch.onnx writes for ``embedding_bag``, as reductions of segments.

A loop takes a slice of rows for each bag and adds them up, or takes their mean or maximum. The
older exporter collects the results of an iteration; the newer one inserts them in a sequence, and
counts by itself. With ``padding_idx`` an inner loop lists the rows that are no padding.
"""

from __future__ import annotations

from typing import Any

from .onnx_loops import Counting, readers, used
from .onnx_terms import Found, Pattern, Terms, is_end

#: The operator that takes the place of a loop. Its inputs are rows, offsets, and optionally the
#: number of bags, the words, the word that is padding, and weights of the rows.
SEGMENT_REDUCE = "tvm_scatter_SegmentReduce"

_PLACE = ("Reshape", "i", -1)
_SLICED = (
    ("Slice", "offsets", _PLACE, ("Add", _PLACE, 1)),
    ("Slice", "offsets", ("Add", _PLACE, 1), ("Add", _PLACE, 2)),
)
_PART = ("Slice", "rows", *_SLICED)
_SUM = ("ReduceSum", _PART, 0, 1)
_DENOMINATOR = ("Sub", "size", _SLICED[0])
_LAST = ("Equal", "i", "last")
#: The last bag of a maximum ends with the rows, wherever the last offset is. That of a mean does
#: not, but its sum is divided by all rows from its first on. So does PyTorch.
_OF_BAGS: dict[str, Pattern] = {
    "sum": _SUM,
    "mean": (
        "If",
        _LAST,
        (
            "If",
            ("Greater", _DENOMINATOR, 0),
            ("Div", _SUM, [("Cast", _DENOMINATOR), _DENOMINATOR]),
            _SUM,
        ),
        ("ReduceMean", _PART, 0, 1),
    ),
    "max": ("ReduceMax", ("If", _LAST, ("Slice", "rows", _SLICED[0], "size"), _PART), 0, 1),
}
_START, _END = ("Gather", "offsets", "i", 0), ("Gather", "offsets", ("Add", "i", 1), 0)
_KEPT = ("Gather", "rows", "listed", 0)
_OF_WORDS: dict[str, Pattern] = {
    "sum": ("ReduceSum", _KEPT, 0, 1),
    "mean": ("ReduceMean", _KEPT, 0, 1),
    "max": ("ReduceMax", _KEPT, 0, 1),
}
_WORD = ("Gather", "words", "j", 0)
#: The places that the inner loop lists after an iteration.
_LISTED = (
    "If",
    ("Not", ("Equal", ("If", ("Less", _WORD, 0), ("Add", _WORD, "count"), _WORD), "padding")),
    ("Concat", "before", ("Reshape", "j", -1), 0),
    "before",
)
_FIRST, _BEHIND = (("Unsqueeze", ("Gather", each, "i", 0), 0) for each in ("offsets", "ends"))


def without_bags(graph: Any) -> Any:
    """The graph, or a copy in which reductions of segments are in the place of such loops.

    Parameters
    ----------
    graph : onnx.GraphProto
        The graph of a model.
    """
    if not any(node.op_type == "Loop" for node in graph.node):
        return graph
    terms = Terms(graph)
    replaced: dict[str, list[Any]] = {}
    for node in graph.node:
        nodes = []
        if node.op_type == "Loop":
            nodes = _by_iterations(terms, node)
        elif node.op_type == "ConcatFromSequence":
            nodes = _by_sequence(terms, graph, node)
        if nodes and _reads_only(graph, nodes):
            replaced[node.output[0]] = nodes
    if not replaced:
        return graph
    copy = type(graph)()
    copy.CopyFrom(graph)
    del copy.node[:]
    nodes = [new for node in graph.node for new in replaced.get(node.output[0], [node])]
    copy.node.extend(used(nodes, {each.name for each in graph.output}))
    return copy


def _reads_only(graph: Any, nodes: list[Any]) -> bool:
    """Whether nodes need nothing of the bodies of loops."""
    outside = {each.name for each in (*graph.input, *graph.initializer)}
    outside.update(name for node in (*graph.node, *nodes) for name in node.output)
    return outside.issuperset(name for node in nodes for name in node.input if name)


def _by_iterations(terms: Terms, loop: Any) -> list[Any]:
    """What takes the place of a loop of the older exporter."""
    (body,) = (each.g for each in loop.attribute if each.name == "body")
    if len(loop.input) != 2 or len(loop.output) != 1 or len(body.output) != 2:
        return []
    trips, goes_on = loop.input
    again, result = (each.name for each in body.output)
    always = terms.matches([("Cast", "on"), "on"], again, {"on": goes_on})
    if not (terms.matches(1, goes_on, {}) and always):
        return []
    for how, reduce in (("sum", "ReduceSum"), ("mean", "ReduceMean"), ("max", "ReduceMax")):
        for rows in _rows_of_part():
            found: Found = {"i": body.input[0].name}
            if (
                terms.matches((reduce, rows, 0, 0), result, found)
                and _follow(terms, found)
                and _counts(terms, trips, found["ends"])
            ):
                return _whole_rows(found, loop.output[0], how)
    return []


def _rows_of_part() -> list[Pattern]:
    words = ("Gather", "table", ("Slice", "words", _FIRST, _BEHIND), 0)
    weights = ("Unsqueeze", ("Slice", "weights", _FIRST, _BEHIND), 1)
    return [words, ("Mul", words, weights)]


def _follow(terms: Terms, found: Found) -> bool:
    """Whether the ends are the offsets without the first one."""
    sliced = terms.matches(("Slice", "offsets", 1, "end"), found["ends"], found)
    return sliced and is_end(terms.constant(found["end"]))


def _counts(terms: Terms, count: str, vector: str) -> bool:
    """Whether a value is the length of a vector."""
    return terms.matches(("Gather", ("Shape", "vector"), 0, 0), count, {"vector": vector})


def _whole_rows(found: Found, result: str, how: str) -> list[Any]:
    from onnx import helper

    rows, count = f"{result}/rows", f"{result}/count"
    operands = [rows, found["offsets"], count]
    if "weights" in found:
        operands += ["", "", found["weights"]]
    return [
        helper.make_node("Gather", [found["table"], found["words"]], [rows], axis=0),
        helper.make_node("Shape", [found["ends"]], [count]),
        helper.make_node(SEGMENT_REDUCE, operands, [result], how=how, empty="minus infinity"),
    ]


def _by_sequence(terms: Terms, graph: Any, joined: Any) -> list[Any]:
    """What takes the place of a sequence that a loop of the newer exporter has made."""
    loop = Counting.of(terms, joined.input[0])
    if loop is None or readers(graph, loop.node) != {joined.input[0]: 1}:
        return []
    found: Found = {"i": loop.place, "before": loop.before}
    fits = (
        terms.matches(("ConcatFromSequence", joined.input[0], 0), joined.output[0], {})
        and terms.matches(0, loop.first, {})
        and terms.matches(("SequenceEmpty",), loop.empty, {})
        and terms.matches(("Add", "i", 1), loop.following, found)
        and terms.matches(("Less", ("Add", "i", 1), "bags"), loop.again, found)
        and terms.matches([("Less", 0, "bags"), 1], loop.goes_on, found)
        and terms.matches(("SequenceInsert", "before", "row"), loop.after, found)
    )
    return _reduced(terms, found, joined.output[0]) if fits else []


def _reduced(terms: Terms, found: Found, result: str) -> list[Any]:
    nothing = [("Expand", 0, "any"), "nothing"]
    of_bags = ("Equal", *_SLICED)
    of_words = ("Equal", ("Size", "listed"), 0)
    for condition, patterns in ((of_bags, _OF_BAGS), (of_words, _OF_WORDS)):
        for how, pattern in patterns.items():
            tried = dict(found)
            if not terms.matches(("If", condition, nothing, pattern), found["row"], tried):
                continue
            holds = (
                ("nothing" not in tried or _is_zero(terms, tried["nothing"]))
                and ("last" not in tried or _is_last(terms, tried))
                and ("listed" not in tried or _lists_words(terms, tried))
            )
            return _segments(terms, tried, result, how) if holds else []
    return []


def _is_zero(terms: Terms, name: str) -> bool:
    value = terms.constant(name)
    return value is not None and not value.any()


def _is_last(terms: Terms, found: Found) -> bool:
    bags, last = (terms.constant(found[each]) for each in ("bags", "last"))
    if bags is not None and last is not None:
        return bool(bags == last + 1)
    return terms.matches(("Sub", "bags", 1), found["last"], found)


def _lists_words(terms: Terms, found: Found) -> bool:
    """Whether an inner loop lists the places of a bag whose words are not padding."""
    loop = Counting.of(terms, found["listed"])
    if loop is None:
        return False
    empty = terms.constant(loop.empty)
    inner: Found = {"i": found["i"], "j": loop.place, "before": loop.before}
    fits = (
        terms.matches(("Less", _START, _END), loop.goes_on, inner)
        and terms.matches(_START, loop.first, inner)
        and terms.matches(("Add", "j", 1), loop.following, inner)
        and terms.matches(("Less", ("Add", "j", 1), _END), loop.again, inner)
        and terms.matches(_LISTED, loop.after, inner)
        and (_is_empty_shape(terms, loop.empty) or (empty is not None and empty.size == 0))
    )
    found.update((each, inner[each]) for each in ("offsets", "words", "padding") if each in inner)
    return fits


def _is_empty_shape(terms: Terms, name: str) -> bool:
    """Whether a value is the shape of no axes: how a program says that a list is empty."""
    from onnx import helper

    node, _ = terms.producers.get(terms.plain(name), (None, 0))
    if node is None or node.op_type != "Shape":
        return False
    said = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return said.get("start", 0) == said.get("end", -1) == 0


def _segments(terms: Terms, found: Found, result: str, how: str) -> list[Any]:
    from onnx import helper

    nodes, count = [], found["bags"]
    if terms.constant(count) is None:
        # The importer knows the sizes of a shape, but not what Size counts.
        known = {"bags": count}
        with_last = terms.matches(("Sub", ("Size", "given"), 1), count, known)
        if not (with_last or terms.matches(("Size", "given"), count, known)):
            return []
        if with_last and not _has_ends(terms, found["offsets"], known):
            return []
        count = "" if with_last else f"{result}/count"
        if count:
            nodes.append(helper.make_node("Shape", [known["given"]], [count]))
    operands = [found["rows"], found["offsets"], count]
    if "words" in found:
        operands += [found["words"], found["padding"]]
    options = {"how": how, "empty": "zero", "to_end": int("last" in found)}
    return [*nodes, helper.make_node(SEGMENT_REDUCE, operands, [result], **options)]


def _has_ends(terms: Terms, offsets: str, known: Found) -> bool:
    """Whether the offsets are as many as those of which the last one ends a bag."""
    return terms.matches(["given", ("ScatterElements", "given", -1, "end", 0)], offsets, known)
