"""What is looked up once in tests is what TVM and PyTorch would find each time."""

from __future__ import annotations

import sys

import pytest
import quick_export
import quick_stack


def test_the_stack_has_the_frames_and_the_source_around_the_caller() -> None:
    found, right = quick_stack._stack(), quick_stack.getouterframes(sys._getframe())
    assert [each.frame for each in found] == [each.frame for each in right]
    assert [each.function for each in found] == [each.function for each in right]
    assert found[0].code_context and "quick_stack._stack()" in found[0].code_context[0]
    assert found[1].code_context == right[1].code_context
    assert found[-1].code_context is None


def test_an_operator_registered_later_is_on_the_list() -> None:
    torch = pytest.importorskip("torch")
    from torch._export import utils

    collect = quick_export._kept(utils._collect_all_valid_cia_ops)
    assert collect() is collect()
    library = torch.library.Library("quick_export", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    assert torch.ops.quick_export.twice.default in collect()
    library._destroy()


def test_kernels_are_registered_as_by_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from torch._dispatch.python import enable_python_dispatcher

    key = torch._C.DispatchKey.CPU
    library = torch.library.Library("quick_export", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    operator = torch.ops.quick_export.thrice.default
    operator.py_impl(key)(lambda x: x + x + x)
    with enable_python_dispatcher():
        assert operator(torch.ones(1)).item() == 3
    with pytest.raises(RuntimeError, match="Trying to override a python impl"):
        operator.py_impl(key)(abs)
    with pytest.raises(AssertionError, match="register a mode"):
        operator.py_impl(torch._C.DispatchKey.Python)(abs)
    library._destroy()
