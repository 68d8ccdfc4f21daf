"""The only file of this package that touches private torch names; each is wrapped under a name of ours."""

import contextlib
import functools
import math
import sys
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op as associative_scan_op
from torch._higher_order_ops.associative_scan import generic_associative_scan as generic_associative_scan
from torch._higher_order_ops.cond import cond_op as cond_op
from torch._higher_order_ops.map import map as _map
from torch._higher_order_ops.map import map_impl as map_impl
from torch._higher_order_ops.out_dtype import out_dtype as out_dtype
from torch._higher_order_ops.scan import scan as scan
from torch._higher_order_ops.scan import scan_op as scan_op
from torch._higher_order_ops.while_loop import while_loop as while_loop
from torch._higher_order_ops.while_loop import while_loop_op as while_loop_op
from torch._higher_order_ops.wrap import wrap_with_autocast as wrap_with_autocast
from torch._higher_order_ops.wrap import wrap_with_set_grad_enabled as wrap_with_set_grad_enabled
from torch._library.custom_ops import CustomOpDef as CustomOpDef
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket
from torch.distributions import constraints, distribution
from torch.fx import _symbolic_trace
from torch.nested._internal import nested_tensor as _nested
from torch.nn.modules._functions import BackwardHookFunction
from torch.optim import optimizer
from torch.utils import _foreach_utils, checkpoint
from torch.utils._device import DeviceContext
from torch.utils.hooks import BackwardHook

from . import _C
from .own_packages import is_own_module

DLPACK_DTYPES: dict[Any, tuple[int, int]] = {
    getattr(torch, name): row
    for name, row in {
        "int8": (0, 8),
        "int16": (0, 16),
        "int32": (0, 32),
        "int64": (0, 64),
        "uint8": (1, 8),
        "uint16": (1, 16),
        "uint32": (1, 32),
        "uint64": (1, 64),
        "float16": (2, 16),
        "float32": (2, 32),
        "float64": (2, 64),
        "bfloat16": (4, 16),
        "bool": (6, 8),
    }.items()
    if hasattr(torch, name)
}
"""dtype -> DLPack's (code, bits); what is missing is checked through attributes, complex tensors because of their conjugate bit."""

DLPACK_DEVICES = {"cpu": 1, "cuda": 2}
"""Device type -> DLPack's number; what is missing is checked through attributes."""

any_autocast = torch._C._is_any_autocast_enabled
FunctionBase: Any = torch._C._FunctionBase
set_grad_mode = torch._C._set_grad_enabled
"""What a graph's node calls to switch the gradients' mode; modes see it."""
enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast
SingleLevelFunction: Any = torch.autograd.function._SingleLevelFunction
deterministic_warns_only = torch._C._get_deterministic_algorithms_warn_only
select_attention_kernels = torch.nn.attention._sdpa_kernel
deterministic_state = torch._C._get_deterministic_algorithms
function_mode_count = torch._C._len_torch_function_stack
function_mode_at = torch._C._get_function_stack_at
function_modes_are_on = torch._C._is_torch_function_mode_enabled
push_function_mode = torch._C._push_on_torch_function_stack
pop_function_mode = torch._C._pop_torch_function_stack
dispatch_mode_count = torch._C._len_torch_dispatch_stack
under_jit_trace = torch._C._is_tracing
make_subclass = torch.Tensor._make_subclass
call_of_checkpointed: Any = getattr(checkpoint, "_checkpoint_impl", None)
"""What functions that checkpoint() decorated call (torch 2.15); unlike checkpoint() torch does not mark it to run as plain Python."""
TensorBase = torch._C.TensorBase
"""The class that C defines, of which torch.Tensor is a class."""
MODULE_OF_TENSOR = torch._tensor.__name__
"""Where the Python methods of torch.Tensor say that they are from."""
neg_view = torch._neg_view
is_all_true = torch._is_all_true
int_mm = torch._int_mm
is_any_true = torch._is_any_true
shape_as_tensor = torch._shape_as_tensor
torch_assert = torch._assert
assert_async = torch._assert_async
assert_scalar = torch.ops.aten._assert_scalar.default
check_with = torch._check_with
check_tensor_all_with = torch._check_tensor_all_with
check_is_size = torch._check_is_size
PACKED_SEQUENCES = (torch._pack_padded_sequence, torch._pad_packed_sequence)
arguments_of_to = torch._C._nn._parse_to
"""What Module.to makes of its arguments: (device, dtype, non_blocking, memory format)."""
VF = torch._VF
NATIVE_NAMESPACES: dict[Any, str] = {
    torch._C._VariableFunctions: "",
    torch._C._nn: "",
    torch._C._linalg: "linalg_",  # type: ignore[attr-defined]
    torch._C._fft: "fft_",  # type: ignore[attr-defined]
    torch._C._special: "special_",  # type: ignore[attr-defined]
}
"""Namespaces of operators that C defines -> how the names of those operators begin."""
device_constructors = torch.utils._device._device_constructors
device_index = torch._utils._get_device_index
log_api_usage_once = torch._C._log_api_usage_once
jit_is_scripting = torch._jit_internal.is_scripting
QUERIES = (
    torch._C._get_tracing_state,
    torch._C._is_tracing,
    torch._C._is_autocast_available,
    torch._C._get_privateuse1_backend_name,
    torch._C._are_functorch_transforms_active,
    torch._C._functorch.maybe_current_level,
    torch._C._functorch.peek_interpreter_stack,
    torch._C._len_torch_dispatch_stack,
    torch._C._accelerator_getAccelerator,
)
"""Queries of torch's state, which is always guarded, or does not change."""
FUSED_ATTENTION = (torch._native_multi_head_attention, torch._transformer_encoder_layer_fwd)
map_steps: Callable[..., Any] = _map
keeping_version = torch.autograd.grad_mode._unsafe_preserve_version_counter


