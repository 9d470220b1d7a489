"""Says in one sentence at which operator PyTorch's own decomposition of a program fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tvm_scatter.errors import ScatterError

#: How torch.fx tells the node at which it was.
_EXECUTED = re.compile(r"While executing .*target=torch\.ops\.\w+\.(\w+)")


@contextmanager
def decompositions_explained() -> Iterator[None]:
    """In this context an error of PyTorch's decomposition becomes one of this package.

    Raises
    ------
    ScatterError
        Instead of such an error, which is its cause. All other errors stay as they are.
    """
    try:
        yield
    except ScatterError:
        raise
    except Exception as error:
        operator = _EXECUTED.search(str(error))
        if operator is None or not _is_of_decomposition(error):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".! ")
        raise ScatterError(
            f"{operator[1].rstrip('_')}: PyTorch cannot decompose the program there: {reason}; "
            "write the model so that program.run_decompositions() succeeds without TVM."
        ) from error


def _is_of_decomposition(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "run_decompositions":
            return True
        trace = trace.tb_next
    return False
