"""What a kernel is called: after the operators of the program that it computes."""

import re
from collections.abc import Collection

from ..schedule.plan import CoreKernel, KernelBatch, LoopKernel

__all__ = ["kernel_name"]

LENGTH = 48
"""Characters of the operators' names that a kernel's name repeats, at most."""
ANONYMOUS = "loops"
"""Where no operator is known."""
_WORD = re.compile(r"[A-Za-z]\w*?(?=_*$)")


def kernel_name(kernel: LoopKernel | CoreKernel | KernelBatch, role: str, taken: Collection[str]) -> str:
    """`add_layer_norm_0`, `softmax_backward_1`: the operators in order, the role where it is a backward, and a number that keeps it apart from
    those taken. With a number behind each, no name is one of the C library's, of Python's or of the host program's."""
    origins = kernel.node.origins if isinstance(kernel, CoreKernel) else kernel.origins
    operators = list(dict.fromkeys(word for origin in origins if (word := _operator(origin))))
    kept: list[str] = []
    for operator in operators:
        if len("_".join([*kept, operator])) > LENGTH:
            break
        kept.append(operator)
    left = len(operators) - len(kept)
    words = [*(kept or [ANONYMOUS]), *(["and", str(left), "more"] if left and kept else [])]
    base = "_".join([*words, *(["backward"] if role == "backward" and words[-1] != "backward" else [])])
    number = 0
    while f"{base}_{number}" in taken:
        number += 1
    return f"{base}_{number}"


def _operator(origin: str) -> str:
    """The last word of "file:line in function operator", without what surrounds an identifier; empty where it is none, or too long."""
    words = origin.split()
    found = _WORD.search(words[-1].lstrip("_")) if words else None
    return found.group().lower() if found is not None and len(found.group()) <= LENGTH else ""
