"""OPDB.md from the results: counts per column, what fails with its reason, and all entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLUMNS = {
    "meta": "sizes, strides, offset, dtype, device and lazy bits of every result on fakes",
    "aliasing": "which results are an input, share memory with an input or with each other",
    "variants": "the in-place form: both of the above",
    "layouts": "the same for inputs with gaps, columns first, channels last, broadcast and with dimensions of size one, in one dtype",
    "layout values": "`values` of those inputs",
    "out": "`out=` of the right sizes: contiguous, reversed, in float64 and in int32; the same outcome or the same exception",
    "empty": "`values` of the samples with each size in turn made 0",
    "promotion": "`meta` of several tensors in float32 of which one is in another dtype, as it is and as a number in a tensor",
    "promotion values": "`values` of those inputs",
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
    ("combinations", "symbolic"): "how many combinations there are is no expression in the size, which becomes a number",
    ("logsumexp", "out"): "eager drops the imaginary part of a complex result for a real `out=`; here it raises",
    ("mean", "out"): "eager drops the imaginary part of a complex result for a real `out=`; here it raises",
    ("torch._scaled_mm", "layouts"): "torch's meta kernel demands the layouts of a GPU's kernel: others break the graph",
    ("torch._scaled_mm_v2", "layouts"): "torch's meta kernel demands the layouts of a GPU's kernel: others break the graph",
    (
        "torch._scaled_mm",
        "out",
    ): "a private kernel of products in float8, which takes `out=` of any dtype on a CPU; here it is refused",
    (
        "torch._scaled_mm_v2",
        "out",
    ): "a private kernel of products in float8: eager refuses other dtypes of `out=`, with a ValueError",
    ("nn.functional.soft_margin_loss", "values"): "eager overflows in float16, prims compute in float32",
    **dict.fromkeys(
        (
            (f"nn.functional.{name}", "promotion")
            for name in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv3d")
        ),
        "some of eager's kernels take a bias of another dtype; here it raises",
    ),
    **dict.fromkeys(
        (("linalg.pinv.singular", column) for column in ("promotion", "promotion values")),
        "eager multiplies matrices without elements whatever their dtypes; here it raises",
    ),
    ("linalg.solve_triangular", "promotion"): "eager does not ask for one dtype; here it raises",
    ("resize_as_", "promotion"): "changing the memory behind a tensor breaks the graph, with that reason",
    (
        "nn.functional.binary_cross_entropy_with_logits",
        "promotion",
    ): "a complex target, of which eager takes the real part; here it raises",
    ("addmv", "empty"): "eager does not broadcast the bias where the matrix has no elements",
    ("nn.functional.pixel_unshuffle", "empty"): "eager's kernel keeps the sizes, torch's meta kernel does not",
    ("nn.functional.group_norm", "empty"): "the mean of no elements, which is saved for a backward of no elements, is 0 in eager",
    ("nn.functional.nll_loss", "empty"): "targets that are ignored are looked up in no classes",
    ("nn.functional.cross_entropy", "empty"): "targets that are ignored are looked up in no classes",
    **dict.fromkeys(
        ((f"nn.functional.{name}", "empty") for name in ("adaptive_avg_pool3d", "adaptive_max_pool3d", "interpolate.area")),
        "no channels: eager refuses them with a batch, and in some forms without",
    ),
    ("masked_fill", "errors"): "a number in a 0-dim tensor that the dtype cannot hold: the prims convert it, which wraps around",
    ("as_strided", "layouts"): "parts of an input's memory that the input itself does not show break the graph, with that reason",
    ("native_batch_norm", "layouts"): "eager resizes its result for weights of more channels than there are",
    ("_native_batch_norm_legit", "layouts"): "eager resizes its result for weights of more channels than there are",
    ("_batch_norm_with_update", "layouts"): "eager resizes its result for weights of more channels than there are",
    ("frexp", "layouts"): "torch's meta kernel gives a dimension of size one another stride where there are no elements",
    ("nn.functional.prelu", "layouts"): "a dimension of size one has another stride where there are no elements",
    ("randint_like", "layouts"): "a dimension of size one has another stride where there are no elements",
    ("polar", "layouts"): "torch's meta kernel gives a dimension of size one another stride",
    ("renorm", "layouts"): "torch's meta kernel gives a dimension of size one another stride",
    ("unsafe_chunk", "layouts"): "the schema says that results do not alias; eager shares memory without saying so",
    ("unsafe_split", "layouts"): "the schema says that results do not alias; eager shares memory without saying so",
    ("matmul", "out"): "eager cannot fold the batch into an output that is not contiguous, and raises; here it computes",
    ("abs", "out"): "eager casts the result of complex tensors alone into `out=`; here all results are cast",
    ("_native_batch_norm_legit", "out"): "torch has no meta kernel for this overload: the call breaks the graph",
    ("normal", "out"): "eager raises as well, NotImplementedError instead of RuntimeError",
    ("nansum", "out"): "eager raises as well, NotImplementedError instead of RuntimeError",
    ("nanmean", "out"): "eager raises as well, NotImplementedError instead of RuntimeError",
    ("std", "out"): "eager has no kernel for half precision into a wider output, and raises; here it computes",
    ("var", "out"): "eager has no kernel for half precision into a wider output, and raises; here it computes",
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


Cells = dict[str, dict[str, Any]]  # column -> count


def write(done: Mapping[tuple[str, str], Any], path: Path, limits: Mapping[str, int | None], code: str) -> None:
    """The table of all entries, from one record for each entry and step."""
    import torch

    entries: dict[str, Cells] = {}
    for (name, _), record in sorted(done.items()):
        entries.setdefault(name, {}).update(record["columns"])
    lines = [
        "# op_db against eager",
        "",
        f"Written by `nox -s opdb` with torch {torch.__version__}: every dtype that an entry lists for CPU (`symbolic` and `layouts`: one),",
        f"{_samples(limits)} {_origin(done, code)}",
        "",
        "A case is one sample of one dtype (for `values`: one ATen call with other dtypes, sizes, strides or numbers than the others).",
        "`data`: the result depends on data and the fake says so (for `values`: calls that stay calls of the eager kernel).",
        "`refused`: eager itself raises for the sample, or it is sparse or on another device.",
        "",
        *_summary(entries),
        "",
        "## What differs",
        "",
        *_differences(entries),
        "",
        "## All entries",
        "",
        *_entries(entries),
    ]
    path.write_text("\n".join(lines) + "\n")


def _samples(limits: Mapping[str, int | None]) -> str:
    some = ", ".join(f"{most} in `{step}`" for step, most in limits.items() if most is not None)
    return f"all samples of each; at most so many, evenly spread: {some}." if some else "all samples of each."


def _origin(done: Mapping[Any, Any], code: str) -> str:
    """With which code the rows were measured, and for how long."""
    old = sum(r["code"] != code for r in done.values())
    seconds = sum(r["seconds"] for r in done.values())
    text = f"{len(done)} columns of entries took {seconds / 60:.0f} minutes of one core."
    return text if not old else f"{text} {old} of them were measured with earlier code of this package."


def _summary(entries: Mapping[str, Cells]) -> list[str]:
    lines = ["| column | what | entries | agree | | cases | differ | data | refused |", "|---|---|---|---|---|---|---|---|---|"]
    for column, what in COLUMNS.items():
        found = [r[column] for r in entries.values() if column in r and r[column]["compared"]]
        good = sum(not c["failed"] for c in found)
        total = {k: sum(c[k] for c in found) for k in ("compared", "failed", "data", "refused")}
        share = f"{100 * good / max(len(found), 1):.1f} %"
        lines.append(
            f"| {column} | {what} | {len(found)} | {good} | {share} | {total['compared']} | {total['failed']} | {total['data']} | {total['refused']} |"
        )
    return lines


def _differences(entries: Mapping[str, Cells]) -> list[str]:
    lines = ["| entry | column | cases | reason, or the first difference |", "|---|---|---|---|"]
    for name, record in sorted(entries.items()):
        for column, count in record.items():
            if count["failed"]:
                first = count["examples"][0].replace("|", "/")[:160] if count["examples"] else ""
                why = reason_for(name, column) or f"`{first}`"
                lines.append(f"| {name} | {column} | {count['failed']} of {count['compared']} | {why} |")
    return lines


def _entries(entries: Mapping[str, Cells]) -> list[str]:
    lines = [f"| entry | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, record in sorted(entries.items()):
        cells = [_cell(record.get(column)) for column in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(count: Any) -> str:
    if not count or not count["compared"]:
        return ""
    return f"{count['failed']} of {count['compared']} differ" if count["failed"] else str(count["compared"])
