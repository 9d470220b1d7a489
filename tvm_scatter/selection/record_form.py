"""Checks that a tuning record has the form that TVM writes, before TVM reads it.

TVM's reader may end the process on a record of any other form.
"""

from __future__ import annotations

from typing import Any

from tvm_scatter.errors import ScatterError


def check_record(record: Any) -> None:
    """Check a record that was parsed from JSON.

    Raises
    ------
    ScatterError
        If it does not have the form of a record.
    """
    if not (isinstance(record, list) and len(record) == 4):
        raise ScatterError("records: it is no list of trace, times, target and arguments.")
    trace, seconds, target, arguments = record
    _need(isinstance(trace, list) and len(trace) == 2, "trace")
    steps, decisions = trace
    _need(isinstance(steps, list) and all(map(_is_step, steps)), "trace")
    _need(isinstance(decisions, list), "trace")
    _need(all(_is_decision(decision, len(steps)) for decision in decisions), "trace")
    _need(seconds is None or _all(seconds, (int, float)), "times")
    _need(target is None or isinstance(target, dict), "target")
    _need(arguments is None or isinstance(arguments, list), "arguments")


def _need(holds: bool, part: str) -> None:
    if not holds:
        raise ScatterError(f"records: its {part} cannot be read.")


def _is_step(step: Any) -> bool:
    if not (isinstance(step, list) and len(step) == 4 and isinstance(step[0], str)):
        return False
    kind, inputs, attributes, outputs = step
    if not (isinstance(inputs, list) and isinstance(attributes, list) and _all(outputs, str)):
        return False
    # Only these keys, which this package writes: for others, TVM parses a graph from the text.
    if kind == "GetSBlock":
        return not inputs and _all(attributes, str) and len(attributes) == 2 and len(outputs) == 1
    if kind == "Annotate":
        return len(inputs) == 2 and all(map(_is_input, inputs)) and _all(attributes, str)
    if kind == "SampleCategorical":
        return len(outputs) == 1 and all(_all(each, (int, float)) for each in attributes)
    return kind == "EnterPostproc" and not (inputs or attributes or outputs)


def _is_input(value: Any) -> bool:
    """Whether a value is a number, a name or a quoted text. TVM parses other text as a graph."""
    if isinstance(value, str):
        return value.isidentifier() or (len(value) > 1 and value[0] == value[-1] == '"')
    return _all([value], (int, float))


def _is_decision(decision: Any, steps: int) -> bool:
    return (
        isinstance(decision, list)
        and len(decision) == 2
        and _all(decision[:1], int)
        and 0 <= decision[0] < steps
    )


def _all(values: Any, kinds: Any) -> bool:
    """Whether ``values`` is a list of the given types. Booleans do not count as numbers."""
    return isinstance(values, list) and all(
        isinstance(value, kinds) and not isinstance(value, bool) for value in values
    )
