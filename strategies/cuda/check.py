"""The bounds check on the GPU: one launch, in which each block has a flag."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.index_check import CheckOperands, DeviceCheck
from tvm_scatter.emit.mailbox import STATUS, Findings, Mailbox
from tvm_scatter.problem.sizes import at_least, at_most, ceil_div
from tvm_scatter.strategies.cuda.codegen.launch import run_routine
from tvm_scatter.strategies.cuda.codegen.source import c_type, routine

_THREADS = 1024
_ENTRIES_OF_THREAD = 8
#: The most blocks: two for each multiprocessor of large GPUs. The host reads a flag of each.
_MOST_BLOCKS = 256


def _blocks(entries: Any) -> int:
    """How many blocks check a number of entries."""
    if not isinstance(entries, int):
        return _MOST_BLOCKS
    return at_most(at_least(ceil_div(entries, _THREADS * _ENTRIES_OF_THREAD), 1), _MOST_BLOCKS)


def _check_indices(operands: CheckOperands, findings: Findings, call: Any) -> None:
    """Emit the launch that fills the findings."""
    parameters, values = ["void* words", "long long call"], [findings.words.data, call]
    lines = ["  BadIndex first{-1, 0, 0, 0};"]
    for component, (which, stride, offset) in enumerate(operands.components):
        index = c_type(operands.check.index_dtypes[which])
        wrap = "true" if operands.check.wraps(which) else "false"
        parameters += [
            f"void* indices{component}",
            f"long long entries{component}",
            f"long long extent{component}",
        ]
        values += [
            operands.indices[which].data,
            operands.lengths[which] // stride,
            operands.extents[component],
        ]
        lines.append(
            f"  find_bad_index<{index}, {wrap}, {_ENTRIES_OF_THREAD}>(first, "
            f"static_cast<const {index}*>(indices{component}), entries{component}, {stride}, "
            f"{offset}, extent{component}, {component});"
        )
    lines += [
        f"  int64* const flags = static_cast<int64*>(words) + {findings.first_flag};",
        f"  int64* const entries = static_cast<int64*>(words) + {findings.first_entry};",
        f"  int64* const entry = entries + blockIdx.x * {len(STATUS)};",
        "  post_finding(first, flags + blockIdx.x, call, -call, [&] {",
        *(f"    entry[{j}] = first.{name};" for j, name in enumerate(STATUS)),
        "  });",
    ]
    name, source = routine(("check",), (), parameters, "\n".join(lines))
    findings.expect(findings.parts)
    run_routine(name, source, values, findings.parts, _THREADS)


def _complete(mailbox: Mailbox, call: Any) -> None:
    """Emit the launch that sets the flag. It begins when all earlier launches are done."""
    body = (
        "  __threadfence_system();\n"
        f"  static_cast<volatile int64*>(words)[{mailbox.first_flag}] = call;"
    )
    name, source = routine(("check",), (), ["void* words", "long long call"], body)
    run_routine(name, source, [mailbox.words.data, call], 1, 1)


CHECK = DeviceCheck(_blocks, _check_indices, _complete)
