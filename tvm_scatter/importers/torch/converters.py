"""PyTorch's scatter operators for TVM's ``from_exported_program``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import partial
from types import ModuleType
from typing import Any

from tvm import relax, tirx

from tvm_scatter.importers.on_import import forget, when_imported
from tvm_scatter.importers.replaced import replace, restore
from tvm_scatter.options import current_options

from . import (
    boxes as torch_boxes,
)
from . import (
    compaction as torch_compaction,
)
from . import (
    counts as torch_counts,
)
from . import (
    deformed as torch_deformed,
)
from . import (
    embedding_bag as torch_embedding_bag,
)
from . import (
    histogram as torch_histogram,
)
from . import (
    index as torch_index,
)
from . import (
    mask as torch_mask,
)
from . import (
    padding as torch_padding,
)
from . import (
    pooling as torch_pooling,
)
from . import (
    read as torch_read,
)
from . import (
    resizing as torch_resizing,
)
from . import (
    scatter as torch_scatter,
)
from . import (
    segments as torch_segments,
)
from . import (
    slice as torch_slice,
)
from .aliases import with_constants_as_buffers
from .assertions import ASSERTIONS
from .attention_layout import with_contiguous_attention
from .call import TorchCall
from .complex_numbers import knowing_complex_numbers, refuse_complex_ends
from .constant_sizes import with_constant_sizes
from .corrected import with_corrected_decompositions
from .decompose import decompose_unknown
from .derived_sizes import with_computed_sizes
from .divisors import without_zero_divisors
from .equal_sizes import knowing_equal_sizes
from .exported_conditions import (
    conditions_in_force,
    noted_conditions,
    with_exported_conditions,
)
from .fused_attention import refuse_results_for_gradients
from .graphs import graphs_of, name_of, writes_in_place
from .integer_arguments import refuse_integer_arguments
from .mended import MENDED
from .permuted_views import with_kept_strides
from .plain_inputs import (
    expressions_of,
    shapes_of_numbers,
    values_of_inputs,
    with_numbers_as_shapes,
    without_constant_inputs,
)
from .random_numbers import refuse_random_numbers
from .sparse import knowing_sparse_tensors, refuse_sparse_ends, refuse_sparse_operators
from .sparse_calls import with_plain_sparse_calls
from .state import explicit_buffers, remember_buffers
from .strided_views import with_strided_views
from .symbols import SYMBOLS, Symbolic
from .undecomposed import decompositions_explained
from .unsupported import refuse_constants_without_data, refuse_loops, refuse_unsupported

Converter = Callable[[TorchCall], Any]

_MODULE = "tvm.relax.frontend.torch.exported_program_translator"
_IMPORTER = "ExportedProgramImporter"
_ENTRY = "from_exported_program"
_STOCK = "_tvm_scatter_stock"

#: Operators that scatter.
WRITERS: dict[str, Converter] = {
    "scatter.src": torch_scatter.scatter,
    "scatter.value": torch_scatter.scatter,
    "scatter.reduce": torch_scatter.scatter_reduce,
    "scatter.value_reduce": torch_scatter.scatter_reduce,
    "scatter_add.default": torch_scatter.scatter_add,
    "scatter_reduce.two": torch_scatter.scatter_reduce,
    "index_add.default": torch_scatter.index_add,
    "index_copy.default": torch_scatter.index_copy,
    "index_fill.int_Scalar": torch_scatter.index_fill,
    "index_fill.int_Tensor": torch_scatter.index_fill,
    "index_reduce.default": torch_scatter.index_reduce,
    "index_put.default": torch_index.index_put,
    "_unsafe_index_put.default": torch_index.index_put,
    "masked_scatter.default": torch_mask.masked_scatter,
    "put.default": torch_scatter.put,
    "select_scatter.default": torch_slice.select_scatter,
    "slice_scatter.default": torch_slice.slice_scatter,
    "diagonal_scatter.default": torch_slice.diagonal_scatter,
    "as_strided_scatter.default": torch_slice.as_strided_scatter,
    "embedding_dense_backward.default": torch_scatter.embedding_dense_backward,
    "_embedding_bag.default": torch_embedding_bag.embedding_bag,
    "_embedding_bag_forward_only.default": torch_embedding_bag.embedding_bag,
    "_embedding_bag_backward.default": torch_embedding_bag.embedding_bag_dense_backward,
    "_embedding_bag_dense_backward.default": torch_embedding_bag.embedding_bag_dense_backward,
    "bincount.default": torch_counts.bincount,
    "histc.default": torch_histogram.histc,
    "masked_scatter_backward.default": torch_mask.masked_scatter_backward,
    "segment_reduce.default": torch_segments.segment_reduce,
    "max_pool2d_with_indices_backward.default": torch_pooling.max_pool_backward,
    "max_pool3d_with_indices_backward.default": torch_pooling.max_pool_backward,
    "adaptive_max_pool2d_backward.default": torch_pooling.max_pool_backward,
    "adaptive_max_pool3d_backward.default": torch_pooling.max_pool_backward,
    "avg_pool2d_backward.default": torch_pooling.avg_pool_backward,
    "avg_pool3d_backward.default": torch_pooling.avg_pool_backward,
    "_adaptive_avg_pool2d_backward.default": torch_pooling.adaptive_avg_pool_backward,
    "_adaptive_avg_pool3d_backward.default": torch_pooling.adaptive_avg_pool_backward,
    "replication_pad1d_backward.default": torch_padding.replication_pad_backward,
    "replication_pad2d_backward.default": torch_padding.replication_pad_backward,
    "replication_pad3d_backward.default": torch_padding.replication_pad_backward,
    "upsample_nearest1d_backward.default": torch_resizing.upsample_nearest_backward,
    "upsample_nearest2d_backward.default": torch_resizing.upsample_nearest_backward,
    "upsample_nearest3d_backward.default": torch_resizing.upsample_nearest_backward,
    "_upsample_nearest_exact1d_backward.default": torch_resizing.upsample_nearest_backward,
    "_upsample_nearest_exact2d_backward.default": torch_resizing.upsample_nearest_backward,
    "_upsample_nearest_exact3d_backward.default": torch_resizing.upsample_nearest_backward,
    "upsample_linear1d_backward.default": torch_resizing.upsample_linear_backward,
    "upsample_bilinear2d_backward.default": torch_resizing.upsample_linear_backward,
    "upsample_trilinear3d_backward.default": torch_resizing.upsample_linear_backward,
    "upsample_bicubic2d_backward.default": torch_resizing.upsample_cubic_backward,
    "_upsample_bilinear2d_aa_backward.default": torch_resizing.upsample_smooth_backward,
    "_upsample_bicubic2d_aa_backward.default": torch_resizing.upsample_smooth_backward,
}

#: The scatter operators with an in-place form.
_IN_PLACE = (
    "scatter.src",
    "scatter.value",
    "scatter.reduce",
    "scatter.value_reduce",
    "scatter_add.default",
    "scatter_reduce.two",
    "index_add.default",
    "index_copy.default",
    "index_fill.int_Scalar",
    "index_fill.int_Tensor",
    "index_reduce.default",
    "index_put.default",
    "masked_scatter.default",
    "put.default",
)

#: Operators that read by index. TVM's converters for them do not check negative indices, get ``x[i,
#: :, j]`` wrong, truncate indices to 32 bits, or are missing.
READERS: dict[str, Converter] = {
    "index.Tensor": torch_read.index,
    "_unsafe_index.Tensor": torch_read.index,
    "index_select.default": torch_read.index_select,
    "embedding.default": torch_read.embedding,
    "gather.default": torch_read.gather,
    "take.default": torch_read.take,
    "select.int": torch_read.select,
    "nonzero.default": torch_compaction.nonzero,
    "masked_select.default": torch_compaction.masked_select,
    "nms.default": torch_boxes.nms,
    "roi_pool.default": torch_boxes.roi_pool,
    "deform_conv2d.default": torch_deformed.deform_conv2d,
}

#: Views and copies that ``x[i] += v`` reads, whose TVM converters are wrong or missing.
VIEWS: dict[str, Converter] = {
    "as_strided.default": torch_slice.as_strided,
    "copy.default": torch_slice.copy,
    "copy_strided.default": torch_slice.copy_strided,
}


#: Operators into which PyTorch decomposes a scatter, and whose TVM converters are wrong. These
#: converters are used only for nodes of such a decomposition.
PARTS: dict[str, Converter] = {
    "mul.Tensor": torch_scatter.scaled,
    "where.self": torch_slice.decomposed_select_scatter,
}


def torch_converters() -> dict[str, Callable[[Any, Any], Any]]:
    """The converters for PyTorch's scatter operators, as a ``custom_convert_map``.

    Importing the package adds them to TVM's importer. After :func:`tvm_scatter.uninstall`, they can
    be passed to it by hand.

    Returns
    -------
    converters : dict
        Maps the name of an ATen overload, such as ``"scatter_add.default"``, to a function that
        takes the node of the graph and TVM's importer.
    """
    converters: dict[str, Callable[[Any, Any], Any]] = {
        name: partial(_convert, converter)
        for name, converter in (WRITERS | READERS | VIEWS).items()
    }
    for name in _IN_PLACE:
        operator, overload = name.split(".")
        converters[f"{operator}_.{overload}"] = partial(_convert_in_place, WRITERS[name])
    return converters


def install_torch() -> None:
    """Add the converters to TVM's importer when it is imported."""
    when_imported(_MODULE, _extend)


