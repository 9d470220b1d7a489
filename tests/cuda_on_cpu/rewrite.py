"""Turns CUDA source that TVM generated into source for a host compiler.

Nearly all of CUDA C++ is left to a header of ours (``device/cuda_on_cpu.h``). What a header cannot
say is done here, and lines keep their numbers, so that messages name lines of
``inspect_source("cuda")``.
"""

from __future__ import annotations

import re

# Comments, and the literals in which what looks like one is none.
_COMMENT = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\[^']*|[^'\\])'|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_ATTRIBUTE = r"(?:__align__|alignas|__builtin_align__)\s*\(\s*(?P<{}>[^()]*)\)\s*"
# One declarator: type, name, extents.
_SHARED = re.compile(
    rf"(?:{_ATTRIBUTE.format('before')})?(?:\bstatic\s+)?\b__shared__\s+"
    rf"(?:{_ATTRIBUTE.format('behind')})?"
    r"(?P<type>[^;={}\[\]()]*?[\w>*\s])\s*\b(?P<name>\w+)\s*(?P<extents>(?:\[[^;{}]*\])*)\s*;"
)
_DYNAMIC = re.compile(r"\bextern\s+__shared__\s+(?P<rest>[^;={}]*?\[\s*\])\s*;")
# TVM reduces over the lanes that happen to run together, and relies on that being all of them.
_TOGETHER = re.compile(r"(\bmask_ptr(?:_\d+)?\[0\] = [^;]*)\b__activemask\(\)")
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__\w+__\s*\([^()]*\)\s*)*(\w+)\s*\(')


def _without_comments(source: str) -> str:
    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return " " + "\n" * text.count("\n") if text[0] == "/" else text

    return _COMMENT.sub(blank, source)


def kernel_names(source: str) -> list[str]:
    """The names of the kernels in `source`, in order."""
    return list(dict.fromkeys(_KERNEL.findall(_without_comments(source))))


def _shared(match: re.Match[str]) -> str:
    kind, name, extents = match["type"].strip(), match["name"], match["extents"]
    outside = kind
    while "<" in outside and outside != (outside := re.sub(r"<[^<>]*>", "", outside)):
        pass
    if "," in outside:  # several declarators: a plain static will do, only without fences
        return match[0]
    align = match["behind"] or match["before"]
    args = f"{kind}{extents}" + (f", ({align})" if align else "")
    text = f"static CpuCudaShared<{args}> {name}_storage; auto& {name} = {name}_storage.get();"
    return text + "\n" * match[0].count("\n")


def _statement(text: str) -> str:
    # An array of unknown extent is what the driver's arena looks like from the kernel.
    text, dynamic = _DYNAMIC.subn(r'extern \g<rest> asm("cpu_cuda_dynamic_shared");', text)
    return text if dynamic else _SHARED.sub(_shared, text)


def to_host(source: str) -> str:
    """`source` as g++ can compile it, with the table of its kernels at the end."""
    names = kernel_names(source)
    source = _TOGETHER.sub(r"\g<1>~0u", _without_comments(source))
    parts, done = [], 0
    # Only around the word: the patterns are slow on a large source.
    while (at := source.find("__shared__", done)) >= 0:
        begin = 1 + max(source.rfind(end, done, at) for end in ";{}")
        begin, end = max(begin, done), 1 + source.find(";", at)
        end = end or len(source)
        parts += [source[done:begin], _statement(source[begin:end])]
        done = end
    entries = " ".join(f"CPU_CUDA_KERNEL({name})" for name in names)
    return "".join(parts) + source[done:] + f"\nCPU_CUDA_KERNELS({entries})\n"
