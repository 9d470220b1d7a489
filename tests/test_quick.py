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


def test_operators_are_decomposed_as_by_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses import fake_impls
    from torch.export import exported_program

    stock = getattr(exported_program, quick_export.OVERRIDE)
    stock = getattr(stock, "stock", stock)
    library = torch.library.Library("quick_export", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x + x + x, "CompositeImplicitAutograd")
    ours, others = torch.ops.quick_export.thrice.default, torch.ops.aten.linear.default
    key = torch._C.DispatchKey
    ours.py_impl(key.CPU)(abs)
    before = [dict(operator.py_kernels) for operator in (ours, others)]
    table = {ours: torch.neg, others: torch.sub}
    given = []
    for decomposed_by in (quick_export.decomposed_by, stock):
        with decomposed_by(table):
            kernels = [dict(operator.py_kernels) for operator in (ours, others)]
            fake = [operator in fake_impls.op_implementations_dict for operator in table]
        given.append(([set(each) for each in kernels], fake))
        assert [each[key.CompositeImplicitAutograd] for each in kernels] == [torch.neg, torch.sub]
        assert kernels[0][key.CPU] is abs
        assert kernels[0][key.Meta](torch.ones(1)).item() == 3
        assert [dict(operator.py_kernels) for operator in (ours, others)] == before
        assert not any(operator in fake_impls.op_implementations_dict for operator in table)
    assert given[0] == given[1]
    library._destroy()


def test_tables_of_decompositions_are_copies() -> None:
    torch = pytest.importorskip("torch")

    first, second = (torch.export.default_decompositions() for _ in range(2))
    sizes = len(first), len(second)
    first.pop(torch.ops.aten.linear.default)
    assert (len(first), len(second)) == (sizes[0] - 1, sizes[1])
