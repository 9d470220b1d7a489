"""The check of indices reaches the last of many, whatever the parts that it is divided into."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import compile_all, device_of

from tvm_scatter.ops.operators import index_put

#: No number of parts divides it: one more than a part of the host's has, and than two of a GPU's.
COUNT = 16_385


@pytest.mark.parametrize("kind", ["checked"], indirect=True)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.usefixtures("kind")
@pytest.mark.each_device
def test_the_last_of_many_is_looked_at(device: str, symbolic: bool) -> None:
    if symbolic and device == "cuda":
        pytest.skip("symbolic sizes go the same way, and take long to compile")
    data, updates = np.zeros((4, 1), "float32"), np.ones((COUNT, 1), "float32")
    index = np.zeros(COUNT, "int64")
    calls = {
        "main": (lambda d, i, u: index_put(d, [i], u, reduction="add"), (data, index, updates))
    }
    machine = compile_all(calls, device, symbolic=symbolic, bounds="raise")
    for place in (COUNT - 1, COUNT - 2, 0):
        index = np.zeros(COUNT, "int64")
        index[place] = 4
        arguments = [tvm.runtime.tensor(each, device_of(device)) for each in (data, index, updates)]
        with pytest.raises(IndexError, match=rf"index 4 at .*\b{place}\b"):
            machine["main"](*arguments)
