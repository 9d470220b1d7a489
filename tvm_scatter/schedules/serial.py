"""The schedule of last resort: one GPU thread for each nest of loops."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.relax.backend.utils import BackendDispatcher
from tvm.target import Target

from .empty_launches import with_body

_THREAD = "threadIdx.x"


def serial(function: tirx.PrimFunc, target: Target) -> tirx.PrimFunc | None:
    """One launch of one thread for each nest of loops; ``None`` where there is nothing to launch.

    That is slow, and right for whatever the loops do: they run in the order they are written in.
    """
    if not BackendDispatcher.is_gpu_target(target) or _launches(function):
        return None
    root = function.body
    if not isinstance(root, s_tir.SBlockRealize):
        return function.with_body(_launched(root))
    nests = root.block.body
    each = list(nests.seq) if isinstance(nests, tirx.SeqStmt) else [nests]
    body = tirx.SeqStmt([_launched(nest) for nest in each]) if len(each) > 1 else _launched(each[0])
    return function.with_body(with_body(root, body))


def _launched(nest: tirx.Stmt) -> tirx.Stmt:
    """The statement inside of a launch of one thread."""
    variable = tirx.Var("thread", "int32")
    thread = tirx.IterVar(None, tirx.Var(_THREAD, "int32"), tirx.IterVar.ThreadIndex, _THREAD)
    return tirx.For(variable, 0, 1, tirx.ForKind.THREAD_BINDING, nest, thread)


def _launches(function: tirx.PrimFunc) -> bool:
    """Whether a function binds threads already."""
    found = False

    def attribute(node: tirx.AttrStmt) -> None:
        nonlocal found
        found = found or node.attr_key in ("thread_extent", "virtual_thread")

    def loop(node: tirx.For) -> None:
        nonlocal found
        found = found or node.kind == tirx.ForKind.THREAD_BINDING

    visits = [(tirx.AttrStmt, attribute), (tirx.For, loop)]
    tvm_ffi.structural_walk(function.body, visits, order="post")
    return found
