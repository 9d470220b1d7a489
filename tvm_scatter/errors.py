"""The one exception that this package raises for input that it cannot accept."""

from tvm_ffi.error import register_error


class ScatterError(ValueError):
    """Bad input to a scatter operator, option or command: one sentence that names what is wrong."""


# An error that crosses TVM's C++ keeps its class only if the class is known there by name.
register_error("ScatterError", ScatterError)
