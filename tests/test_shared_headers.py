"""A module has each header of device routines once, however many kernels need it."""

from __future__ import annotations

import re

from machine_code import cuda
from tvm import relax, tirx

from tvm_scatter.emit.device_headers import header, without_headers
from tvm_scatter.ops.operators import index_put


def test_a_module_has_each_header_once() -> None:
    builder = relax.BlockBuilder()
    nodes, edges = (tirx.Var(name, "int64") for name in ("nodes", "edges"))
    shapes = {"data": [nodes, 8], "index": [edges], "rows": [edges, 8]}
    types = {"index": "int64"}
    data, index, rows = (
        relax.Var(name, relax.TensorType(shape, types.get(name, "float32")))
        for name, shape in shapes.items()
    )
    with builder.function("main", [data, index, rows]):
        with builder.dataflow():
            output = builder.emit_output(index_put(data, [index], rows, [0], "add"))
        builder.emit_func_output(output)
    source = cuda(builder.get())
    headers = re.findall(r"^// tvm_scatter/(\w+)\.cuh$", source, re.MULTILINE)
    assert len(re.findall(r"__global__[^;]*\{", source)) > 2
    assert len(headers) > 4 and len(set(headers)) == len(headers)


def test_only_headers_that_are_known_are_left_out() -> None:
    some, others = header("some", "int one;\n// two"), header("others", "int three;")
    known: set[str] = set()
    assert without_headers(some + "void f() {}\n", known) == some + "void f() {}\n"
    assert without_headers(some + others + "void g() {}\n", known) == others + "void g() {}\n"
    assert known == {"some", "others"}
