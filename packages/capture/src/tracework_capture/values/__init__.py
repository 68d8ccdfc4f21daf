"""How Python objects are modelled while a frame is traced, in storeys: each knows the ones below it.

arrays     NumPy's arrays
torch      tensors, modules, settings, regions
objects    functions, classes, instances, exceptions
plain      texts, containers, iterators
number     numbers not known while tracing
protocol   what a value is, and what is done with any two of them
"""

from __future__ import annotations

import importlib

from .protocol.make import make
from .protocol.registry import REGISTRIES

IMPORTED_LATE = (
    "number.size_floats",
    "plain.format_fields",
    "torch.open_indices",
    "torch.data_indices",
    "torch.extrema",
    "torch.masks",
    "torch.regions.autograd_function",
    "torch.opaque_call",
    "torch.regions.leaf",
    "torch.regions.nonstrict",
)
"""Modules that others import in functions."""

ONLY_ROWS = (
    "arrays.functions",
    "arrays.code",
    "arrays.random_numbers",
    "objects.compiled_here",
    "objects.copies",
    "objects.libraries",
    "number.open_fraction",
    "objects.existing",
    "objects.made_class",
    "objects.nested_texts",
    "objects.rows_attributes",
    "objects.rows_functions",
    "objects.rows_logged",
    "objects.rows_signatures",
    "objects.rows_warned",
    "objects.weak_reference",
    "plain.compared_keys",
    "plain.dict_views",
    "plain.sequence_methods",
    "plain.existing",
    "plain.heaps",
    "plain.percent",
    "plain.results",
    "plain.rows_containers",
    "plain.rows_copies",
    "plain.rows_iteration",
    "plain.rows_operators",
    "plain.rows_texts",
    "torch.copies",
    "torch.data_calls",
    "torch.dual_numbers",
    "torch.functional_call",
    "torch.callables",
    "torch.existing",
    "torch.generators",
    "torch.number_arguments",
    "torch.optimizer",
    "torch.regions.checkpoint",
    "torch.regions.exported",
    "torch.regions.flex_attention",
    "torch.regions.triton_kernel",
    "torch.regions.loops",
    "torch.regions.transforms",
    "torch.storage",
    "torch.tensor_classes",
    "torch.tensor_data",
)
"""Modules that add rows to tables, whoever else imports them."""


for _name in (*IMPORTED_LATE, *ONLY_ROWS):
    importlib.import_module(f"{__name__}.{_name}")
make.check()
for _registry in REGISTRIES:
    _registry.seal()