def uninstall_torch() -> None:
    """Restore TVM's importer."""
    forget(_MODULE)
    if _MODULE in sys.modules:
        _restore(sys.modules[_MODULE])


def _convert(converter: Converter, node: Any, importer: Any) -> Any:
    return converter(TorchCall(node, importer))


def _convert_in_place(converter: Converter, node: Any, importer: Any) -> Any:
    """Convert an in-place call: all nodes that held the overwritten tensor now hold the result."""
    call = TorchCall(node, importer)
    overwritten = call["self"]
    result = converter(call)
    for other, value in list(importer.env.items()):
        if value is overwritten:
            importer.env[other] = result
    return result


def _extend(module: ModuleType) -> None:
    """Wrap the importer's table and its entry points. The originals are kept on the class."""
    importer = getattr(module, _IMPORTER)
    stock = importer.__dict__.get(_STOCK) or {
        "create_convert_map": importer.create_convert_map,
        "from_exported_program": importer.from_exported_program,
        "create_input_vars": importer.create_input_vars,
        "_translate_fx_graph": importer._translate_fx_graph,
        "_flatten_output_args": importer.__dict__["_flatten_output_args"],
        "_process_derived_symbol": importer._process_derived_symbol,
        "_prim_value_to_scalar_tensor": importer._prim_value_to_scalar_tensor,
    }
    setattr(importer, _STOCK, stock)

    def create_convert_map(self: Any) -> dict[str, Any]:
        table = stock["create_convert_map"](self)
        if not current_options().enabled:
            return table
        for name, mended in MENDED.items():
            table[name] = partial(_convert_or_stock, self, mended, table.get(name))
        for name, symbolic in (SYMBOLS | ASSERTIONS).items():
            table[name] = partial(_convert_symbol, self, symbolic, table.get(name))
        ours = {
            name: lambda node, converter=converter: converter(node, self)
            for name, converter in torch_converters().items()
        }
        for name, part in PARTS.items():
            ours[name] = partial(_convert_part, self, part, table[name])
        table = knowing_complex_numbers(self, table | ours)
        return knowing_equal_sizes(self, knowing_sparse_tensors(self, table))

    def from_exported_program(self: Any, exported_program: Any, *rest: Any, **named: Any) -> Any:
        if current_options().enabled:
            callers = _of_the_caller(*rest, **named)
            if _writes_in_place(exported_program, callers):
                exported_program = exported_program.run_decompositions({})
            known = {*self.convert_map, *callers}
            refuse_results_for_gradients(exported_program, known)
            exported_program = decompose_unknown(exported_program, known)
            exported_program = with_constant_sizes(exported_program, conditions_in_force())
            refuse_random_numbers(exported_program, callers)
            refuse_sparse_operators(exported_program)
            refuse_complex_ends(exported_program)
            refuse_unsupported(exported_program, known)
            exported_program = without_constant_inputs(exported_program)
        buffers: dict[str, Any] = {}
        if current_options().enabled:
            exported_program, buffers = explicit_buffers(exported_program, _writes)
        mod = stock["from_exported_program"](self, exported_program, *rest, **named)
        if any(map(_is_part, exported_program.graph.nodes)):
            # Other nodes of a decomposition are unused now.
            mod = relax.transform.DeadCodeElimination()(mod)
        if current_options().enabled:
            mod = with_computed_sizes(mod)
        return remember_buffers(mod, buffers)

    def create_input_vars(self: Any, exported_program: Any) -> Any:
        if not current_options().enabled:
            return stock["create_input_vars"](self, exported_program)
        described = with_numbers_as_shapes(exported_program)
        kept, inputs, ranges = stock["create_input_vars"](self, described)
        return kept, shapes_of_numbers(exported_program, inputs), ranges

    def _translate_fx_graph(self: Any, module: Any, nodes: Any, inputs: Any, *rest: Any) -> Any:
        return stock["_translate_fx_graph"](self, module, nodes, values_of_inputs(inputs), *rest)

    def _flatten_output_args(results: Any) -> Any:
        enabled = current_options().enabled
        return stock["_flatten_output_args"](expressions_of(results) if enabled else results)

    def _process_derived_symbol(self: Any, symbol: Any, variables: Any) -> Any:
        if current_options().enabled and getattr(symbol, "is_Integer", False):
            # PyTorch found that a size marked as dynamic is constant. TVM names a variable "2".
            return str(symbol), tirx.IntImm("int64", int(symbol))
        return stock["_process_derived_symbol"](self, symbol, variables)

    importer.create_input_vars = create_input_vars
    importer._translate_fx_graph = _translate_fx_graph
    importer._flatten_output_args = staticmethod(_flatten_output_args)

    def _prim_value_to_scalar_tensor(self: Any, value: Any, dtype: str) -> Any:
        if current_options().enabled:
            value = without_zero_divisors(value)
        return stock["_prim_value_to_scalar_tensor"](self, value, dtype)

    importer._process_derived_symbol = _process_derived_symbol
    importer._prim_value_to_scalar_tensor = _prim_value_to_scalar_tensor
    importer.create_convert_map = create_convert_map
    importer.from_exported_program = from_exported_program
    replace(getattr(module, _ENTRY), _prepared)


