"""Writes through windows, strides and repeated elements of a tensor, against PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, check, check_all, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

LINE, PLANE = torch.arange(7.0), torch.randn(4, 6)
ROWS = torch.export.Dim("rows", min=4, max=90)


def written(view, write):
    """What a tensor holds after a write through a view of a copy of it."""

    def function(x):
        x = x.clone()
        view_of_x = view(x)
        write(view_of_x)
        return x, view_of_x * 1

    return function


def fill_first(windows):
    windows[..., 0] = 8


def fill_last(windows):
    windows[..., -1] = 8


def move(windows):
    windows[..., 1] = windows[..., 0] + 1


def scale_twice(windows):
    windows[-1, ..., 0].mul_(2).add_(1)
    windows[0, ..., 1].add_(windows[-1, ..., 0])


#: Dimension, size and step: windows that overlap, leave gaps, and tile.
WINDOWS = [(0, 2, 1), (1, 3, 2), (1, 2, 3), (0, 2, 2)]


@pytest.mark.parametrize("write", [fill_first, fill_last, move, scale_twice])
@pytest.mark.turns(4)
def test_windows(write):
    cases = [
        (f"{window}", written(lambda x, window=window: x.unfold(*window), write), [PLANE])
        for window in WINDOWS
    ]
    check_all(cases)


def test_whole_windows_with_gaps():
    check(written(lambda x: x.unfold(0, 2, 3), lambda windows: windows.mul_(2)), LINE)
    check(written(lambda x: x.unfold(1, 2, 4), lambda windows: windows.fill_(2)), PLANE)


def test_windows_of_views():
    check(written(lambda x: x[1:].T.unfold(0, 2, 1), fill_first), PLANE)
    check(written(lambda x: x.T.unfold(1, 2, 3)[1:], fill_last), PLANE)
    check(written(lambda x: x.view(-1)[1:].unfold(0, 3, 2), move), PLANE)


def test_windows_of_an_input():
    def function(x):
        x.unfold(0, 2, 1)[:, 0] = 8
        return x, x + 1

    check(function, LINE)


def fill_columns(x, i, v):
    x.T.index_fill_(1, i, 2.0)
    x.T[1:].index_fill_(-1, i[:1], v[0, 0])
    return x.T.as_strided((2, 3), (1, 2))


def change_columns(x, i, v):
    """Also rows of the view, through one that was made before."""
    x, columns = x + 0, x.T
    columns.index_add_(1, i, v).index_copy_(1, i[:1], v[:, 1:])
    x.T.index_fill_(0, i, 2.0).scatter_(1, i.expand(6, 2), v)
    return x, columns, torch.lerp(columns, columns.T.T + v[0, 0], 0.25)


@pytest.mark.turns(2)
@pytest.mark.parametrize("write", [fill_columns, change_columns])
def test_indices_in_a_transposed_view(write, device):
    """PyTorch gives what they return the strides of the view."""
    if torch.torch_version.TorchVersion(torch.__version__) < (2, 13):
        pytest.skip("PyTorch's run_decompositions() fails: it leaves a copy_ in the program")

    def function(x, i, v):
        x = x.clone()
        return write(x, i, v), x * 1

    check(function, PLANE, torch.tensor([2, 0]), torch.randn(6, 2), device=device)


def copy_rows(y, i, v):
    y.T.index_copy_(0, i, v)


def add_rows(y, i, v):
    y.T.index_add_(0, i, v, alpha=2)


def add_elements(y, i, v):
    y.T.scatter_add_(0, i[:, None].expand(2, 4), v)


def reduce_rows(y, i, v):
    y.unsqueeze(0).permute(2, 0, 1).index_reduce_(0, i, v[:, None], "amax")


def fill_where(y, i, v):
    y.T.masked_fill_(y.T > 0, 2)


def change_all(y, i, v):
    """Quotients of doubles are rounded; the lower triangle is one of the view."""
    y.T.div_(torch.arange(1.0, 5.0).double()).tril_()


@pytest.mark.parametrize(
    "write", [copy_rows, add_rows, add_elements, reduce_rows, fill_where, change_all]
)
@pytest.mark.turns(2)
def test_views_of_what_a_transposed_view_has_changed(write):
    """PyTorch's own program has the elements in another order, or fails."""

    def function(x, i, v):
        y = x.clone()
        line, corner = y.view(-1), y.as_strided((2, 2), (6, 1))
        write(y, i, v)
        line += 1
        corner.mul_(3)
        y.unfold(1, 2, 3)[:, 0] = 7
        return y, line * 1, y.as_strided((5,), (1,), 3) * 1

    check(function, PLANE, torch.tensor([2, 0]), torch.randn(2, 4))


