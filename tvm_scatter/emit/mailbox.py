"""Mailboxes: words in page-locked memory by which a GPU tells the host something during a call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from .host_stream import HostStream
from .kept_memory import words_of

if TYPE_CHECKING:
    from typing_extensions import Self

#: The fields that describe a bad entry: its flat position in the index tensor, its component, the
#: index itself, and the extent that it exceeds. The position is -1 if all indices are good.
STATUS = ("position", "component", "index", "extent")
#: How often the host polls a flag before it waits for the stream. That wait fails if a kernel
#: failed, and then the flag will never be set.
_TURNS = 1 << 15


@dataclass(frozen=True)
class Mailbox:
    """The flags by which the parts of a launch say that they are done.

    Word 0 is the number of the call, which distinguishes its flags from those of earlier calls.
    Word 1 is a counter of the host. Word 2 is the number of parts that set a flag in this call.
    Then follows a flag for each part: the number of the call if all is well, its negative if not.

    Attributes
    ----------
    parts : int
        The largest number of parts.
    words : buffer or None
        The int64 words, which both the host and the GPU access.
    """

    parts: int
    words: Any = None

    @property
    def size(self) -> int:
        """The number of words."""
        return self.first_flag + self.parts

    @property
    def first_flag(self) -> int:
        """The position of the first part's flag."""
        return 3

    def of(self, tensor: Any) -> Self:
        """This mailbox in a tensor that is a bare handle of a PrimFunc."""
        return replace(self, words=words_of(tensor, self.size))

    def flag(self, part: Any) -> Any:
        """The flag of a part."""
        return self.words[part + self.first_flag]

    def next_call(self) -> Any:
        """Emit the beginning of a call: increment its number, and return it."""
        call = T.bind(self.words[0] + 1)
        T.buffer_store(self.words, call, [0])
        return call

    def expect(self, parts: int) -> None:
        """Emit how many parts set a flag in this call: 0 if there is nothing to wait for."""
        T.buffer_store(self.words, tirx.IntImm("int64", parts), [2])

    def await_all(self, stream: HostStream) -> None:
        """Emit the host's wait for all flags.

        The counter of the loop is a word of the mailbox, because a buffer allocated in a function
        that launches kernels would be device memory.
        """
        good = T.bind(self.words[0])
        bad = T.bind(0 - good)
        T.buffer_store(self.words, tirx.IntImm("int64", 0), [1])
        with T.serial(T.bind(self.words[2])) as part:
            with T.While(tirx.all(self.flag(part) != good, self.flag(part) != bad)):
                # The compiler cannot see into this call, so it must load the flag again.
                T.evaluate(T.call_extern("int32", "sched_yield"))
                T.buffer_store(self.words, self.words[1] + 1, [1])
                with T.If(self.words[1] == _TURNS):
                    with T.Then():
                        T.buffer_store(self.words, tirx.IntImm("int64", 0), [1])
                        stream.synchronize()


@dataclass(frozen=True)
class Findings(Mailbox):
    """The mailbox of a check: behind the flags, the first bad entry of each part (:data:`STATUS`).

    Entries are valid only for parts whose flag is negative.
    """

    @property
    def size(self) -> int:
        return self.first_entry + self.parts * len(STATUS)

    @property
    def first_entry(self) -> int:
        """The position of the first part's bad entry."""
        return super().size

    def entry(self, part: Any) -> list[Any]:
        """The fields of a part's bad entry."""
        begin = part * len(STATUS) + self.first_entry
        return [self.words[begin + j] for j in range(len(STATUS))]

    def first_bad(self) -> Any:
        """Emit a search for the first bad entry of all parts; returns a :data:`STATUS` buffer."""
        status = T.alloc_buffer((len(STATUS),), "int64", scope="global")
        T.buffer_store(status, tirx.IntImm("int64", -1), [0])
        with T.serial(T.bind(self.words[2])) as part:
            entry = self.entry(part)
            earlier = tirx.any(status[0] < 0, entry[0] < status[0])
            with T.If(tirx.all(self.flag(part) != self.words[0], earlier)):
                with T.Then():
                    for j, word in enumerate(entry):
                        T.buffer_store(status, word, [j])
        return status


@dataclass(frozen=True)
class DropMailbox(Mailbox):
    """The mailbox of a scatter that signals drops: one flag, then the word of the signal."""

    parts: int = 1

    @property
    def size(self) -> int:
        return self.dropped + 1

    @property
    def dropped(self) -> int:
        """The position of the word that is not zero once an update was dropped."""
        return super().size