torch_functions_off = torch._C.DisableTorchFunctionSubclass
all_torch_functions_off: Any = torch._C.DisableTorchFunction
torch_functions_on = torch._C._EnableTorchFunction
torch_functions_are_on = torch._C._is_torch_function_enabled
all_torch_functions_are_off = torch._C._is_torch_function_all_disabled
disabled_torch_function = torch._C._disabled_torch_function_impl
"""The __torch_function__ of classes that ask for nothing: calls with them go on as with plain tensors."""


def torch_functions_off_for() -> str:
    """Whom calls of torch do not ask: "nobody" is left out, the "classes" of tensors are, or "all", modes too."""
    if torch_functions_are_on():
        return "nobody"
    return "all" if all_torch_functions_are_off() else "classes"


def as_subclass(tensor: Any, cls: type) -> Any:
    """tensor.as_subclass(cls), past the __torch_function__ of both."""
    with torch_functions_off():
        return torch.Tensor.as_subclass(tensor, cls)


def present(space: Any, names: Iterable[str]) -> dict[str, Any]:
    """What a namespace of torch has under these names, of which each release has some."""
    return {name: getattr(space, name) for name in names if hasattr(space, name)}


TENSORS_HAVE_NAMES = hasattr(torch.Tensor, "names")
"""Whether tensors have the names of their dims, which went with torch 2.13."""
wrap_triton: Any = getattr(torch.library, "wrap_triton", None)
"""What makes a kernel of Triton's one that graphs hold; None in a torch without it."""
BOUNDS_TAKE_GRADIENTS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)
"""Whether a clamp has no gradient where an element is its bound, a number; where it is a bound in a tensor each gets a half of it."""


@functools.cache
def nan_alone_is_no_bound() -> bool:
    """Whether a clamp with one bound that is nan leaves all elements, without a gradient (torch 2.11), in the place of making them nan."""
    return not torch.zeros(1).clamp(max=math.nan).isnan().item()


@functools.cache
def foreach_gives_lists() -> bool:
    """Whether a function that writes to the tensors of a list gives the list; nothing in older versions of torch."""
    zero: Callable[..., Any] = torch._foreach_zero_
    return zero([torch.zeros(())]) is not None


def failed_check(message: Any) -> Exception:
    """What torch._check raises with this constant for a message: from torch 2.15 on it may be a text."""
    try:
        torch._check(False, message)
    except (RuntimeError, TypeError) as error:
        return error
    raise AssertionError("torch._check(False) did not raise")


@functools.cache
def text_of_failed_check() -> str:
    """What torch._check and its like say where the program says nothing."""
    return str(failed_check(None))


Symmetric: Any = constraints._Symmetric
PositiveDefinite: Any = constraints._PositiveDefinite
PositiveSemidefinite: Any = constraints._PositiveSemidefinite
asserts_all: Any = getattr(distribution, "_all_true_or_runtime_assert", None)
"""What tells whether a tensor that distributions made holds (torch 2.15)."""


class _Aside(threading.local):
    modes: tuple[Any, ...] = ()


_aside = _Aside()