def test_an_input_that_a_transposed_view_changes():
    def function(x, i, v):
        x.T.index_add_(0, i, v)
        x.T.index_copy_(0, i[:1], v[1:])
        return x, x.view(-1) * 1, x.as_strided((2, 3), (1, 2)) * 1

    check(function, PLANE, torch.tensor([2, 0]), torch.randn(2, 4))


def test_a_transposed_view_of_a_dynamic_size():
    def function(x, i, v):
        y = x.clone()
        line = y.view(-1)
        y.T.index_copy_(1, i, v)
        line += 1
        return y

    given = PLANE, torch.tensor([2, 0]), torch.randn(6, 2)
    check(function, *given, dynamic=[{0: ROWS}, {}, {}])
    check(function, *given, dynamic=[{1: ROWS}, {}, {0: ROWS}])


def test_strides():
    def overlap(x):
        return x.as_strided((5, 2), (1, 1))

    check(written(overlap, fill_first), LINE)
    check(written(overlap, fill_last), LINE)
    check(written(lambda x: x[1:].as_strided((2, 2), (2, 1), 1), move), LINE)


def test_strides_of_views():
    """They count from the start of the memory, and may leave the view."""
    reads = [
        lambda x: x[1].as_strided((2, 2), (2, 1), 1),
        lambda x: x[1:3].as_strided((2, 2), (2, 1)),
        lambda x: x[:, 1:].as_strided((3, 2), (6, 1), 4),
        lambda x: x.T[2:].as_strided((3, 2), (6, 1), 4),
    ]
    row = torch.tensor([1])
    check(lambda x: (x.index_fill(0, row, 3), *(read(x) for read in reads)), PLANE)


def test_repeated_elements():
    """PyTorch's own program computes them as a sum of differences."""

    def fill(x):
        x[:, 3] = torch.tensor([1.0, float("inf"), 2.0, 3.0])

    x = PLANE.clone()
    x[:, 0] = torch.tensor([1e30, 2.0, float("-inf"), float("nan")])
    check(written(lambda x: x[:, :1].expand(4, 6), fill), x)
    check(written(lambda x: torch.broadcast_to(x[:, :1], (4, 6)), fill), x)


@pytest.mark.parametrize(
    "view, write, what",
    [
        (lambda x: x.unfold(0, 2, 1), lambda windows: windows.fill_(3), r"unfold.* more than once"),
        (lambda x: x.as_strided((3, 2), (1, 1)), lambda x: x.mul_(3), "as_strided.*more than once"),
    ],
)
def test_elements_written_more_than_once_are_refused(view, write, what):
    with pytest.raises(ScatterError, match=what):
        from_exported_program(export(written(view, write), [LINE]))


def test_windows_of_a_dynamic_size():
    program = export(written(lambda x: x.unfold(0, 2, 2), fill_first), [LINE], [{0: ROWS}])
    with pytest.raises(ScatterError, match=r"unfold.* known at compile time"):
        from_exported_program(program)
    check(written(lambda x: x.unfold(1, 3, 3), fill_first), PLANE, dynamic=[{0: ROWS}])


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.turns(2)
def test_transposed_views_in_branches(depth):
    def write(x, i, v):
        y = x.clone()
        y.t().index_copy_(0, i, v)
        return y.as_strided((2, 3), (2, 7)) * 1

    def read(x, i, v):
        return x.as_strided((2, 3), (2, 7)) * 2

    def choose(x, i, v):
        return torch.cond(x.sum() > 5, write, read, (x, i, v))

    def model(x, i, v):
        return torch.cond(x.sum() > 0, choose if depth == 2 else write, read, (x, i, v))

    x, i, v = torch.arange(24.0).view(4, 6), torch.tensor([2, 0]), torch.randn(2, 4)
    machine = compile_for(from_exported_program(export(model, [x, i, v])))
    for given in (x, -x, x / 100):
        (result,) = run(machine, [given, i, v])
        assert_same(result, model(given, i, v))


def test_a_part_of_a_tensor_whose_sizes_vary():
    """PyTorch made all sizes constant where a part that ``unbind`` gave was written to."""

    def function(x, index):
        first, second, _ = x.unbind(1)
        changed = (first + 0.25).remainder_(1.0)
        return changed.index_add_(0, index, second[:2]), second

    shapes = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC}, None)
    index = torch.tensor([1, 0])
    exported = export(function, [torch.rand(4, 3, 5), index], shapes)
    built = compile_for(from_exported_program(exported))
    for shape in ((4, 3, 5), (2, 3, 7), (9, 3, 2)):
        inputs = [torch.rand(shape), index]
        for result, right in zip(run(built, inputs), function(*inputs), strict=True):
            assert_same(result, right.contiguous())
