"""CUDAGRAPH_REFUSALS: when a compiled function is not recorded as a CUDA graph, and how to say so.

Each row looks at an artifact; what depends on a call's inputs is refused in record.py, with the same kind of text.
"""

from __future__ import annotations

from collections.abc import Callable

from tracework_runtime.artifact import Artifact

__all__ = ["CUDAGRAPH_REFUSALS", "refusals"]


def _devices(artifact: Artifact) -> set[str]:
    return {name if ":" in name else f"{name}:0" for name in artifact.devices}


def _is_cpu(device: str) -> bool:
    return device.partition(":")[0] == "cpu"


WAITING = frozenset(
    "_local_scalar_dense equal allclose is_nonzero nonzero argwhere masked_select unique _unique _unique2 unique_dim"
    " unique_consecutive bincount repeat_interleave segment_reduce _to_sparse cholesky matrix_exp linalg_matrix_exp _linalg_check_errors"
    " linalg_eig _linalg_eigh _linalg_svd linalg_lstsq linalg_ldl_factor_ex".split()
)
"""Operators and prims whose kernels for a GPU bring something to the host before they return. Those that wait only for some arguments are
tried: an error while recording is caught."""


CUDAGRAPH_REFUSALS: dict[str, tuple[Callable[[Artifact], bool], str]] = {
    "no gpu": (
        lambda artifact: not any(d.startswith("cuda") for d in artifact.devices),
        "nothing in it runs on a GPU",
    ),
    "several gpus": (
        lambda artifact: len({d for d in _devices(artifact) if d.startswith("cuda")}) > 1,
        "it runs on more than one GPU",
    ),
    "cpu work": (
        lambda artifact: any(kernel.language == "cpp" for kernel in artifact.kernels) or any(map(_is_cpu, artifact.devices)),
        "part of it runs on the CPU, which a recording would not repeat",
    ),
    "waits": (
        lambda artifact: any(name.partition("::")[2] in WAITING for name in artifact.externs),
        "the host waits in it for what the GPU computes",
    ),
    "mutated input": (
        lambda artifact: bool(artifact.mutated_inputs - artifact.static_inputs),
        "it writes to an input whose address changes from call to call",
    ),
}


def refusals(artifact: Artifact) -> tuple[str, ...]:
    """All reasons against a recording; none when it may be made."""
    found = [f"{name}: {text}" for name, (check, text) in CUDAGRAPH_REFUSALS.items() if check(artifact)]
    return (*artifact.graph_refusals, *found)
