"""Collectives of torch.distributed that write to plain tensors, as calls of their functional forms and writes of what these give.

Who calls one with async_op=True reads nothing of it before he has waited, so that what is written at once is the same to him; whoever runs the
graph waits as late as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import _torch
from . import NotComputed

__all__ = ["IN_PLACE", "Done", "distribute_tensor", "facts_of_group", "root_in_group", "text_of_operation"]

OPERATIONS = {getattr(dist.ReduceOp, name.upper()): name for name in "sum avg product min max band bor bxor".split()}
"""Reduction -> how functional collectives call it."""
_functional: Any = _torch.distributed.functional_collectives


class NoFunctionalForm(NotComputed):
    """What the functional collectives do not do, or do otherwise."""

    reason = "call_skipped"


class Done:
    """What a call with async_op=True gives: the results are there as far as anybody can see."""

    def __init__(self, results: list[torch.Tensor]) -> None:
        self._results = results

    def wait(self, timeout: object = None) -> bool:
        """Nothing is left to wait for."""
        return True

    def is_completed(self) -> bool:
        """True"""
        return True

    def result(self) -> list[torch.Tensor]:
        """What was written."""
        return self._results

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def get_future(self) -> Any:
        """A future that is done."""
        future: Any = torch.futures.Future()
        future.set_result(self._results)
        return future


# --- known while tracing, of a group of this world: rows of values/torch/collectives.py say so ------------------------------------------


def facts_of_group(group: Any) -> tuple[str, int] | None:
    """Its name and how many ranks it has; None where this rank is none of them."""
    if group is None:
        group = dist.group.WORLD
    if group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return (group.group_name, group.size()) if isinstance(group, dist.ProcessGroup) else None


def root_in_group(group: Any, rank: int | None, group_rank: int | None) -> int:
    """The rank in its group of who sends, given in the world or in the group."""
    if (rank is None) == (group_rank is None):
        raise ValueError("exactly one of the two ranks must be given")
    if group_rank is not None:
        return group_rank
    return rank if group is None or group is dist.group.WORLD else dist.get_group_rank(group, rank)  # type: ignore[return-value, arg-type]


def text_of_operation(op: Any) -> str | None:
    """How functional collectives call a reduction; None for those that they have not."""
    return OPERATIONS.get(op)


# --- traced ------------------------------------------------------------------------------------------------------------------------


def _group(group: Any) -> tuple[str, int]:
    facts = facts_of_group(group)
    if facts is None:
        raise NoFunctionalForm("a collective of a group that this rank is not in")
    return facts


def _operation(op: Any) -> str:
    name = text_of_operation(op)
    if name is None:
        raise NoFunctionalForm("a collective with an operation that is none of ReduceOp's plain ones")
    return name


def _check(written: Sequence[torch.Tensor], read: Sequence[torch.Tensor], elements: Sequence[int]) -> None:
    """What the eager collective refuses, or has no gradients of, is left to it. elements: that the results have."""
    for tensor in (*written, *read):
        if not isinstance(tensor, torch.Tensor):
            raise NoFunctionalForm("a collective of something that is no tensor")
        if tensor.is_complex() or not tensor.is_contiguous() or tensor.dtype != written[0].dtype:
            raise NoFunctionalForm("a collective of tensors that are complex, not contiguous or of several dtypes")
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise NoFunctionalForm(
                "a collective that writes to, or reads, a tensor with a history, of which autograd sees nothing"
            )
    for tensor, count in zip(written, elements):
        if tensor.numel() != count:
            raise NoFunctionalForm("a collective whose results have other sizes than what it writes to")


def _write(written: Sequence[torch.Tensor], results: Sequence[torch.Tensor], async_op: bool) -> Done | None:
    """The results are in their places."""
    with torch.no_grad():
        for tensor, result in zip(written, results):
            tensor.copy_(result.reshape(tensor.shape))
    return Done(list(written)) if async_op else None


def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.all_reduce"""
    name, _ = _group(group)
    operation = _operation(op)
    _check([tensor], [], [tensor.numel()])
    result = _functional.wait_tensor(_functional.all_reduce(tensor, operation, name))
    return _write([tensor], [result], async_op)


