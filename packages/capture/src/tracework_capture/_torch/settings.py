"""Settings of torch that kernels are chosen by, autocast's state, and queries of both."""

from typing import Any

import torch

from .distributed import loss_switch, losses_in_parts
from .modes import default_device

any_autocast = torch._C._is_any_autocast_enabled
enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast
deterministic_warns_only = torch._C._get_deterministic_algorithms_warn_only
select_attention_kernels = torch.nn.attention._sdpa_kernel
deterministic_state = torch._C._get_deterministic_algorithms
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
    "losses_in_parts": (losses_in_parts, lambda on: loss_switch(on)()),
}
"""Settings that captured code may change."""


def write_settings(values: dict[str, Any]) -> None:
    """Writes the settings that are not so already; None of a flag is no value that could be written."""
    for name, value in values.items():
        read, write = SETTINGS[name]
        if read() != value and (value is not None or name not in FLAGS):
            write(value)


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