def _prepared(stock: Any, exported_program: Any, *rest: Any, **named: Any) -> Any:
    """Import a program whose form PyTorch can decompose, which TVM asks it for at first."""
    if not current_options().enabled:
        return stock(exported_program, *rest, **named)
    refuse_loops(exported_program, _of_the_caller(*rest, **named))
    refuse_sparse_ends(exported_program)
    refuse_integer_arguments(exported_program)
    refuse_constants_without_data(exported_program)
    with decompositions_explained(), noted_conditions(exported_program) as conditions:
        exported_program = with_plain_sparse_calls(exported_program)
        exported_program = with_constants_as_buffers(exported_program)
        exported_program = with_contiguous_attention(exported_program)
        exported_program = with_strided_views(exported_program)
        exported_program = with_kept_strides(exported_program)
        exported_program = with_corrected_decompositions(exported_program)
        mod = stock(exported_program, *rest, **named)
    return with_exported_conditions(mod, conditions)


def _of_the_caller(*rest: Any, **named: Any) -> Collection[str]:
    """The names of the converters that the caller gave to ``from_exported_program``."""
    given = named.get("custom_convert_map", rest[-1] if rest else None)
    return given if isinstance(given, dict) else ()


def _restore(module: ModuleType) -> None:
    restore(getattr(module, _ENTRY))
    importer = getattr(module, _IMPORTER)
    for name, function in importer.__dict__.get(_STOCK, {}).items():
        if name in importer.__dict__:
            delattr(importer, name)
        if getattr(importer, name, None) is not function:  # else it is inherited
            setattr(importer, name, function)
    if _STOCK in importer.__dict__:
        delattr(importer, _STOCK)