def all_reduce_coalesced(tensors: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.all_reduce_coalesced"""
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    name, _ = _group(group)
    operation = _operation(op)
    _check(tensors, [], [tensor.numel() for tensor in tensors])
    results = [_functional.wait_tensor(result) for result in _functional.all_reduce_coalesced(tensors, operation, name)]
    return _write(tensors, results, async_op)


def broadcast(tensor: Any, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = None) -> Any:
    """torch.distributed.broadcast"""
    name, _ = _group(group)
    root = root_in_group(group, src, group_src)
    _check([tensor], [], [tensor.numel()])
    result = _functional.wait_tensor(_functional.broadcast(tensor, root, name))
    return _write([tensor], [result], async_op)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.all_gather_into_tensor"""
    name, size = _group(group)
    _check([output_tensor], [input_tensor], [size * input_tensor.numel()])
    result = _functional.wait_tensor(_functional.all_gather_into_tensor(input_tensor, size, name))
    return _write([output_tensor], [result], async_op)


def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.all_gather"""
    name, size = _group(group)
    if len(tensor_list) != size:
        raise NoFunctionalForm("all_gather into a list of another length than the group has ranks")
    _check(tensor_list, [tensor], [tensor.numel()] * size)
    result = _functional.wait_tensor(_functional.all_gather_into_tensor(tensor, size, name))
    return _write(tensor_list, result.reshape(size, *tensor.shape).unbind(), async_op)


def reduce_scatter_tensor(output: Any, input: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.reduce_scatter_tensor"""
    name, size = _group(group)
    operation = _operation(op)
    _check([output], [input], [input.numel() // size])
    if input.numel() != size * output.numel():
        raise NoFunctionalForm("reduce_scatter_tensor of sizes that the group's does not divide")
    result = _functional.wait_tensor(
        _functional.reduce_scatter_tensor(input.reshape(size * output.numel()), operation, size, name)
    )
    return _write([output], [result], async_op)


def reduce_scatter(output: Any, input_list: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.reduce_scatter"""
    name, size = _group(group)
    operation = _operation(op)
    if len(input_list) != size or not all(part.shape == output.shape for part in input_list):
        raise NoFunctionalForm("reduce_scatter of a list that is not one tensor like the result for each rank")
    _check([output], input_list, [output.numel()])
    result = _functional.wait_tensor(
        _functional.reduce_scatter_tensor(torch.cat([part.reshape(-1) for part in input_list]), operation, size, name)
    )
    return _write([output], [result], async_op)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """torch.distributed.all_to_all_single"""
    name, size = _group(group)
    _check([output], [input], [])
    if output.ndim == 0 or input.ndim == 0 or output.shape[1:] != input.shape[1:]:
        raise NoFunctionalForm("all_to_all_single of rows that differ")
    received = list(output_split_sizes or [output.shape[0] // size] * size)
    sent = list(input_split_sizes or [input.shape[0] // size] * size)
    if sum(received) != output.shape[0] or sum(sent) != input.shape[0]:
        raise NoFunctionalForm("all_to_all_single of splits that do not add up")
    result = _functional.wait_tensor(_functional.all_to_all_single(input, received, sent, name))
    return _write([output], [result], async_op)


def distribute_tensor(tensor: Any, device_mesh: Any = None, placements: Any = None, *, src_data_rank: Any = 0) -> Any:
    """torch.distributed.tensor.distribute_tensor from one rank: all of it is sent along each dim of the mesh, and every rank takes its part."""
    api: Any = torch.distributed.tensor
    if device_mesh is None or isinstance(tensor, api.DTensor) or tensor.requires_grad or not tensor.is_contiguous():
        raise NoFunctionalForm(
            "distribute_tensor, without src_data_rank=None, of a tensor that has gaps or gradients, or without a mesh"
        )
    whole = tensor.to(device_mesh.device_type)
    for dim in range(device_mesh.ndim):
        whole = _functional.wait_tensor(_functional.broadcast(whole, src_data_rank, device_mesh.get_group(dim).group_name))
    return api.distribute_tensor(whole, device_mesh, placements, src_data_rank=None)


IN_PLACE: dict[str, Callable[..., Any]] = {
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "all_gather_single": all_gather_into_tensor,
    "_all_gather_base": all_gather_into_tensor,
    "all_reduce": all_reduce,
    "all_reduce_coalesced": all_reduce_coalesced,
    "all_to_all_single": all_to_all_single,
    "broadcast": broadcast,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_single": reduce_scatter_tensor,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "_reduce_scatter_base": reduce_scatter_tensor,
}
"""Function of torch.distributed -> what is traced in its place."""
