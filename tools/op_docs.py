"""Writes packages/primops/OPS.md from the tables of primops; a test compares.

python tools/run_in_tree.py python tools/op_docs.py
"""

from pathlib import Path

import torch
from tracework_primops import DECOMPS, OPS
from tracework_primops.families import FAMILIES
from tracework_primops.ops.reasons import REASONS
from tracework_primops.passes import PRIM_PASSES

PAGE = Path(__file__).resolve().parent.parent / "packages" / "primops" / "OPS.md"
HEAD = """# The prims

Written by `tools/op_docs.py` from the tables; do not edit. {ops} ops in {families} families. Letters after an argument: `T` a tensor, `V` a
tensor or a number, `O` a tensor or None, `L` a list of tensors; without a letter a literal. `-> n` is the number of results.

`decompose(graph, profile, changes={{...}})` rewrites an ATen graph by more than {rows} rows. Profile `prims` uses all of them, `core_aten` those of ops
outside of core ATen, `none` nothing. `changes` maps an ATen overload to a function over prims (a row added or replaced) or to None (removed:
the op stays a call of the eager kernel). `OPS.extend(op, meta, eager)` adds a prim from outside.

Passes on graphs of prims, in order: {passes}.
"""


def page() -> str:
    """The text of the page."""
    passes = ", ".join(f"`{step.name}`" for step in PRIM_PASSES)
    rows = sum(isinstance(key, torch._ops.OpOverload) and key.namespace == "aten" for key in DECOMPS)
    lines = [HEAD.format(ops=len(OPS), families=len(FAMILIES), rows=rows // 100 * 100, passes=passes)]
    for family, what in FAMILIES.items():
        lines.append(f"## {family}: {what}\n")
        for op in sorted((o for o in OPS.values() if o.family == family), key=lambda o: o.name):
            tags = "".join(f"; {tag.value}" for tag in sorted(op.tags, key=lambda t: t.name))
            reason = f" *Why a prim: {REASONS[op.name]}.*" if op.name in REASONS else ""
            lines.append(f"- `{op.signature}`: {op.doc}{tags}.{reason}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
