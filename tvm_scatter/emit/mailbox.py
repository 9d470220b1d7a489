"""What a GPU tells the host while a function runs: words in page-locked memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from .host_stream import HostStream
from .kept_memory import words_of

if TYPE_CHECKING:
    from typing_extensions import Self

#: What a check says of a bad entry: its flat position in its index tensor, which component it
#: addresses, the index itself and the extent it exceeds. The position is -1 if all are good.
STATUS = ("position", "component", "index", "extent")
#: How often the host looks for a flag before it waits for the stream, which tells it if the GPU
#: will never raise one.
_TURNS = 1 << 15


@dataclass(frozen=True)
class Mailbox:
    """Where parts of a launch say that they are done.

    Word 0 is the number of the call, which tells its flags from those of earlier calls, word 1 is
    the host's own, and word 2 says how many parts raise a flag in this call. Then comes the flag of
    each part that there may be: the number of the call if all is well, and its negative if not.

    Attributes
    ----------
    parts : int
        How many parts there may be.
    words : buffer or None
        int64 words that the host and the GPU see.
    """

    parts: int
    words: Any = None

    @property
    def size(self) -> int:
        """How many words there are."""
        return self.first_flag + self.parts

    @property
    def first_flag(self) -> int:
        """The word with the flag of the first part."""
        return 3

    def of(self, tensor: Any) -> Self:
        """This mailbox, in a tensor that a PrimFunc takes as a bare handle."""
        return replace(self, words=words_of(tensor, self.size))

    def flag(self, part: Any) -> Any:
        """The flag of a part."""
        return self.words[part + self.first_flag]

    def next_call(self) -> Any:
        """Count a call; its number."""
        call = T.bind(self.words[0] + 1)
        T.buffer_store(self.words, call, [0])
        return call

    def expect(self, parts: int) -> None:
        """Say how many parts raise a flag in this call: none if there is nothing to look for."""
        T.buffer_store(self.words, tirx.IntImm("int64", parts), [2])

    def await_all(self, stream: HostStream) -> None:
        """Wait for all flags.

        What counts the turns is a word of this memory, because what a function allocates that
        launches kernels would be memory of the device.
        """
        good = T.bind(self.words[0])
        bad = T.bind(0 - good)
        T.buffer_store(self.words, tirx.IntImm("int64", 0), [1])
        with T.serial(T.bind(self.words[2])) as part:
            with T.While(tirx.all(self.flag(part) != good, self.flag(part) != bad)):
                # A call that the compiler cannot look into, so that memory is read anew.
                T.evaluate(T.call_extern("int32", "sched_yield"))
                T.buffer_store(self.words, self.words[1] + 1, [1])
                with T.If(self.words[1] == _TURNS):
                    with T.Then():
                        T.buffer_store(self.words, tirx.IntImm("int64", 0), [1])
                        stream.synchronize()


@dataclass(frozen=True)
class Findings(Mailbox):
    """The mailbox of a check. The first bad entry of each part follows, as :data:`STATUS` has it.

    Only the entries of bad parts mean anything.
    """

    @property
    def size(self) -> int:
        return self.first_entry + self.parts * len(STATUS)

    @property
    def first_entry(self) -> int:
        """The word at which the bad entry of the first part begins."""
        return super().size

    def entry(self, part: Any) -> list[Any]:
        """The bad entry of a part."""
        begin = part * len(STATUS) + self.first_entry
        return [self.words[begin + j] for j in range(len(STATUS))]

    def first_bad(self) -> Any:
        """The first bad entry of all parts, in a buffer: its position is -1 if there is none."""
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
    """The mailbox of a scatter that signals drops: one flag, and a word behind it for the drops."""

    parts: int = 1

    @property
    def size(self) -> int:
        return self.dropped + 1

    @property
    def dropped(self) -> int:
        """The word that is other than zero once an update was dropped."""
        return super().size
