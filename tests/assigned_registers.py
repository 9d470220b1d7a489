"""Registers of PTX that are read where they may not have been written.

Such a read may be meant: a comparison, say, whose result does not count there. But ptxas may take
two loads of one place for one, each of which is done in some threads only, and then use a
comparison with what was there before both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_KERNEL = re.compile(r"\.entry (\w+)\(.*?\)[^{]*\{(.*?)\n\}", re.DOTALL)
_REGISTER = re.compile(r"%(?:p|f|fd|r|rd|rs|h|b)\d+\b")
_STATEMENT = re.compile(r"(?:@!?(?P<guard>%p\d+)\s+)?(?P<operation>\w[\w.:]*)\s*(?P<rest>.*)")
#: What writes to no register.
_NO_RESULT = ("st.", "red.", "bra", "ret", "exit", "bar.", "barrier.", "membar", "fence", "trap")


@dataclass
class _Instruction:
    written: set[str]
    read: set[str]
    #: Where it may go on, besides the next instruction.
    target: str | None = None
    ends: bool = False


@dataclass
class _Code:
    instructions: list[_Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def after(self, at: int) -> Iterator[int]:
        """The instructions that may follow one."""
        each = self.instructions[at]
        if each.target is not None:
            yield self.labels[each.target]
        if not each.ends:
            yield at + 1


def unassigned(ptx: str) -> dict[str, set[str]]:
    """The registers of each kernel that are read, and on some path to there not written."""
    found = {name: _unassigned(_parsed(body)) for name, body in _KERNEL.findall(ptx)}
    return {name: registers for name, registers in found.items() if registers}


def _unassigned(code: _Code) -> set[str]:
    written: dict[int, set[str]] = {0: set()}
    waiting = [0]
    while waiting:
        at = waiting.pop()
        known = written[at] | code.instructions[at].written
        for following in code.after(at):
            before = written.get(following)
            now = known if before is None else before & known
            if following < len(code.instructions) and now != before:
                written[following] = now
                waiting.append(following)
    return {
        register for at, known in written.items() for register in code.instructions[at].read - known
    }


def _parsed(body: str) -> _Code:
    code = _Code()
    for line in body.splitlines():
        text = line.strip()
        if text.endswith(":"):
            code.labels[text[:-1]] = len(code.instructions)
            continue
        if text.startswith("{"):  # inline assembly
            text = text[1:].removesuffix("}")
        for statement in text.split(";")[:-1]:
            if match := _STATEMENT.fullmatch(statement.strip()):
                code.instructions.append(_instruction(**match.groupdict()))
    return code


def _instruction(guard: str | None, operation: str, rest: str) -> _Instruction:
    read = {guard} if guard else set()
    if operation.startswith("bra"):
        return _Instruction(set(), read, rest.strip(), ends=guard is None)
    if operation.startswith(_NO_RESULT):
        ends = operation in ("ret", "exit", "trap") and guard is None
        return _Instruction(set(), read | set(_REGISTER.findall(rest)), ends=ends)
    vector = re.match(r"\{.*?\}", rest)
    result = vector.group() if vector else rest.split(",")[0]
    written = set(_REGISTER.findall(result))
    read |= set(_REGISTER.findall(rest[len(result) :]))
    # Where the guard does not hold, nothing is written.
    return _Instruction(set() if guard else written, read)
