"""OPDB.md from the results: counts per column, what fails with its reason, and all entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLUMNS = {
    "meta": "sizes, strides, offset, dtype, device and lazy bits of every result on fakes",
    "aliasing": "which results are an input, share memory with an input or with each other",
    "variants": "the in-place form: both of the above",
    "values": "every ATen call of the samples, with float32 the backward's too, decomposed and run on prims",
    "symbolic": "every size of every input a symbol: the result here and at other sizes, and no size fixed that eager leaves free",
    "errors": "error inputs raise the same type of exception",
}

# (entry, column or * for all) -> why a user would accept it
REASONS: dict[tuple[str, str], str] = {
    ("unsafe_chunk", "aliasing"): "the schema says that results do not alias; eager shares memory without saying so",
    ("unsafe_split", "aliasing"): "the schema says that results do not alias; eager shares memory without saying so",
    ("resize_", "*"): "changing the memory behind a tensor breaks the graph, with that reason",
    ("resize_as_", "*"): "changing the memory behind a tensor breaks the graph, with that reason",
    ("addbmm", "variants"): "eager resizes a broadcast `self` in place, which breaks the graph",
    ("tensor_split", "*"): "sizes given as a tensor are data: the call breaks the graph",
    ("svd_lowrank", "*"): "strides of a product with a transposed factor; the values agree",
    ("pca_lowrank", "*"): "strides of a product with a transposed factor; the values agree",
    ("svd", "meta"): "strides of a result without elements",
    ("nn.functional.soft_margin_loss", "values"): "eager overflows in float16, prims compute in float32",
    ("gather", "errors"): "an index out of range is found by the kernel, at run time",
    ("scatter", "errors"): "an index out of range is found by the kernel, at run time",
    ("scatter_add", "errors"): "an index out of range is found by the kernel, at run time",
    ("kthvalue", "errors"): "outputs that overlap the input are found by the kernel, at run time",
    ("take", "errors"): "outputs that overlap the input are found by the kernel, at run time",
    ("vdot", "meta"): "the lazy conjugate bit of a 0-dim result; the values agree",
    ("masked_fill", "errors"): "a number that the dtype cannot hold is found when the program runs",
    ("nn.functional.scaled_dot_product_attention", "symbolic"): "1 / sqrt(head size) is a number in the graph",
    (
        "nn.functional.adaptive_max_pool2d",
        "symbolic",
    ): "torch declares the output size as numbers: a kept size is one in the graph",
    (
        "nn.functional.adaptive_max_pool3d",
        "symbolic",
    ): "torch declares the output size as numbers: a kept size is one in the graph",
    ("nn.functional.embedding_bag", "symbolic"): "a padding index counted from the end is a number in the graph",
    ("linalg.matrix_rank", "symbolic"): "the tolerance, epsilon times the larger size, is a number in the graph",
    ("linalg.matrix_rank.hermitian", "symbolic"): "the tolerance, epsilon times the larger size, is a number in the graph",
    **dict.fromkeys(
        ((name, "symbolic") for name in ("diff", "constant_pad_nd", "nn.functional.pad.constant")),
        "strides of a result that has no elements at the example's sizes, and has some at others",
    ),
}


def reason_for(entry: str, column: str) -> str:
    """Why a difference is accepted; empty when it is not."""
    return REASONS.get((entry, column)) or REASONS.get((entry, "*")) or ""


def write(done: Mapping[str, Any], path: Path, note: str) -> None:
    """The table of all entries."""
    import torch

    lines = [
        "# op_db against eager",
        "",
        f"Written by `nox -s opdb` with torch {torch.__version__}: {note}",
        "",
        "A case is one sample of one dtype (for `values`: one ATen call with other dtypes, sizes, strides or numbers than the others).",
        "`data`: the result depends on data and the fake says so (for `values`: calls that stay calls of the eager kernel).",
        "`refused`: eager itself raises for the sample, or it is sparse or on another device.",
        "",
        *_summary(done),
        "",
        "## What differs",
        "",
        *_differences(done),
        "",
        "## All entries",
        "",
        *_entries(done),
    ]
    path.write_text("\n".join(lines) + "\n")


def _summary(done: Mapping[str, Any]) -> list[str]:
    lines = ["| column | what | entries | agree | | cases | differ | data | refused |", "|---|---|---|---|---|---|---|---|---|"]
    for column, what in COLUMNS.items():
        found = [r["columns"][column] for r in done.values() if column in r["columns"] and r["columns"][column]["compared"]]
        good = sum(not c["failed"] for c in found)
        total = {k: sum(c[k] for c in found) for k in ("compared", "failed", "data", "refused")}
        share = f"{100 * good / max(len(found), 1):.1f} %"
        lines.append(
            f"| {column} | {what} | {len(found)} | {good} | {share} | {total['compared']} | {total['failed']} | {total['data']} | {total['refused']} |"
        )
    return lines


def _differences(done: Mapping[str, Any]) -> list[str]:
    lines = ["| entry | column | cases | reason, or the first difference |", "|---|---|---|---|"]
    for name, record in sorted(done.items()):
        for column, count in record["columns"].items():
            if count["failed"]:
                first = count["examples"][0].replace("|", "/")[:160] if count["examples"] else ""
                why = reason_for(name, column) or f"`{first}`"
                lines.append(f"| {name} | {column} | {count['failed']} of {count['compared']} | {why} |")
    return lines


def _entries(done: Mapping[str, Any]) -> list[str]:
    lines = [f"| entry | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, record in sorted(done.items()):
        cells = [_cell(record["columns"].get(column)) for column in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(count: Any) -> str:
    if not count or not count["compared"]:
        return ""
    return f"{count['failed']} of {count['compared']} differ" if count["failed"] else str(count["compared"])
