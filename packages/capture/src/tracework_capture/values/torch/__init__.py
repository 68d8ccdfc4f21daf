"""Tensors, modules, settings of torch. A file knows files of lines above its own, and of its own line those before it:

- what is asked of tensors: dtypes, leaves, inference_tensors, open_indices, masks, extrema, graph_functions, structure
- who is asked about a call: tensor_attributes, foreign_tensor, overrides
- settings: context, state, dual_numbers, optimizer
- backward: module_hooks, hooks, frame_hooks, saved_hooks, backward, leaf_changes
- calls: foreach, float_curves, number_calls, float_operands, generators, call
- calls with ways of their own: number_arguments, data_calls, tensor_data, tensor_classes, data_indices, tensor_turns, texts_of_data
- tensors: tensor, storage, subclass, parameter
- modules: lazy_module, module, functional_call, copies
- regions/, opaque_call
- the rows of torch's functions, and existing objects: functions, callables, existing, results
"""
