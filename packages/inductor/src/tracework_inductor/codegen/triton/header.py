"""What surrounds a kernel's lines: imports, helpers, the function head, and the launch record.

The launch record (JSON) is what runtime/launch/triton.py reads:
  entries: names of the functions, launched one after the other; grids: number of blocks of each, a Python expression
  over ks0, ... and the block sizes; configs: constants, num_warps, num_stages; fits32: a Python expression, or None
  where 32-bit indices are always enough; repeatable: whether it may be run several times to measure it; workspace: dtype and number of elements of each scratch buffer;
  checks: whether it holds assertions, which Triton leaves out of what it does not compile for debugging;
  by_alignment: whether a constant ALIGNED says to it that all pointers are divisible by 16.
"""  # noqa: E501

import re
from collections.abc import Sequence
from typing import Any

from .text_rules import PRELUDE

__all__ = ["function_header", "launch_record", "source_text"]

IMPORTS = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


def function_header(pointers: Sequence[str], sizes: Sequence[str], blocks: Sequence[str], workspace: bool) -> str:
    """Decorator and argument list; FUNCTION_NAME and WORKSPACE are filled in later."""
    extra = "WORKSPACE" if workspace else ""
    arguments = "".join(f"{a}, " for a in (*pointers, *sizes))
    constants = ", ".join(f"{b}: tl.constexpr" for b in (*blocks, "WIDE"))
    return f"@triton.jit\ndef FUNCTION_NAME({arguments}{extra}{constants}):\n"


def source_text(functions: Sequence[str], entries: Sequence[str]) -> str:
    """The whole module: imports, the helpers that are called, the functions."""
    text = "\n\n".join(f.replace("FUNCTION_NAME", e) for f, e in zip(functions, entries, strict=True))
    helpers = [body for name, body in PRELUDE.items() if re.search(rf"\b{name}\b", text)]
    return "\n".join([IMPORTS, *(h.strip() + "\n\n" for h in helpers), text])


def launch_record(
    *,
    entries: Sequence[str],
    grids: Sequence[str],
    configs: Sequence[dict[str, Any]],
    fits32: str | None,
    workspace: Sequence[dict[str, str]],
    repeatable: bool,
    kind: str,
    checks: bool,
    by_alignment: bool = False,
) -> tuple[tuple[str, Any], ...]:
    """The record as pairs."""
    return (
        ("entries", list(entries)),
        ("grids", list(grids)),
        ("configs", list(configs)),
        ("fits32", fits32),
        ("workspace", list(workspace)),
        ("repeatable", repeatable),
        ("kind", kind),
        *([("checks", True)] if checks else []),
        *([("by_alignment", True)] if by_alignment else []),
    )
