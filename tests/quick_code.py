"""What LLVM does takes half of the time of a test; code that runs once need not be fast.

So tests run CPU code that neither TVM nor LLVM has optimised. TVM's just-in-time compiler always
optimises. So the code is linked and loaded, as an exported model is. Tests that are marked
``optimised`` or ``exhaustive`` run what users run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import tvm
import tvm_ffi
from tvm.runtime import Executable

_BUILD = "target.build.llvm"
_LINKER = shutil.which("ld")
#: Passes of TVM that make CPU code smaller or faster. They take half of the time of all.
_OPTIONAL = [
    "s_tir.CompactBufferAllocation",
    "s_tir.HoistIfThenElse",
    "s_tir.RenormalizeSplitPattern",
    "tirx.CommonSubexprElim",
    "tirx.RemoveNoOp",
]

_quick = False


def enable() -> None:
    """Have LLVM's code made quickly, where there is a linker, until :func:`optimise` says no."""
    if _LINKER is None:
        return
    build = tvm.get_global_func(_BUILD)
    tvm_ffi.register_global_func(
        _BUILD, lambda *given: build(*_not_optimised(*given)), override=True
    )
    Executable.jit = _linked(Executable.jit)
    tvm.tirx.build = _lowered_quickly(tvm.tirx.build)
    transform = tvm.s_tir.transform
    transform.CompactBufferAllocation = _but_ours(transform.CompactBufferAllocation)
    optimise(False)


def optimise(wanted: bool) -> None:
    """Whether what is compiled from here on is optimised."""
    global _quick
    _quick = not wanted and _LINKER is not None


def _not_optimised(module: tvm.IRModule, target: tvm.target.Target) -> tuple[Any, Any]:
    attributes = dict(target.export())
    if not _quick or "opt-level" in attributes:
        return module, target
    return module, tvm.target.Target({**attributes, "opt-level": 0})


def _lowered_quickly(build: Callable[..., Any]) -> Callable[..., Any]:
    def lower(module: Any, target: Any = None, *given: Any, **named: Any) -> Any:
        kind = None if target is None else tvm.target.Target(target).kind.name
        outer = tvm.transform.PassContext.current()
        if not _quick or kind != "llvm" or outer.instruments:
            return build(module, target, *given, **named)
        with tvm.transform.PassContext(
            opt_level=outer.opt_level,
            required_pass=list(outer.required_pass),
            disabled_pass=[*outer.disabled_pass, *_OPTIONAL],
            config=dict(outer.config),
        ):
            return build(module, target, *given, **named)

    return lower


def _but_ours(make: Callable[[], Any]) -> Callable[[], Any]:
    """A pass that leaves our functions alone: on GPUs, those of TVM's schedules need it."""
    from tvm_scatter.emit.parameters import MADE_FOR

    def is_ours(function: Any) -> bool:
        return function.attrs is not None and MADE_FOR in function.attrs

    def made() -> Any:
        original = make()

        @tvm.transform.module_pass(opt_level=0, name=original.info.name)
        def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
            others = {name: each for name, each in mod.functions.items() if not is_ours(each)}
            if not _quick or len(others) == len(mod.functions):
                return original(mod)
            if others:
                mod = mod.clone()
                mod.update(original(tvm.IRModule(others)))
            return mod

        return run

    return made


def _linked(jit: Callable[..., Any]) -> Callable[..., Any]:
    one_at_a_time = threading.Lock()

    def load(executable: Executable, **options: Any) -> Any:
        with one_at_a_time:
            if executable._jitted_mod is None and not options and _is_quick(executable.mod):
                with TemporaryDirectory() as folder:
                    path = f"{folder}/code.so"
                    executable.export_library(path, fcompile=_link)
                    executable._jitted_mod = tvm.runtime.load_module(path)
            return jit(executable, **options)

    return load


def _is_quick(module: Any) -> bool:
    """Whether the code for the CPU is one module that was not optimised."""
    found = module._collect_from_import_tree(lambda each: each.kind == "llvm")
    if len(found) != 1:
        return False
    target = json.loads(found[0].get_function("_get_target_string")())
    return target.get("opt-level") == 0


def _link(path: str, files: Sequence[str]) -> None:
    # Conversions of half precision are in each library; those of another have other conventions.
    subprocess.run([_LINKER, "-shared", "-Bsymbolic", "-o", path, *files], check=True)