@contextlib.contextmanager
def function_modes_aside() -> Iterator[None]:
    """TorchFunctionModes see nothing of what is done inside, but for the one that is the default device."""
    stack = [pop_function_mode() for _ in range(function_mode_count())][::-1]
    staying = [mode for mode in stack if isinstance(mode, DeviceContext)]
    before = _aside.modes
    _aside.modes = (*before, *(mode for mode in stack if not isinstance(mode, DeviceContext)))
    for mode in staying:
        push_function_mode(mode)
    try:
        yield
    finally:
        while function_mode_count():
            pop_function_mode()
        _aside.modes = before
        for mode in stack:
            push_function_mode(mode)


def backward_hook(module: torch.nn.Module) -> BackwardHook:
    """What Module.__call__ makes of the full backward hooks and pre-hooks that the module has now, with those of all modules."""
    full, _ = module._get_backward_hooks()
    return BackwardHook(module, full, module._get_backward_pre_hooks())


def through_backward_hook(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a BackwardHook makes of these."""
    return tuple(BackwardHookFunction.apply(*tensors))


StopRecomputation = checkpoint._StopRecomputationError
"""What the backward of a checkpoint ends its function with when all is there that was to be computed again."""


@contextlib.contextmanager
def plain_engine() -> Iterator[None]:
    """The engine runs backwards itself, also under torch's compiled autograd."""
    set_compiler = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    before = set_compiler(None, False)
    try:
        yield
    finally:
        set_compiler(*before)


def nodes_behind(node: Any) -> list[Any]:
    """An autograd node and all that a backward goes on to from it."""
    found, waiting = dict[Any, None](), [node]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = None
            waiting += [following for following, _ in node.next_functions]
    return [*found]


def saved_by(node: Any) -> list[torch.Tensor]:
    """The tensors that an autograd node keeps for its formula. Raises RuntimeError where one was written to since."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        names = ["saved_tensors"]
    else:
        names = [name.removeprefix("_raw") for name in dir(node) if name.startswith("_raw_saved_")]
    fields = [getattr(node, name) for name in names]
    saved = [one for field in fields for one in (field if isinstance(field, (tuple, list)) else (field,))]
    return [one for one in saved if isinstance(one, torch.Tensor)]


def any_saved_tensor_hooks() -> bool:
    """Whether hooks see what autograd saves."""
    return packing_hook() is not None


def packing_hook() -> Any:
    """The innermost hook that packs what autograd saves, or None."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks[0] if hooks is not None else None


@contextlib.contextmanager
def saved_tensor_hooks_aside() -> Iterator[None]:
    """Saved-tensor hooks of the program see nothing of what is done inside."""
    if not any_saved_tensor_hooks():
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


def users_function_modes() -> tuple[Any, ...]:
    """The TorchFunctionModes that the program is under, the innermost last, without that of the default device."""
    stack = map(function_mode_at, range(function_mode_count()))
    return (*_aside.modes, *(mode for mode in stack if not isinstance(mode, DeviceContext)))


def default_device() -> Any:
    """The device of the mode that is the default device, and the one that a bare "cuda" means; None without such a mode."""
    stack = map(function_mode_at, range(function_mode_count()))
    device = next((mode.device for mode in reversed(list(stack)) if isinstance(mode, DeviceContext)), None)
    if device is None or device.index is not None or device.type != "cuda":
        return device
    try:
        return device, torch.cuda.current_device()
    except (AssertionError, RuntimeError):  # there is none, which what is made on it says
        return device, -1


def cuda_device() -> int:
    """The current CUDA device; -1 before there is one."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else -1


module_call: Any = torch.nn.Module._call_impl
wrapped_module_call: Any = torch.nn.Module._wrapped_call_impl
"""What Module.__call__ is; it calls the one above."""
any_hook_of_all_modules = torch.nn.modules.module._has_any_global_hook


def always_called_hooks_of_all_modules() -> Any:
    """The hooks of all modules that are called in spite of an exception."""
    return torch.nn.modules.module._global_forward_hooks_always_called


def hooks_of_all_modules_are_full() -> bool | None:
    """Whether the backward hooks of all modules are full ones; None when there are none."""
    return torch.nn.modules.module._global_is_full_backward_hook


def has_old_hooks(module: Any) -> bool:
    """Whether hooks of register_backward_hook see this module's calls."""
    shared = hooks_of_all_modules_are_full()
    return isinstance(module, torch.nn.Module) and (module._is_full_backward_hook is False or shared is False)


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


NESTED: type = _nested.NestedTensor
"""The class of nested tensors of torch.jagged layout: values one after the other, and where each row of them begins."""


def jagged_values(tensor: Any) -> torch.Tensor:
    """The values of such a tensor, as a view of it."""
    return torch._nested_get_values(tensor)


def jagged_of(parts: dict[str, Any], ragged: int) -> torch.Tensor:
    """Such a tensor of its parts, as a view of the values, whose history it continues."""
    lengths, shortest, longest = (parts.get(name) for name in ("_lengths", "_min_seqlen_tensor", "_max_seqlen_tensor"))
    return torch._nested_view_from_jagged(
        parts["_values"], parts["_offsets"], jagged_example(), lengths, ragged, shortest, longest
    )


def jagged_padded(tensor: Any) -> torch.Tensor:
    """Its rows, as long as the longest one."""
    return torch.nested.to_padded_tensor(tensor, 0.0)


def jagged_of_padded(padded: torch.Tensor, like: Any) -> torch.Tensor:
    """(batch, rows, ...), of which the rows of another nested tensor are taken."""
    known = like._maybe_min_seqlen, like._maybe_max_seqlen
    made: torch.Tensor = _nested.nested_from_padded(padded, like.offsets(), 1, *known, like._values.shape[like._ragged_idx - 1])
    return made


def jagged_example() -> torch.Tensor:
    """The one that torch has operators find their class by. It is made at its first use, which no trace is to see."""
    return _nested._nt_view_dummy()


@functools.cache
def jagged_functions() -> frozenset[Any]:
    """Functions of torch that the __torch_function__ of nested tensors computes itself."""
    own = "flatten", "rms_norm"
    found = {getattr(place, name) for place in (torch, torch.Tensor, torch.nn.functional) for name in own if hasattr(place, name)}
    return frozenset({torch.nn.functional.scaled_dot_product_attention, *found})


def is_nested_size(number: Any) -> bool:
    """Whether a size is that of rows which differ in length."""
    return isinstance(number, torch.SymInt) and number.node.is_nested_int()


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


def has_gradient(operator: Any) -> bool:
    """Whether an operator of a library has a formula for its gradient."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Autograd")


def default_group() -> Any:
    """A weak reference to the process group of all ranks, equal to another one for the same group; None where there is none. The names of
    other groups are theirs for as long as it lives."""
    group = torch.distributed.group.WORLD if distributed_is_initialized() else None
    return None if group is None else weakref.ref(group)


def under_onnx_export() -> bool:
    """Whether torch.onnx, which takes long to load, is exporting."""
    onnx = sys.modules.get("torch.onnx")
    return onnx is not None and onnx.is_in_onnx_export()


def under_fx_tracing() -> bool:
    """Whether torch.fx or torch.export is tracing, in this thread from torch 2.14 on, before that in any."""
    ask = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    return bool(_symbolic_trace._is_fx_tracing_flag if ask is None else ask())


def all_function_mode_count() -> int:
    """How many modes the program is under, those included that are set aside."""
    return len(_aside.modes) + function_mode_count()


def leave_blocks_of_devices() -> list[Any]:
    """Leaves `with torch.device(...)` blocks, and gives their modes; what torch.set_default_device left stays."""
    held = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    left: list[Any] = []
    while function_mode_count():
        mode = function_mode_at(function_mode_count() - 1)
        if mode is held or not isinstance(mode, DeviceContext):
            break
        left.append(pop_function_mode())
    return left[::-1]


@contextlib.contextmanager
def blocks_of_devices_aside() -> Iterator[None]:
    """What is inside is done as if outside of `with torch.device(...)` blocks."""
    left = leave_blocks_of_devices()
    try:
        yield
    finally:
        for mode in left:
            push_function_mode(mode)


def without_dispatch(function: Any) -> Any:
    """The function, which neither modes nor the classes of tensors see anything of."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with all_torch_functions_off():
            return function(*args)

    return call


item = without_dispatch(torch.Tensor.item)
set_grad_enabled = without_dispatch(set_grad_mode)
_enter_without_dispatch = without_dispatch(lambda manager: manager.__enter__())
_SWITCHES: tuple[Any, ...] = (torch_functions_off, all_torch_functions_off)


def enter(manager: Any) -> None:
    """Enters a manager, of which neither modes nor the classes of tensors see anything; the switches of those keep what held before."""
    if isinstance(manager, _SWITCHES):
        manager.__enter__()
    else:
        _enter_without_dispatch(manager)


def under_no_function_modes(function: Any) -> Any:
    """The function, which the modes that are on see nothing of."""

    def call(*args: Any) -> Any:
        with function_modes_aside():
            return function(*args)

    return call


def leave_dispatch_modes(count: int) -> None:
    """Leaves the innermost dispatch modes until `count` are left."""
    while torch._C._len_torch_dispatch_stack() > count:
        torch._C._pop_torch_dispatch_stack(None)


def operator_names() -> frozenset[str]:
    """Names of the operators of namespace aten, without overloads."""
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(n.partition("::")[2].partition(".")[0] for n in names if n.startswith("aten::"))


def under_users_dispatch_mode() -> bool:
    """Whether a TorchDispatchMode of the program sees the operators that are called: none of a graph's would be those of eager code."""
    stack = map(torch._C._get_dispatch_stack_at, range(dispatch_mode_count()))
    return any(not mode.is_infra_mode() and not mode.ignore_compile_internals() for mode in stack)


def dispatch_keys(tensor: Any) -> int:
    """The tensor's own dispatch keys as one number."""
    return torch._C._dispatch_keys(tensor).raw_repr()


FORWARD_AD = vars(torch.autograd.forward_ad)
"""Where the level of forward-mode AD stands, as _current_level; -1 outside."""


def dual_level() -> int:
    """The level of forward-mode AD; -1 outside."""
    level: int = FORWARD_AD["_current_level"]
    return level


def forward_ad_is_on() -> bool:
    """Whether tensors may carry tangents, of which a compiled graph would lose track."""
    return dual_level() >= 0


def leave_dual_levels(level: int) -> None:
    """Leaves the levels of forward-mode AD above this one."""
    while dual_level() > level:
        torch.autograd.forward_ad.exit_dual_level()


def leaving_dual_levels(function: Any) -> Any:
    """The function, which leaves no level of forward-mode AD entered when it raises."""
    return _leaving(function, dual_level, leave_dual_levels)


def _leaving(function: Any, depth: Callable[[], int], leave: Callable[[int], None]) -> Any:
    """The function, after which `leave` gets the depth that there was before."""

    def call(*args: Any) -> Any:
        before = depth()
        try:
            return function(*args)
        finally:
            leave(before)

    return call


class _SavedHooks(threading.local):
    def __init__(self) -> None:
        self.entered: list[Any] = []


_saved_hooks = _SavedHooks()


def enter_saved_hooks(manager: Any) -> Any:
    """Enters a manager of hooks of saved tensors, and gives it."""
    manager.__enter__()
    _saved_hooks.entered.append(manager)
    return manager


def leave_saved_hooks(manager: Any) -> None:
    """Leaves one that enter_saved_hooks entered."""
    _saved_hooks.entered.remove(manager)
    manager.__exit__(None, None, None)


def leaving_saved_hooks(function: Any) -> Any:
    """The function, which leaves no hooks of saved tensors entered when it raises."""

    def leave(count: int) -> None:
        while len(_saved_hooks.entered) > count:
            leave_saved_hooks(_saved_hooks.entered[-1])

    return _leaving(function, lambda: len(_saved_hooks.entered), leave)


is_of_a_transform = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a tensor is what a function under a transform of torch.func sees, if the transform is over."""


def transform_level() -> Any:
    """The nesting of functorch transforms, None outside."""
    return torch._C._functorch.maybe_current_level()


def hide_from_torch_compile(code: Any) -> None:
    """torch.compile's evaluator, should it be at work in this process, runs frames of this code, and all that they call, as they are."""
    evaluator = torch._C._dynamo.eval_frame
    as_it_is = evaluator._FrameAction.SKIP
    evaluator.set_code_exec_strategy(code, evaluator._FrameExecStrategy(as_it_is, as_it_is))


_TORCH_COMPILE_SETS = {
    "_leaf_function_ids": "leaf_function",
    "_nonstrict_trace_callable_ids": "nonstrict_trace",  # before the next one, which has all of these
    "_allowed_callable_ids": "allow_in_graph",
    "_disallowed_callable_ids": "disallow_in_graph",
}


def mark_of_torch_compile(function: Any) -> str | None:
    """What torch.compile was told about this function, as far as it was ever loaded in this process; we do not load it."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is None:
        return None
    for name, kind in _TORCH_COMPILE_SETS.items():
        numbers = getattr(getattr(rules, name, None), "function_ids", None)
        if numbers and id(function) in numbers:
            return kind
    return None


def substitute_of_torch_compile(function: Any) -> tuple[Any, bool] | None:
    """(what torch.compile was told to trace instead of this function, whether it may be run on constants). Its own substitutes, for
    functions that are modelled here, do not count."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    if functions is None or not isinstance(function, typing.Hashable):
        return None
    known = functions.PolyfilledFunctionVariable._get_polyfill_handlers().get(function)
    traceable = getattr(known, "__torch_dynamo_polyfill__", None)
    if traceable is None or (traceable.__module__ or "").startswith("torch."):
        return None
    return traceable, known.__torch_dynamo_can_constant_fold_through__


@contextlib.contextmanager
def autograd_on() -> Iterator[None]:
    """Autograd follows what is computed, also inside of an operator's kernel, which runs below it."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded), torch.enable_grad():
        yield


def breaks_are_errors_in_torch_compile() -> bool:
    """Whether the program is in a region of torch.compile's error_on_graph_break(True)."""
    found = sys.modules.get("torch._dynamo.utils")
    return found is not None and getattr(found, "_error_on_graph_break", False) is True


def has_internal_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements are surely one place in memory."""
    return torch._debug_has_internal_overlap(tensor) == 1


group_tensors_by_device_and_dtype: Any = _foreach_utils._group_tensors_by_device_and_dtype
group_tensors_of_optimizer: Any = optimizer.Optimizer._group_tensors_by_device_and_dtype
value_in_optimizer: Any = optimizer._get_value
with_grad_mode_of_optimizer: Any = optimizer._use_grad_for_differentiable
"""Makes a step() that has gradients on where its optimizer is differentiable."""
trunc_normal_without_grad: Any = torch.nn.init._no_grad_trunc_normal_

DISABLED = torch._disable_dynamo(  # type: ignore[attr-defined]
    lambda: None
).__code__
"""The code of what torch.compile makes of functions that it must leave alone."""


def patched_by_torch_compile(function: Any) -> Any:
    """The method of one of torch's optimizers that torch.compile, once it was used, put a function that is switched off around; None
    for other functions. That says what torch.compile cannot do, and is no wish of the program."""
    if not (function.__module__ or "").startswith("torch.optim.") or "_torchdynamo_orig_callable" not in function.__dict__:
        return None
    return function.__wrapped__


def pytree_row(kind: type) -> tuple[Any, Any] | None:
    """(flatten, unflatten) of a class that torch.utils._pytree knows, None when it does not."""
    row = torch.utils._pytree.SUPPORTED_NODES.get(kind)
    return None if row is None else (row.flatten_fn, row.unflatten_fn)


def custom_operator(operator: Any) -> Any:
    """What torch.library made the operator with; None for other operators."""
    if isinstance(operator, (OpOverload, OpOverloadPacket)):
        packet: Any = getattr(operator, "overloadpacket", operator)
        operator = torch._library.custom_ops.OPDEFS.get(packet._qualified_op_name)
    return operator if isinstance(operator, CustomOpDef) else None


def rules_of_custom_operator(operator: Any) -> list[Any]:
    """The functions that say what calls of a custom operator give, what their gradients are, and what is done under vmap and modes."""
    functions = [operator._abstract_fn, operator._backward_fn, operator._setup_context_fn, operator._vmap_fn]
    functions += sorted(operator._torch_dispatch_fns.values(), key=lambda function: str(function.__qualname__))
    return [function for function in functions if function is not None]


def schema_of_custom_operator(operator: Any) -> str:
    """Its name, arguments and results, and what it is said to do."""
    # the dtypes that autocast gives it are all in a dict, or each by itself
    casts = sorted((name, repr(dtype)) for name, dtype in vars(operator).items() if name.startswith("_autocast_"))
    return f"{schema_of_operator(operator._opoverload)} {casts}"


def schema_of_operator(overload: Any) -> str:
    """The same of an overload."""
    return f"{overload._schema} {sorted(map(str, overload.tags))}"


OpNamespace: Any = type(torch.ops.aten)


def operators_of(namespace: str) -> Any:
    """What torch.ops has under a name."""
    return getattr(torch.ops, namespace)


def operators_under(place: Any, name: str) -> Any:
    """What torch.ops, or a namespace of it, has under a name, which is not made by asking. None where there is nothing."""
    if place is not torch.ops:
        return getattr(place, name) if torch._C._jit_get_schemas_for_operator(f"{place.name}::{name}") else None
    has_operators = any(known.startswith(f"{name}::") for known in torch._C._dispatch_get_all_op_names())
    return getattr(place, name) if has_operators else None


def overloads_of(operator: Any) -> list[Any]:
    """An overload, or all that a packet has."""
    return [operator] if isinstance(operator, OpOverload) else [getattr(operator, name) for name in sorted(operator.overloads())]


_RULE_KEYS = (
    *("Meta", "CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA", "AutogradOther", "ADInplaceOrView"),
    *("AutocastCPU", "AutocastCUDA", "Functionalize", "FuncTorchBatched", "FuncTorchBatchedDecomposition", "PythonDispatcher"),
)
"""Under which an operator has what tracing takes from it, not what computes it."""


def fake_of_operator(overload: Any) -> tuple[Any, list[str]]:
    """The function of Python's that says what an operator of torch.library.define gives, None where there is none; and for what else it has
    rules, whose functions cannot be seen."""
    name = overload.name()
    kernel = torch._library.simple_registry.singleton.find(name).fake_impl.kernel
    keys = _RULE_KEYS if kernel is None else _RULE_KEYS[1:]  # which a fake stands behind
    rest = [key for key in keys if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
    rest += [str(key) for key in (*overload.py_kernels, *overload.python_key_table)]
    return None if kernel is None else kernel.func, rest


def named_operator(name: str, overload: str | None) -> Any:
    """The packet of that name, as in `aten::add`, or an overload of it; None where there is none."""
    namespace, _, last = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), last, None)
    return packet if overload is None else getattr(packet, overload, None)


def function_of_custom_operator(operator: Any) -> Any:
    """The Python function that a custom operator runs; None for other operators."""
    found = custom_operator(operator)
    return None if found is None else found._init_fn


def program_of_triton_operator(operator: Any) -> Any:
    """The Python function that torch.library.triton_op made the operator of; None for other operators, and where a backward was added."""
    operator = custom_operator(operator)
    if operator is None or operator._backward_fn is not None:
        return None
    is_triton = any(kind.__name__ == "FunctionalTensorMode" for kind in operator._torch_dispatch_fns)
    return operator._abstract_fn if is_triton else None


_FLAG_NAMES = (
    *("cublas_allow_tf32", "cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_reduced_precision_reduction"),
    *("cublas_allow_fp16_accumulation", "cudnn_allow_tf32", "cudnn_benchmark", "cudnn_deterministic", "cudnn_enabled"),
    *("mkldnn_enabled", "mkldnn_deterministic", "onednn_allow_tf32", "deterministic_fill_uninitialized_memory"),
)
_ATTENTION_KERNELS = ("cudnn", "flash", "mem_efficient", "math", "overrideable", "fa3")


def set_deterministic(mode: bool) -> None:
    """Whether operators are deterministic, or raise."""
    torch._C._set_deterministic_algorithms(mode, warn_only=torch.is_deterministic_algorithms_warn_only_enabled())


def set_deterministic_warn_only(warn_only: bool) -> None:
    """Whether they warn instead."""
    torch._C._set_deterministic_algorithms(deterministic_state(), warn_only=warn_only)


def _unless_mixed(query: Any) -> Any:
    """The query with None for an answer where torch raises, as it does when a setting has no one value in the words of the older API."""

    def read() -> Any:
        try:
            return query()
        except RuntimeError:
            return None

    return read


_MAY_BE_MIXED = frozenset(("cublas_allow_tf32", "cudnn_allow_tf32", "float32_matmul_precision"))


def _flags() -> dict[str, tuple[Any, Any]]:
    """Name -> torch's (query, setter) of flags that torch of this version has."""
    found = {name: (f"_get_{name}", f"_set_{name}") for name in (*_FLAG_NAMES, "sdp_priority_order")}
    found |= {f"sdp_{name}": (f"_get_{name}_sdp_enabled", f"_set_sdp_use_{name}") for name in _ATTENTION_KERNELS}
    found["math_sdp_reduction"] = ("_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction")
    found["float32_matmul_precision"] = ("_get_float32_matmul_precision", "_set_float32_matmul_precision")
    present = {name: [getattr(torch._C, f, None) for f in pair] for name, pair in found.items()}
    present["deterministic"] = [deterministic_state, set_deterministic]
    present["deterministic_warn_only"] = [torch.is_deterministic_algorithms_warn_only_enabled, set_deterministic_warn_only]
    return {name: (read, write) for name, (read, write) in present.items() if read is not None and write is not None}


FLAG_FUNCTIONS = _flags()
FLAGS = {n: (_unless_mixed(read) if n in _MAY_BE_MIXED else read, write) for n, (read, write) in FLAG_FUNCTIONS.items()}
"""Settings that choose kernels: name -> (read, write)."""

SETTINGS = FLAGS | {
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default_device": (default_device, torch.set_default_device),
}
"""Settings that captured code may change."""


def write_settings(values: dict[str, Any]) -> None:
    """Writes the settings that are not so already; None of a flag is no value that could be written."""
    for name, value in values.items():
        read, write = SETTINGS[name]
        if read() != value and (value is not None or name not in FLAGS):
            write(value)


def device_is_set_for_good() -> bool:
    """Whether the default device is what torch.set_default_device left, and no `with torch.device(...)` is on."""
    held = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    stack = map(function_mode_at, range(function_mode_count()))
    return all(mode is held for mode in stack if isinstance(mode, DeviceContext))


pytree_flatten = torch.utils._pytree.tree_flatten
tree_leaves = torch.utils._pytree.tree_leaves
tree_map_only = torch.utils._pytree.tree_map_only


def autocast_state() -> tuple[Any, ...]:
    """Per device type: whether autocast is on and with which dtype; and whether it caches."""
    rows: list[Any] = [torch.is_autocast_cache_enabled()]
    for device in ("cpu", "cuda"):
        rows.append((device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)))
    return tuple(rows)


