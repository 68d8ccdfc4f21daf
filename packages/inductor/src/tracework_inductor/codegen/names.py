"""What a kernel is called: after the operators of the program that it computes."""

import re
from collections import Counter

from ..schedule.plan import CoreKernel, KernelBatch, LoopKernel

__all__ = ["kernel_name", "numbered"]

LENGTH = 48
"""Characters of the operators' names that a kernel's name repeats, at most."""
ANONYMOUS = "loops"
"""Where no operator is known."""
_WORD = re.compile(r"[A-Za-z]\w*?(?=_*$)", re.ASCII)


def numbered(name: str, taken: Counter[str]) -> str:
    """`add_layer_norm_0`, `softmax_backward_1`: no two are equal, and none is a name of the C library, of Python or of the host program."""
    taken[name] += 1
    return f"{name}_{taken[name] - 1}"


def kernel_name(kernel: LoopKernel | CoreKernel | KernelBatch, role: str) -> str:
    """The operators in order, and the role where it is a backward."""
    origins = kernel.node.origins if isinstance(kernel, CoreKernel) else kernel.origins
    operators = list(dict.fromkeys(word for origin in origins if (word := _operator(origin))))
    kept: list[str] = []
    for operator in operators:
        if len("_".join([*kept, operator])) > LENGTH:
            break
        kept.append(operator)
    left = len(operators) - len(kept)
    words = [*(kept or [ANONYMOUS]), *(["and", str(left), "more"] if left and kept else [])]
    return "_".join([*words, *(["backward"] if role == "backward" and words[-1] != "backward" else [])])


def _operator(origin: str) -> str:
    """The last word of "file:line in function operator", without what surrounds an identifier; empty where it is none, or too long."""
    words = origin.split()
    found = _WORD.search(words[-1].lstrip("_")) if words else None
    return found.group().lower() if found is not None and len(found.group()) <= LENGTH else ""
