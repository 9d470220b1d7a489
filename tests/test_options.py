"""Options: nesting, threads, bad values, and switching the strategy off."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tvm
from harness import relax_function
from tvm import relax

import tvm_scatter
from tvm_scatter import ScatterError, current_options, options
from tvm_scatter.ops.operators import scatter_elements
from tvm_scatter.options import Options
from tvm_scatter.selection.backend import backend_for


def test_blocks_nest_and_end() -> None:
    assert current_options().implementation is None
    with options(implementation="sequential", bounds="drop"):
        with options(bounds="trust"):
            assert current_options().implementation == "sequential"
            assert current_options().bounds == "trust"
        assert current_options().bounds == "drop"
    assert current_options().bounds is None


def test_an_error_ends_the_block() -> None:
    with pytest.raises(RuntimeError), options(deterministic=True):
        raise RuntimeError
    assert not current_options().deterministic


def test_threads_do_not_see_each_other() -> None:
    seen = []
    with options(deterministic=True):
        thread = threading.Thread(target=lambda: seen.append(current_options().deterministic))
        thread.start()
        thread.join()
    assert seen == [False]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"implementaton": "sequential"}, "unknown option 'implementaton'"),
        ({"bounds": "clamp"}, "bounds='clamp'"),
        ({"bounds": np.array(["raise", "drop"])}, "bounds=array"),
        ({"deterministic": "yes"}, "deterministic='yes'"),
        ({"enabled": 1}, "enabled=1"),
        ({"in_place": None}, "in_place=None"),
        ({"cuda_graph": "yes"}, "cuda_graph='yes'"),
        ({"implementation": 7}, "implementation=7"),
        ({"knobs": 7}, "knobs=7"),
        ({"knobs": {"threads": "many"}}, "knobs="),
        ({"knobs": {"threads": True}}, "knobs="),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ScatterError, match=message), options(**wrong):
        pass
    assert current_options() == Options()


def test_default_bounds() -> None:
    assert backend_for("llvm").bounds_under(current_options()) == "raise"
    assert backend_for("cuda").bounds_under(current_options()) == "drop"
    with options(bounds="trust"):
        assert backend_for("llvm").bounds_under(current_options()) == "trust"


def _module(build: Any) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    arrays = [np.zeros(4, "float32"), np.zeros(2, "int64"), np.zeros(2, "float32")]
    relax_function(builder, "main", build, arrays)
    return builder.get()


def _functions(module: tvm.IRModule, **changes: Any) -> list[str]:
    with options(**changes), tvm.target.Target("llvm"):
        legal = relax.transform.LegalizeOps()(module)
    return [str(name.name_hint) for name in legal.functions]


def test_switched_off_is_stock_tvm() -> None:
    module = _module(lambda data, index, updates: relax.op.scatter_elements(data, index, updates))
    assert any(name.startswith("scatter_update") for name in _functions(module))
    off = _functions(module, enabled=False)
    tvm_scatter.uninstall()
    try:
        assert _functions(module) == off
        assert not tvm_scatter.is_installed()
    finally:
        tvm_scatter.install()
    assert _functions(module) != off


def test_unknown_implementation_and_knob() -> None:
    module = _module(lambda data, index, updates: scatter_elements(data, index, updates))
    with pytest.raises(ScatterError, match="unknown implementation 'fastest'"):
        _functions(module, implementation="fastest")
    with pytest.raises(ScatterError, match="no knob threads=3"):
        _functions(module, implementation="sequential", knobs={"threads": 3})


def test_knobs_belong_to_an_implementation() -> None:
    with pytest.raises(ScatterError, match=r"knobs=\{'threads': 256\} are those of an impl"):
        with options(knobs={"threads": 256}):
            pass
    with options(implementation="sequential"), options(knobs={"threads": 256}) as chosen:
        assert chosen.knobs == (("threads", 256),)
    with options(knobs={}):
        pass
