"""Proves which scatters may overwrite their data because nothing else needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from tvm_scatter.ops.mutable_buffers import state_parameters
from tvm_scatter.ops.scatter_call import has_epilogue, is_scatter
from tvm_scatter.passes.functions import called_functions

from .aliasing import Storage
from .bindings import Binding, Bindings
from .effects import may_write


@dataclass(frozen=True)
class Overwrite:
    """A scatter that may overwrite its data.

    Attributes
    ----------
    call : relax.Call
        The scatter.
    earlier : tuple of relax.Var
        Tensors computed from the old data. TVM's fusion might compute them after the scatter, so
        the scatter takes them as arguments.
    donated : tuple of relax.Var
        Parameters of the function that it may overwrite.
    """

    call: relax.Call
    earlier: tuple[Any, ...]
    donated: tuple[Any, ...]


@dataclass(frozen=True)
class Overwrites:
    """The results of the analysis of one function.

    Attributes
    ----------
    found : dict
        Scatters that may overwrite their data, by the variable that the scatter is bound to.
    refused : dict
        For every other scatter, why it copies its data.
    """

    found: Mapping[Any, Overwrite]
    refused: Mapping[Any, str]


def donated_parameters(mod: tvm.IRModule, name: Any, names: Iterable[str]) -> list[Any]:
    """Parameters that the function may overwrite: donated by name, or buffers of the model.

    Empty if another function of the module calls this one: that caller may still read them.
    """
    function = mod[name]
    named = [parameter for parameter in function.params if parameter.name in names]
    given = list(dict.fromkeys([*named, *state_parameters(function)]))
    # Looking through the whole module for each of its functions takes long: only if it matters.
    return given if given and name not in called_functions(mod) else []


def overwrites(function: relax.Function, donated: Iterable[Any] = ()) -> Overwrites:
    """Find the scatters that may overwrite their data.

    Parameters
    ----------
    donated : iterable of relax.Var
        The parameters that the caller gives away.
    """
    bindings = Bindings(function)
    storage = Storage(function, bindings)
    found: dict[Any, Overwrite] = {}
    refused: dict[Any, str] = {}
    for binding in bindings:
        if not is_scatter(binding.value) or may_write(binding.value):
            continue
        proof = _prove(binding, bindings, storage, frozenset(donated))
        if isinstance(proof, str):
            refused[binding.var] = proof
        else:
            found[binding.var] = proof
            storage.join(binding.var, binding.value.args[0])
    return Overwrites(found, refused)


def _prove(
    binding: Binding, bindings: Bindings, storage: Storage, donated: frozenset[Any]
) -> Overwrite | str:
    """The proof that nothing needs the data after the scatter, or the reason why there is none."""
    data, operands = binding.value.args[0], binding.value.args[1:]
    if not isinstance(data, relax.Var):
        return "its data is a constant"
    if any(
        isinstance(operand.ty, relax.TupleType) and not isinstance(operand, relax.Tuple)
        for operand in operands
    ):
        return "its indices are a tuple from elsewhere"
    if has_epilogue(binding.value) and not tvm_ffi.structural_equal(binding.var.ty, data.ty):
        return "its result is of another type"
    shared = storage.members(data)
    if storage.is_foreign(data):
        return f"{data.name} may be a constant"
    parameters = shared & storage.parameters
    kept = sorted(parameter.name for parameter in parameters - donated)
    if kept:
        return f"{' and '.join(kept)} is not donated"
    if binding.var in shared or shared & _variables(operands):
        return f"it reads {data.name} as an index or an update, too"
    if any(other.scope != binding.scope for other in bindings if other.var in shared):
        return f"{data.name} comes from outside of the branch"
    if parameters and binding.scope != 0:
        return f"{data.name} comes from outside of the branch"
    later = [other.var.name for other in bindings.all[binding.at + 1 :] if other.reads & shared]
    if later:
        return f"{later[0]} reads {data.name} afterwards"
    if bindings.returned & shared:
        return f"{data.name} is returned as well"
    earlier = delayable(binding, bindings, shared)
    if earlier is None:
        return f"what is read from {data.name} before might be computed afterwards"
    return Overwrite(binding.value, earlier, tuple(parameters))


def delayable(
    binding: Binding, bindings: Bindings, shared: frozenset[Any]
) -> tuple[Any, ...] | None:
    """Results of reads of ``shared`` memory that fusion might compute behind the binding.

    The binding must take them as arguments. ``None`` if one of them is not a tensor and cannot be
    an argument.
    """
    if binding.fused == 0:
        return ()
    found = []
    for reader in bindings.all[: binding.at]:
        if reader.fused != binding.fused or not reader.reads & shared or reader.var in shared:
            continue
        if not _may_be_delayed(reader, binding, bindings):
            continue
        if not isinstance(reader.var.ty, relax.TensorType):
            return None
        found.append(reader.var)
    return tuple(found)


def _may_be_delayed(reader: Binding, binding: Binding, bindings: Bindings) -> bool:
    """Whether a later binding or the caller uses the result, and ``binding`` itself does not."""
    reached = {reader.var}
    for other in bindings.all[reader.at + 1 :]:
        if not other.reads & reached:
            continue
        if other.at == binding.at:
            # It is an operand of the binding, and so computed before.
            return False
        if other.at > binding.at:
            # Fusion can move a computation down to a reader of its result.
            return True
        reached.add(other.var)
    # Fusion can move the binding up, together with something that comes first and needs it.
    return not all(isinstance(var, relax.DataflowVar) for var in reached)


def _variables(operands: Sequence[Any]) -> frozenset[Any]:
    found: set[Any] = set()
    for operand in operands:
        found |= set(relax.analysis.free_vars(operand))
    return frozenset(found)
