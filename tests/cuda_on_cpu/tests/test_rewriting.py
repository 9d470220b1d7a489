"""The rewriting of the source."""

import pytest

from ..rewrite import kernel_names, to_host


@pytest.mark.parametrize(
    ("cuda", "host"),
    [
        (
            "__shared__ alignas(64) float a[128];",
            "static CpuCudaShared<float[128], (64)> a_storage; auto& a = a_storage.get();",
        ),
        (
            "alignas(16) __shared__ Pair<int, V<float, 2>> a[N * (2 + 1)][4];",
            "static CpuCudaShared<Pair<int, V<float, 2>>[N * (2 + 1)][4], (16)> a_storage; "
            "auto& a = a_storage.get();",
        ),
        (
            "__shared__ typename S::T a;",
            "static CpuCudaShared<typename S::T> a_storage; auto& a = a_storage.get();",
        ),
        ("__shared__ int a[4], b;", "__shared__ int a[4], b;"),
        ("__shared__ int a, b;", "__shared__ int a, b;"),
        (
            "extern __shared__ __align__(64) uchar buf[];",
            'extern __align__(64) uchar buf[] asm("cpu_cuda_dynamic_shared");',
        ),
    ],
)
def test_rewriting_shared_variables(cuda, host):
    assert to_host(cuda).splitlines()[0] == host


def test_rewriting_keeps_lines_and_skips_comments():
    cuda = """// __shared__ is
int x;  /* a
comment */ const char* s = "// none";
__shared__ int
    y[4];
int last;"""
    host = to_host(cuda).splitlines()
    assert host[1].strip() == "int x;" and '"// none"' in host[2]
    assert host[3].startswith("static CpuCudaShared<int[4]> y_storage") and host[5] == "int last;"


def test_lanes_that_run_together():
    """TVM reduces over them as if they were all; elsewhere nothing is known of them."""
    cuda = "mask_ptr[0] = (__activemask() & (255u << 8)); int other = __activemask();"
    host = "mask_ptr[0] = (~0u & (255u << 8)); int other = __activemask();"
    assert to_host(cuda).splitlines()[0] == host
    # The second reduction of a kernel.
    assert to_host("mask_ptr_1[0] = __activemask();").startswith("mask_ptr_1[0] = ~0u;")


def test_kernel_names():
    source = """
extern "C" __global__ void __launch_bounds__(128, 2) __cluster_dims__(1) a_kernel(int n);
extern "C" __global__ void __launch_bounds__(128, 2) __cluster_dims__(1) a_kernel(int n) {}
// extern "C" __global__ void c_kernel() {}
extern "C" __global__ void b_kernel() {}"""
    assert kernel_names(source) == ["a_kernel", "b_kernel"]
