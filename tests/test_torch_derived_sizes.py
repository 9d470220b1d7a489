"""Sizes of inputs that are computed from other sizes, such as ``2 * Dim("h")``, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm import tirx  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

H = Dim("h", min=2, max=50)


def halves(x: Any) -> Any:
    left, right = x.chunk(2, 0)
    return left * right


def halves_by_index(x: Any) -> Any:
    half = x.shape[0] // 2
    return x[:half] + x[half:]


def pairs(x: Any) -> Any:
    return x.view(-1, 2, 3).amax(1)


def every_second(x: Any) -> Any:
    return x[::2] - x[1::2]


def gated(x: Any) -> Any:
    return torch.nn.functional.glu(x, 0)


def scattered(x: Any, index: Any) -> Any:
    return torch.zeros_like(x[: x.shape[0] // 2]).index_add(0, index, x)


def joined(x: Any, y: Any) -> Any:
    return torch.cat([x, y]), x.view(2, -1, 3).sum(0) + y.view(3, -1, 3).sum(0)


def written(x: Any, rows: Any) -> Any:
    x = x.clone()
    x[1::2] = rows
    return x


def of_rows(rows: int) -> Any:
    return torch.randn(rows, 3)


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    "function, make, sizes",
    [
        (halves, lambda h: [of_rows(2 * h)], [{0: 2 * H}]),
        (halves, lambda h: [of_rows(2 * h - 2)], [{0: 2 * H - 2}]),
        (halves_by_index, lambda h: [of_rows(2 * h)], [{0: 2 * H}]),
        (pairs, lambda h: [of_rows(4 * h)], [{0: 4 * H}]),
        (every_second, lambda h: [of_rows(2 * h)], [{0: 2 * H}]),
        (gated, lambda h: [of_rows(2 * h)], [{0: 2 * H}]),
        (
            scattered,
            lambda h: [of_rows(2 * h), torch.randint(0, h, (2 * h,))],
            [{0: 2 * H}, {0: 2 * H}],
        ),
        (joined, lambda h: [of_rows(2 * h), of_rows(3 * h)], [{0: 2 * H}, {0: 3 * H}]),
        (written, lambda h: [of_rows(2 * h), of_rows(h)], [{0: 2 * H}, {0: H}]),
    ],
)
def test_a_size_that_no_input_has_by_itself(
    function: Callable[..., Any],
    make: Callable[[int], list[Any]],
    sizes: Sequence[Any],
    device: str,
) -> None:
    program = export(function, make(3), sizes)
    machine = compile_for(from_exported_program(program), device)
    for h in (3, 2, 7):
        inputs = make(h)
        expected = function(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for found, wanted in zip(run(machine, inputs, device), expected, strict=True):
            assert_same(found, wanted, f"h = {h}")


def test_other_sizes_are_an_error() -> None:
    program = export(halves, [of_rows(6)], [{0: 2 * H}])
    machine = compile_for(from_exported_program(program))
    with pytest.raises(Exception, match=r"\(7 vs. 6\).*2 \* "):
        run(machine, [of_rows(7)])
    program = export(joined, [of_rows(6), of_rows(9)], [{0: 2 * H}, {0: 3 * H}])
    machine = compile_for(from_exported_program(program))
    with pytest.raises(Exception, match=r"\(12 vs. 9\).*3 \* "):
        run(machine, [of_rows(6), of_rows(12)])


def test_sizes_known_otherwise_stay_in_the_signature() -> None:
    function = lambda x, y: pairs(x) + y  # noqa: E731
    program = export(function, [of_rows(6), of_rows(3)], [{0: 2 * H}, {0: H}])
    first, second = from_exported_program(program)["main"].params
    assert str(first.ty.shape.values[0]).count(str(second.ty.shape.values[0])) == 1


class WithLoops(torch.nn.Module):
    """Edges that are no loops, and a loop for each node, as graph convolutions make them."""

    def forward(self, x: Any, edges: Any) -> Any:
        loops = torch.arange(x.shape[0]).view(1, -1).repeat(2, 1)
        return self.sums(x, *torch.cat([edges[:, edges[0] != edges[1]], loops], 1))

    def sums(self, x: Any, source: Any, target: Any) -> Any:
        return torch.zeros_like(x).index_add(0, target, x[source])


def test_a_size_marked_as_dynamic_that_is_constant() -> None:
    """PyTorch finds that edges have two ends, and says so by a symbol that is 2."""
    x, edges = of_rows(5), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 1, 0, 3, 2, 4]])
    module = WithLoops()
    sizes = ({0: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})
    mod = from_exported_program(torch.export.export(module, (x, edges), dynamic_shapes=sizes))
    assert isinstance(mod["main"].params[1].ty.shape.values[0], tirx.IntImm)
    machine = compile_for(mod)
    for inputs in ([x, edges], [of_rows(7), edges[:, :3]]):
        [found] = run(machine, inputs)
        assert_same(found, module(*inputs))


class Attention(WithLoops):
    """Sums that are weighted by a softmax over the edges of each node."""

    def sums(self, x: Any, source: Any, target: Any) -> Any:
        logits = x[source] + x[target]
        index, zeros = target[:, None].expand_as(logits), torch.zeros_like(x)
        top = zeros.scatter_reduce(0, index, logits, "amax", include_self=False)
        powers = (logits - top[target]).exp()
        shares = powers / zeros.index_add(0, target, powers)[target]
        return zeros.index_add(0, target, shares * x[source])


def test_as_many_true_entries_as_there_are_rows() -> None:
    """PyTorch bounds their number by 2**63 - 2, which no memory can be planned for."""

    def added(x: Any, mask: Any) -> Any:
        return x[mask] + x

    arguments = torch.randn(20, 8), torch.ones(20, dtype=torch.bool)
    program = export(added, list(arguments), [{0: Dim.AUTO}, {0: Dim.AUTO}])
    machine = compile_for(from_exported_program(program))
    for count in (20, 3, 50):
        x, mask = torch.randn(count, 8), torch.ones(count, dtype=torch.bool)
        assert_same(run(machine, [x, mask])[0], 2 * x)
    mask[3] = False
    with pytest.raises(ValueError):
        run(machine, [x, mask])


def test_a_softmax_over_as_many_edges_as_two_sizes_say() -> None:
    x, edges = of_rows(5), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 1, 0, 3, 2, 4]])
    module, sizes = Attention(), ({0: Dim.AUTO}, {1: Dim.AUTO})
    mod = from_exported_program(torch.export.export(module, (x, edges), dynamic_shapes=sizes))
    [scatter] = tvm_scatter.explain(mod, "llvm")
    assert "softmax=True" in str(scatter)
    machine = compile_for(mod)
    for inputs in ([x, edges], [of_rows(7), edges[:, :3]], [of_rows(5), edges[:, 3:4]]):
        [found] = run(machine, inputs)
        assert_same(found, module(*inputs))