def _convert_or_stock(importer: Any, mended: Converter, stock: Any, node: Any) -> Any:
    """Convert by ``mended``, or by TVM's converter where that is right."""
    converted = mended(TorchCall(node, importer))
    return stock(node) if converted is None else converted


def _convert_symbol(importer: Any, symbolic: Symbolic, stock: Any, node: Any) -> Any:
    """Convert arithmetic on sizes, or leave it to TVM's converter."""
    converted = symbolic(node, importer)
    return stock(node) if converted is None else converted


def _convert_part(importer: Any, part: Converter, stock: Any, node: Any) -> Any:
    """Convert a node of a decomposed scatter by ``part``, any other by TVM's converter."""
    return _convert_or_stock(importer, part, stock, node) if _is_part(node) else stock(node)


def _writes(node: Any) -> bool:
    """Whether a node is a scatter, or part of a decomposed one."""
    return name_of(node) in WRITERS or _is_part(node)


def _is_part(node: Any) -> bool:
    return getattr(node.meta.get("original_aten"), "__name__", "") in WRITERS


def _writes_in_place(exported_program: Any, callers: Collection[str]) -> bool:
    """Whether the program writes in place by an operator for which the caller has no converter.

    Then PyTorch must rewrite it without in-place operators, and decomposes nothing else: views of
    what is written change with it, and new values of buffers and inputs become outputs. By default,
    TVM has let PyTorch decompose the program before.
    """
    names = {*callers} - torch_converters().keys()
    nodes = (node for graph in graphs_of(exported_program) for node in graph.nodes)
    return any(writes_in_place(node) and name_of(node) not in names for node in nodes)
