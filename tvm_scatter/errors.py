"""The exception of this package for invalid input, and its warning for input that is skipped."""

from tvm_ffi.error import register_error


class ScatterError(ValueError):
    """Bad input to a scatter operator, option or command: one sentence that names what is wrong."""


class ScatterWarning(UserWarning):
    """Input that was skipped, such as a damaged record: one sentence."""


# An error that crosses TVM's C++ keeps its class only if the class is known there by name.
register_error("ScatterError", ScatterError)
