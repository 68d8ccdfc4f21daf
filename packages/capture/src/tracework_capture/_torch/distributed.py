"""Process groups, distributed tensors and collectives."""

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch


def distributed_is_initialized() -> bool:
    """Whether there is a process group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


Placement: Any = getattr(getattr(torch._C, "_distributed", None), "Placement", None)
"""How a dimension of a mesh shares a tensor; None where a DTensor is no node."""


def is_distributed_tensor(cls: type) -> bool:
    """Whether it is torch's DTensor, whose gradients say themselves how they are shared."""
    return Placement is not None and cls.__name__ == "DTensor" and cls.__module__ in _MODULES_OF_DTENSORS


_MODULES_OF_DTENSORS = ("torch.distributed.tensor", "torch.distributed.tensor._api")


MESHES_ARE_PARTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)
"""Whether a DTensor names its mesh as one of its parts; before, it is within the one object with all that a DTensor keeps."""
Apart = tuple[Sequence[str], Any]


def distributed_tensor_apart(tensor: Any) -> Apart:
    """The names of a DTensor's parts, its mesh among them, and its (placements, facts, order of shards, requires_grad)."""
    names, context = tensor.__tensor_flatten__()
    if MESHES_ARE_PARTS:
        return names, context
    kept, requires_grad = context
    return (*names, "device_mesh"), (kept.placements, kept.tensor_meta, kept.shard_order, requires_grad)


def distributed_tensor_together(
    cls: Any,
    local: torch.Tensor,
    mesh: Any,
    placements: Any,
    order: Any,
    facts: tuple[Any, Any, torch.dtype],
    requires_grad: bool,
) -> torch.Tensor:
    """A DTensor. order: of the dims of the mesh that share a dim, None where the placements say it. facts: its sizes, strides and dtype."""
    spec: Any = sys.modules["torch.distributed.tensor._dtensor_spec"]
    sizes, strides, dtype = facts
    meta = spec.TensorMeta(shape=torch.Size(sizes), stride=tuple(strides), dtype=dtype)
    word = "use_strided_shard_as_shard_order"
    told: dict[str, Any] = {"shard_order": order} if MESHES_ARE_PARTS else {}  # before, it is that of the placements
    if order is not None and word in spec.DTensorSpec.__dataclass_fields__:
        told[word] = False
    made: torch.Tensor = cls(local, spec.DTensorSpec(mesh, placements, tensor_meta=meta, **told), requires_grad=requires_grad)
    return made


def handlers_of_distributed() -> int:
    """How many operators of DTensors are replaced; loss_parallel() replaces some."""
    api: Any = sys.modules.get("torch.distributed.tensor._api")
    return 0 if api is None else len(api.DTensor._op_dispatcher._custom_op_handlers)


def losses_in_parts() -> bool:
    """Whether a block of loss_parallel() is entered, in which losses are computed of logits as they are shared."""
    losses: Any = sys.modules.get("torch.distributed.tensor.parallel.loss")
    api: Any = sys.modules.get("torch.distributed.tensor._api")
    return losses is not None and losses.customized_loss_ops.keys() <= api.DTensor._op_dispatcher._custom_op_handlers.keys()


def loss_switch(on: bool) -> Callable[[], None]:
    """What torch calls where such a block begins, or ends."""
    losses: Any = sys.modules["torch.distributed.tensor.parallel.loss"]
    switch: Callable[[], None] = losses._enable_custom_loss_ops if on else losses._disable_custom_loss_ops
    return switch


def sets_generators(tensor: Any) -> bool:
    """Whether numbers that are drawn for a DTensor depend on where its parts are: the state of a generator is set for them. Elsewhere, as on a CPU,
    they are drawn for the local part alone."""
    mesh = tensor.device_mesh
    handle: Any = sys.modules["torch.distributed.device_mesh"]._get_device_handle(mesh.device_type)
    return hasattr(handle, "set_rng_state") or sys.modules["torch.distributed.tensor._random"]._rng_tracker is not None


def placements_of_gradient(placements: Any) -> Any:
    """How a gradient is shared of a tensor that is shared so: that of a sum over processes is the same for each of its terms."""
    if not any(placement.is_partial() for placement in placements):
        return placements
    replicate = sys.modules["torch.distributed.tensor.placement_types"].Replicate
    return tuple(replicate() if placement.is_partial() else placement for placement in placements)


def is_awaited(cls: type) -> bool:
    """Whether tensors of a class are results of collectives, waited for where they are read first."""
    return cls.__name__ == "AsyncCollectiveTensor" and cls.__module__ == "torch.distributed._functional_collectives"


def waited_for(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a collective gives, once it is there; others as they are."""
    if type(tensor) is torch.Tensor or not is_awaited(type(tensor)):
        return tensor
    found: torch.Tensor = tensor.trigger_wait()  # type: ignore[attr-defined]
    return found


functional_collectives = torch.ops._c10d_functional
"""The namespace of their operators."""


def function_of_distributed(name: str) -> Any:
    """A function of torch.distributed; None where this torch has none of that name."""
    return getattr(torch.distributed, name, None)


def functional_collective(name: str) -> Any:
    """An operator of theirs; None where this torch has none of that name."""
    return getattr(functional_collectives, name, None)


def default_group() -> Any:
    """A weak reference to the process group of all ranks, equal to another one for the same group; None where there is none. The names of
    other groups are theirs for as long as it lives."""
    group = torch.distributed.group.WORLD if distributed_is_initialized() else None
    return None if group is None else weakref.ref(group)