def autocast_and_nesting() -> tuple[Any, ...]:
    """How many blocks of autocast are entered, and its state."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return nesting, autocast_state()


def restore_autocast(state: tuple[Any, ...]) -> None:
    """As autocast_and_nesting found it."""
    nesting, (cache, *devices) = state
    for _ in range(autocast_and_nesting()[0] - nesting):
        torch.autocast_decrement_nesting()
    if not nesting:
        torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(cache)
    for device, enabled, dtype in devices:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def set_version(tensor: torch.Tensor, version: int) -> None:
    """How often it counts as written to."""
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def _connect() -> None:
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    with torch.inference_mode(False):
        plain = torch.empty(1, device="cpu")
        parameter = torch.nn.Parameter(torch.empty(1, device="cpu"))
        _C.set_tensor_api(capsule, torch._C.TensorBase.__dict__["requires_grad"], parameter, plain)


def _learn_layout() -> bool:
    """Shows the native side tensors of known sizes, strides and storage offset, which differ in one thing each."""
    sizes, strides, offset = (3, 5, 7, 11, 13), (2, 4, 6, 8, 10), 17  # as in tensor_snapshot.c
    with torch.inference_mode(False):
        probe = torch.empty(1024, device="cpu", dtype=torch.float32).as_strided(sizes, strides, offset)
        other = torch.empty(1024, device="cpu", dtype=torch.int32).as_strided(sizes, strides, offset)
        meta = torch.empty(1024, device="meta", dtype=torch.float32).as_strided(sizes, strides, offset)
        return _C.set_tensor_layout(probe, torch._neg_view(probe), other, meta)


_C.set_function_modes(function_mode_count, all_torch_functions_off)
_connect()
SNAPSHOTS = _learn_layout()
"""Whether unchanged tensors are recognised by their fields."""


TORCHS_ERRORS = {
    "Unsupported": ("torch._dynamo.exc", "Unsupported"),
    "RecompileError": ("torch._dynamo.exc", "RecompileError"),
    "RecompileLimitError": ("torch._dynamo.exc", "FailOnRecompileLimitHit"),
    "BackendError": ("torch._dynamo.exc", "BackendCompilerFailed"),
    "CompileError": ("torch._dynamo.exc", "BackendCompilerFailed"),
    "InternalCaptureError": ("torch._dynamo.exc", "InternalTorchDynamoError"),
    "DynamicDimError": ("torch.fx.experimental.symbolic_shapes", "ConstraintViolationError"),
}
"""Errors of ours, by name -> module and name of those that a program written for torch.compile catches."""


def also_torchs(error: Exception) -> None:
    """Makes an error of ours one of torch.compile's, too, where the program has those: by their classes it may be caught."""
    kind = next((kind for kind in type(error).__mro__ if kind.__name__ in TORCHS_ERRORS), None)
    if kind is None or not is_own_module(kind.__module__):
        return
    module, name = TORCHS_ERRORS[kind.__name__]
    twin = getattr(sys.modules.get(module), name, None)
    if twin is None:
        _without_twin.add(error)
    elif not isinstance(error, twin):
        own: Any = type(error)
        error.__class__ = _with_twin(own, twin)


_without_twin: weakref.WeakSet[Exception] = weakref.WeakSet()


def errors_become_torchs(module: types.ModuleType) -> None:
    """To be called when torch.compile's errors have been imported: `except torch._dynamo.exc.Unsupported` may be what imports them, while an
    error of ours waits for its clause."""
    for error in list(_without_twin):
        _without_twin.discard(error)
        also_torchs(error)


@functools.cache
def _with_twin(kind: type, twin: type) -> Any:
    return type(
        kind.__name__, (kind, twin), {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    )


CANONICAL_MASK: Any = torch.nn.functional._canonical_mask
"""Makes an attention mask of floats of one of booleans."""

qualified_name: Callable[[Any], str] = torch.fx.node._get_qualified_name
"""The dotted name under which a function is found; raises RuntimeError or AttributeError where there is none."""
