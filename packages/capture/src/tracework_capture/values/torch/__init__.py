"""Tensors, modules, settings of torch. A file knows files of lines above its own, and of its own line those before it:

- what is asked of tensors: dtypes, nested_size, leaves, inference_tensors, indices, extrema, graph_functions, structure
- who is asked about a call: tensor_attributes, opaque_tensor, overrides
- settings: modes, context, state, optimizer
- backward: hooks, backward
- calls: float_forms, generators, call
- calls with ways of their own: number_arguments, data_calls, tensor_data, metadata_mutation, tensor_text
- tensors: tensor, storage, subclass
- modules: module, functional_call, copies
- regions/, opaque_call
- the rows of torch's functions, and existing objects: functions, existing, results, collectives,
  distributed_tensor, nested
"""

from . import (  # noqa: F401
    backward,
    call,
    collectives,
    context,
    copies,
    data_calls,
    distributed_tensor,
    dtypes,
    existing,
    extrema,
    float_forms,
    functional_call,
    functions,
    generators,
    graph_functions,
    hooks,
    indices,
    inference_tensors,
    leaves,
    metadata_mutation,
    modes,
    module,
    nested,
    nested_size,
    number_arguments,
    opaque_call,
    opaque_tensor,
    optimizer,
    overrides,
    regions,
    results,
    state,
    storage,
    structure,
    subclass,
    tensor,
    tensor_attributes,
    tensor_data,
    tensor_text,
)
