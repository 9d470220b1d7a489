"""TVM before this package, with it, and after it is taken out again, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

HERE = Path(__file__).resolve()


def state() -> dict[str, Any]:
    """Everything in TVM and in the process that a plugin might change."""
    from tvm import relax
    from tvm.ir import Op
    from tvm.relax import pipeline
    from tvm.relax.frontend.onnx import onnx_frontend
    from tvm.relax.frontend.torch import exported_program_translator as translator
    from tvm.relax.script import parser
    from tvm.s_tir import meta_schedule as ms

    names = [name for name in Op.list_op_names() if "tvm_scatter" not in name]
    legalizations = {name: Op.get(name).get_attr("FLegalize") for name in names}
    dependent = [name for name in names if Op.get(name).get_attr("FDataDependent") is not None]
    functions = tvm_ffi.registry.list_global_func_names()
    callbacks = {name: tvm_ffi.get_global_func(name) for name in functions if "callback" in name}
    return {
        "legalizations": {name: f for name, f in legalizations.items() if f is not None},
        "dependent": dependent,
        "callbacks": callbacks,
        "code generator": tvm_ffi.get_global_func("target.build.cuda"),
        "functions": sorted(functions),
        "pipelines": dict(pipeline.PIPELINE_MAP),
        "pipeline": public(pipeline),
        "tuner": [
            ms.relax_integration.TuneContext,
            ms.tir_integration.TuneContext,
            ms.runner.LocalRunner._cls.__init__,
            ms.runner.RPCRunner._cls.__init__,
            ms.cost_model.XGBModel._cls.update,
        ],
        "passes": public(relax.transform),
        "defaults": (pipeline.get_default_pipeline, relax.get_default_pipeline),
        "importer": dict(vars(translator.ExportedProgramImporter)),
        "translator": public(translator),
        "entry": translator.from_exported_program.__code__,
        "onnx": public(onnx_frontend),
        "parser": (public(parser), public(relax.script)),
        "environment": dict(os.environ),
        "finders": list(sys.meta_path),
    }


def public(module: Any) -> dict[str, Any]:
    """What a module holds, without what Python keeps there."""
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def same(one: Any, other: Any) -> bool:
    """The same object, or the same function behind two wrappers of TVM's."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, tvm_ffi.Function) and isinstance(other, tvm_ffi.Function):
        return bool(one.same_as(other))
    return one is other or (isinstance(one, str) and one == other)


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """In which parts two states differ."""
    return {part for part in before if not same(before[part], after[part])}


def forget_the_package() -> None:
    """Let the next import load a second copy."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tvm_scatter"]:
        del sys.modules[name]


def models(scatters: bool) -> Any:
    """A model with a scatter or without one."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    w = relax.Var("w", relax.TensorType((16, 16), "float32"))
    i = relax.Var("i", relax.TensorType((8, 16), "int64"))
    with builder.function("main", [x, w, i]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.softmax(relax.op.matmul(x, w)))
            if scatters:
                y = builder.emit(relax.op.scatter_elements(y, i, x, axis=0, reduction="add"))
            out = builder.emit_output(relax.op.add(y, x))
        builder.emit_func_output(out)
    return builder.get()


def compiled(scatters: bool, kind: str) -> Any:
    """The module that TVM's default pipeline makes."""
    from tvm import relax
    from tvm.target import Target

    target = Target("llvm" if kind == "llvm" else "nvidia/nvidia-h100")
    with target:
        return relax.get_default_pipeline(target)(models(scatters))


def compare() -> None:
    """Before, with and after; then with two copies of the package, and after both."""
    import tvm

    before = state()
    plain = {kind: (compiled(False, kind), compiled(True, kind)) for kind in ("llvm", "cuda")}

    def check_stock() -> None:
        assert changed(before, state()) == set()
        for kind, (without, scattering) in plain.items():
            tvm.ir.assert_structural_equal(compiled(False, kind), without)
            tvm.ir.assert_structural_equal(compiled(True, kind), scattering)

    import tvm_scatter

    different = changed(before, state())
    ours = {
        "legalizations",
        "dependent",
        "pipelines",
        "passes",
        "defaults",
        "tuner",
        "importer",
        "onnx",
        "parser",
    }
    assert ours <= different, different
    for kind, (without, scattering) in plain.items():
        # A model that does not scatter compiles to the same code, but for its softmax.
        with tvm_scatter.options(reductions=False):
            tvm.ir.assert_structural_equal(compiled(False, kind), without)
        assert not tvm_ffi.structural_equal(compiled(True, kind), scattering)
    tvm_scatter.uninstall()
    check_stock()
    tvm_scatter.install()
    assert changed(before, state()) == different
    tvm_scatter.uninstall()
    check_stock()

    tvm_scatter.install()
    first = tvm_scatter
    forget_the_package()
    import tvm_scatter as second

    assert second is not first
    assert not tvm_ffi.structural_equal(compiled(True, "llvm"), plain["llvm"][1])
    for package in (second, first):
        package.uninstall()
        check_stock()
    second.install()
    tvm.compile(models(True), "llvm")
    second.uninstall()
    check_stock()
    print("stock TVM, exactly")


def test_uninstall_gives_stock_tvm_back() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    in_a_process("imported")


@pytest.mark.usefixtures("quick_processes")
def test_uninstall_where_no_importer_is_loaded() -> None:
    in_a_process("not imported")


def in_a_process(frontends: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(
        [sys.executable, str(HERE), frontends],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "stock TVM, exactly" in result.stdout


def compare_finders() -> None:
    """TVM's importers, where nobody has imported them, stay so, and nothing waits for them."""
    import tvm  # noqa: F401

    before = list(sys.meta_path)
    import tvm_scatter

    assert len(sys.meta_path) > len(before)
    first = tvm_scatter
    forget_the_package()
    import tvm_scatter as second

    second.uninstall()
    first.uninstall()
    assert sys.meta_path == before
    assert not any("frontend.torch" in name or "frontend.onnx" in name for name in sys.modules)
    print("stock TVM, exactly")


if __name__ == "__main__":
    compare() if sys.argv[1] == "imported" else compare_finders()
