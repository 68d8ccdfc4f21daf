"""CUDAGRAPH_REFUSALS: when a compiled function is not recorded as a CUDA graph, and how to say so.

Each row looks at an artifact; what depends on a call's inputs is refused in record.py, with the same kind of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracework_runtime.artifact import Artifact

__all__ = ["CUDAGRAPH_REFUSALS", "refusals"]


def _devices(artifact: Artifact) -> list[str]:
    return sorted({name if ":" in name else f"{name}:0" for name in artifact.devices})


def _gpus(artifact: Artifact) -> list[str]:
    return [name for name in _devices(artifact) if name.startswith("cuda")]


def _on_cpu(artifact: Artifact) -> list[str]:
    """The kernels for the CPU, by what they compute."""
    kernels = [", ".join(kernel.origins) or kernel.name for kernel in artifact.kernels if kernel.language == "cpp"]
    return kernels or [name for name in _devices(artifact) if name.startswith("cpu")]


def _waiting(artifact: Artifact) -> list[str]:
    """The operators that wait, with their places in the source."""
    places = artifact.notes.get("calls", {})
    names = sorted(name for name in artifact.externs if name.partition("::")[2] in WAITING)
    return [", ".join(places.get(name, ())) or name for name in names]


WAITING = frozenset(
    "_local_scalar_dense equal allclose is_nonzero nonzero argwhere masked_select unique _unique _unique2 unique_dim"
    " unique_consecutive bincount repeat_interleave segment_reduce _to_sparse cholesky matrix_exp linalg_matrix_exp _linalg_check_errors"
    " linalg_eig _linalg_eigh _linalg_svd linalg_lstsq linalg_ldl_factor_ex".split()
)
"""Operators and prims whose kernels for a GPU bring something to the host before they return. Those that wait only for some arguments are
tried: an error while recording is caught."""


CUDAGRAPH_REFUSALS: dict[str, tuple[Callable[[Artifact], Sequence[str]], str]] = {
    "no gpu": (lambda artifact: () if _gpus(artifact) else _devices(artifact) or ("no device",), "nothing in it runs on a GPU"),
    "several gpus": (lambda artifact: _gpus(artifact) if len(_gpus(artifact)) > 1 else (), "it runs on more than one GPU"),
    "cpu work": (_on_cpu, "part of it runs on the CPU, which a recording would not repeat"),
    "waits": (_waiting, "the host waits in it for what the GPU computes"),
}
"""Name -> what of an artifact speaks against a recording, and why."""


def refusals(artifact: Artifact) -> tuple[str, ...]:
    """All reasons against a recording; none when it may be made."""
    found = [(name, check(artifact), text) for name, (check, text) in CUDAGRAPH_REFUSALS.items()]
    return (*artifact.graph_refusals, *(f"{name}: {text} ({'; '.join(what)})" for name, what, text in found if what))
