"""The CUDA of every implementation compiles for every architecture, and uses it well.

No GPU is needed: nvrtc compiles for architectures that are not there.
"""

from __future__ import annotations

import re
from importlib import resources
from itertools import pairwise

import pytest
from cuda_cases import (
    ARCHITECTURES,
    CASES,
    NATIVE_SUMS,
    REPRESENTATIVE,
    accepted,
    cuda_target,
    generate,
    in_one_source,
    lowered,
)
from machine_code import cubin, needs_nvrtc, ptx

import tvm_scatter
from tvm_scatter.strategies.cuda.codegen.source import headers

pytestmark = needs_nvrtc

#: What takes an order has a test in test_ordered.py, and a softmax one in test_fuse_softmax.py.
IMPLEMENTATIONS = tuple(
    name
    for name, each in tvm_scatter.strategy_for("cuda").implementations.items()
    if each.takes_plain
)

#: A sum in shared memory in PTX.
_NATIVE_SUM = re.compile(r"atom\.shared\.add\.(f32|\w64)")


def test_headers_can_stand_in_one_source():
    """A model may need all of them, so no two may have one name for different things."""
    folder = resources.files("tvm_scatter.strategies.cuda") / "device"
    names = sorted(each.name.removesuffix(".cuh") for each in folder.iterdir())
    assert cubin(headers(tuple(name for name in names if not name.startswith("__"))))


def generated_for(chosen, names, arch):
    target = cuda_target(arch)
    names = accepted(names, chosen, target)
    if not names:
        pytest.skip(f"{chosen} takes none of these cases on {arch}")
    with tvm_scatter.options(implementation=chosen):
        return generate(names, target)


def together(names, target):
    """The code of some cases by each of some implementations."""
    functions = {}
    for chosen, cases in names.items():
        with tvm_scatter.options(implementation=chosen):
            for own, function in lowered(cases, target).items():
                functions[f"{chosen}_{own}"] = function
    return in_one_source(functions, target)


def kernels(source):
    return re.findall(
        r"__global__ void[^(]*?(?:__launch_bounds__\(\d+(?:, \d+)?\) )?(\w+)\(", source
    )


def each_on_one_architecture():
    """Every pair of an implementation and an architecture, of which some are tried by default.

    For sm_90 all are compiled at once, below.
    """
    others = [arch for arch in ARCHITECTURES if arch != "sm_90"]
    turns = {name: others[at % len(others)] for at, name in enumerate(IMPLEMENTATIONS[::8])}
    return [
        pytest.param(name, arch, marks=() if turns.get(name) == arch else pytest.mark.exhaustive)
        for name in IMPLEMENTATIONS
        for arch in ARCHITECTURES
    ]


@pytest.mark.parametrize(("chosen", "arch"), each_on_one_architecture())
def test_compiles(chosen, arch):
    generated = generated_for(chosen, REPRESENTATIVE, arch)
    code = cubin(generated.source, arch)
    assert code.startswith(b"\x7fELF")
    for name in kernels(generated.source):
        assert name.encode() in code


@pytest.mark.exhaustive
@pytest.mark.parametrize("chosen", IMPLEMENTATIONS)
def test_every_case_compiles(chosen):
    generated = generated_for(chosen, CASES, "sm_90")
    assert cubin(generated.source).startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "arch",
    [
        # Each implementation alone compiles for one of the architectures in a test above.
        pytest.param(arch, marks=() if arch == "sm_90" else pytest.mark.exhaustive)
        for arch in ARCHITECTURES
    ],
)
def test_all_implementations_in_one_source(arch):
    """A model may use any two of them, and what they include meets in one source."""
    target = cuda_target(arch)
    generated = together(
        {name: accepted(REPRESENTATIVE, name, target)[:1] for name in IMPLEMENTATIONS}, target
    )
    assert len(generated.functions) >= len(IMPLEMENTATIONS)
    code = cubin(generated.source, arch)
    for name in kernels(generated.source):
        assert name.encode() in code


@pytest.mark.parametrize(
    ("arch", "names"), [("sm_75", ["nd_f32_add", "rows_symbolic"]), ("sm_100", ["nd_f32_add"])]
)
@pytest.mark.turns(2)
def test_bounds_check_compiles(arch, names):
    with tvm_scatter.options(bounds="raise"):
        generated = generate(names, cuda_target(arch))
    assert any("check_indices" in name for name in kernels(generated.source))
    assert cubin(generated.source, arch).startswith(b"\x7fELF")


@pytest.mark.parametrize("chosen", IMPLEMENTATIONS)
@pytest.mark.turns(4)
def test_no_module_without_kernels(chosen):
    """ "It compiled for CUDA" proves nothing: a host loop over device pointers compiles as well."""
    generated = generated_for(chosen, CASES, "sm_90")
    made = kernels(generated.source)
    assert len(generated.functions) > 0
    for function in generated.functions:
        assert any(re.fullmatch(rf"{function}_kernel(_\d+)?", name) for name in made), function


@pytest.mark.exhaustive
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_native_sums_need_no_compare_and_swap(arch):
    """A sum that fell back to a compare-and-swap loop is right, and hundreds of times slower."""
    target = cuda_target(arch)
    names = {chosen: accepted(NATIVE_SUMS, chosen, target) for chosen in IMPLEMENTATIONS}
    entries = compare_and_swaps(together(names, target).source, arch)
    for chosen in (chosen for chosen, cases in names.items() if cases):
        assert any(chosen in name for name in entries), chosen
    assert not {name: swaps for name, swaps in entries.items() if swaps}


def test_a_compare_and_swap_would_be_seen():
    generated = generated_for("parallel_injective", ["box_f32_mul"], "sm_90")
    assert any(compare_and_swaps(generated.source, "sm_90").values())


def test_sums_in_shared_memory_keep_denormals():
    """As those of the hardware do, though TVM compiles with ``--use_fast_math``."""
    code = ptx(generated_for("row_resident", ["nd_f32_add"], "sm_90").source)
    assert code.count("add.rn.f32") == code.count("atom.shared.cas") > 0


def compare_and_swaps(source, arch):
    """For each kernel, the compare-and-swaps in its PTX that are tried again.

    In shared memory one may be tried once: a native sum is the next atomic instruction then.
    """
    _, *parts = re.split(r"\.entry\s+(\w+)", ptx(source, arch))
    found = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        atomics = re.findall(r"\b(?:atom|red)\.\S+", body)
        found[name] = [
            swap
            for swap, after in pairwise([*atomics, ""])
            if ".cas." in swap and not (".shared." in swap and _NATIVE_SUM.match(after))
        ]
    return found
