"""Backends on engines, model by model and row by row, against eager; writes packages/tracework/BACKENDS.md.

python integration_tests/backends.py [--engine NAME ...] [--write]

Models and rows of each engine are measured in processes of their own, which leave numbers in the state folder; the report is made of all
that is there. A process that ends before its time (an engine may take it down) fails the run, after the others.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import tracework
from tracework import backends
from tracework.onnx import ONNX_ROWS, UNWRITTEN
from tracework.onnx_engines import ENGINES
from tracework_primops import OPS, Op

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "packages" / "tracework" / "BACKENDS.md"
STATE = ROOT / "build" / "backends"
MEASURED = ("onnxrt", "openvino", "tvm")
TRAINED = ("onnxrt", "openvino")
SIZES = (2, 3, 5, 4)
TOLERANCE = 1e-4
EVERY = {"tvm": 27}
"""Of the records of rows every so-and-so-many-th: TVM takes half a second for each."""


def models() -> Iterator[tuple[str, torch.nn.Module, Callable[[int], torch.Tensor]]]:
    """Name, model in float32, inputs of a batch (and length) of n."""
    from benchmarks.torchvision_on_cpu import torchvision_models

    vision = torchvision_models()
    import timm
    import transformers

    torch.manual_seed(0)
    yield "resnet18", vision.resnet18(), lambda n: torch.randn(n, 3, 64, 64)
    vit = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10)
    yield "vit_tiny", vit, lambda n: torch.randn(n, 3, 64, 64)
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 200}
    bert = transformers.BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    yield "bert", transformers.BertModel(bert), lambda n: torch.randint(0, 200, (n, 16 + n))
    sizes = {"n_embd": 128, "n_layer": 4, "n_head": 4, "vocab_size": 200, "bos_token_id": 1, "eos_token_id": 2}
    gpt2 = transformers.GPT2Config(**sizes, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    yield "gpt2", transformers.GPT2LMHeadModel(gpt2), lambda n: torch.randint(0, 200, (n, 16 + n))


def tensor_of(result: Any) -> torch.Tensor:
    """The logits, or the last hidden state."""
    return result if isinstance(result, torch.Tensor) else result.logits if "logits" in result else result.last_hidden_state


def step(model: Any, module: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The loss and all gradients of a training step."""
    module.zero_grad()
    loss = tensor_of(model(x)).square().mean()
    loss.backward()
    return [loss.detach(), *[p.grad.clone() for p in module.parameters() if p.grad is not None]]


def difference(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference, as a part of the largest element."""
    largest = max(e.abs().max().item() for e in expected)
    return max((f.double() - e.double()).abs().max().item() for f, e in zip(found, expected, strict=True)) / largest


def seconds(call: Callable[[], Any], times: int = 5) -> float:
    """The median of a few calls."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[times // 2]


def measure_models(engine: str) -> list[dict[str, Any]]:
    """Each model in inference, and in training where the engine is asked for that, against eager in float64."""
    rows = []
    for name, module, inputs in models():
        for training in (False, True) if engine in TRAINED else (False,):
            rows.append(_measured(engine, name, module, inputs, training))
            print(rows[-1], flush=True)
    return rows


def _measured(engine: str, name: str, module: torch.nn.Module, inputs: Any, training: bool) -> dict[str, Any]:
    module.train(training)
    exact = copy.deepcopy(module).double()
    programs: list[Any] = []
    compiled = tracework.compile(
        module, backend=engine, observe=lambda stage, made: programs.append(made) if stage == "onnx" else None
    )

    def run(model: Any, of: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        if training:
            return step(model, of, x)
        with torch.no_grad():
            return [tensor_of(model(x))]

    differences, eagers = [], 0.0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        began = time.perf_counter()
        for n in SIZES:
            x = inputs(n)
            expected = run(exact, exact, x.double() if x.is_floating_point() else x)
            differences.append(difference(run(compiled, module, x), expected))
            eagers = max(eagers, difference(run(module, module, x), expected))
        first = time.perf_counter() - began
        own, eager = seconds(lambda: run(compiled, module, x)), seconds(lambda: run(module, module, x))
    return {
        "model": name,
        "training": training,
        "differences": differences,
        "of eager": eagers,
        "programs": [f"{p.graph.role} {len(p.graph.calls)} prims in {len(p.parts)}" for p in programs],
        "first": first,
        "ms": own * 1000,
        "eager ms": eager * 1000,
        "told": sorted({str(w.message).splitlines()[0] for w in told if issubclass(w.category, tracework.UncompiledWarning)}),
    }


def measure_rows(engine: str) -> dict[str, Any]:
    """Each record of each row in the engine, plain and with special values, against PrimGraph.run; what differs, by prim."""
    sys.path.insert(0, str(ROOT / "packages" / "tracework" / "tests" / "onnx_models"))
    import prim_graphs
    from prim_records import RECORDS

    loaded, equal = prim_graphs.engine_of(engine), 0
    failed: dict[str, list[str]] = collections.defaultdict(list)
    by_eager: dict[str, list[str]] = collections.defaultdict(list)
    for name, records in RECORDS.items():
        for record in [r for plain in records[:: EVERY.get(engine, 1)] for r in (plain, plain.special())]:
            try:
                prim_graphs.check_record(record, loaded)
                equal += 1
            except prim_graphs.ByEager as told:
                by_eager[name].append(str(told).split(": ", 2)[-1])
            except Exception as error:
                dtypes = ", ".join(dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in record.inputs(3)))
                failed[name].append(f"{dtypes}: {' '.join(str(error).split())[:120].replace('|', '/')}")
    return {"equal": equal, "by eager": by_eager, "failed": failed}


PARTS = {"models": measure_models, "rows": measure_rows}


def report(found: dict[str, Any]) -> str:
    """BACKENDS.md."""
    lines = ["# Backends", "", "Written by `nox -s backends`.", "", "| name | needs | options of its own |", "|---|---|---|"]
    for name in sorted({*backends.BACKENDS, *backends.RETIRED}):
        if name in ENGINES:
            row = ENGINES[name]
            options = "; ".join(f"`{option}`: {text}" for option, text in row.options.items())
            lines.append(f"| `{name}` | `pip install 'tracework[{row.extra}]'` | {options} |")
        elif name in backends.RETIRED:
            lines.append(f"| `{name}` | retired: {backends.RETIRED[name]} | |")
        else:
            lines.append(f"| `{name}` | | |")
    lines += ["", _how(), ""]
    lines += _models_table(found) + [""] + _rows_table(found) + [""]
    written = sum(isinstance(op, Op) for op in ONNX_ROWS)
    lines += [f"{written} of {len(OPS)} prims are written in ONNX, and {len(ONNX_ROWS) - written} ATen kernels. The others:", ""]
    lines += ["| prims | why not |", "|---|---|"]
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for prim, reason in UNWRITTEN.items():
        groups[reason].append(prim)
    lines += [f"| {' '.join(prims)} | {reason} |" for reason, prims in groups.items()]
    return "\n".join(lines) + "\n"


def _how() -> str:
    return (
        "An engine is given each graph, forward and backward, as one ONNX model for all sizes, and tensors by address. A call that is not "
        "written in ONNX runs by eager's kernel, and the graph is cut in parts around it; a graph that the engine refuses is compiled by "
        "`inductor`. Both are told by an `UncompiledWarning` and are in `explain`. Indices out of range raise eager's error "
        "(`index_checks`). A call with values that an engine loses or rounds (NaN in pooling, sums of integers of 2^53 and more in ONNX Runtime, "
        "integers of 2^24 and more in OpenVINO) is found by the model itself and runs by eager's kernels. "
        "Half precisions are computed in float32 and rounded where an engine lacks them; OpenVINO and TensorRT are not "
        "given float64. TensorRT is tested with a stub in the place of its package."
    )


def _models_table(found: dict[str, Any]) -> list[str]:
    how = (
        f"Models in float32 with a batch, and a length, of {', '.join(map(str, SIZES))} in turn: the largest difference from eager in float64 as "
        "a part of the largest element (of results, or of loss and gradients), next to that of eager in float32; graphs that were made; "
        "seconds for the first four calls; milliseconds of a call of both, on one thread of a CPU that others use, too. A gradient jumps "
        "where the input of a ReLU is within rounding of 0: the middle ones of the four differences must be within 1e-4."
    )
    lines = [
        how,
        "",
        "| engine | model | | difference | eager's | graphs | first | ms | eager ms | told |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, numbers in found.items():
        for r in numbers.get("models", ()):
            what = "training" if r["training"] else "inference"
            cells = [
                *(engine, r["model"], what, f"{max(r['differences']):.1e}", f"{r['of eager']:.1e}", "; ".join(r["programs"])),
                *(f"{r['first']:.0f}", f"{r['ms']:.1f}", f"{r['eager ms']:.1f}", "; ".join(r["told"]).replace("|", "/")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rows_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "Records of the rows, each on three sizes, as it is and with NaN, infinities, zeros of both signs and the least and largest integers "
        "among the inputs, against the reference. Some run by eager's kernels, because the engine says nothing exact for them:",
        "",
        "| engine | equal | by eager's kernels | differ | prims | of which |",
        "|---|---|---|---|---|---|",
    ]
    for engine, numbers in found.items():
        if "rows" not in numbers:
            continue
        rows = numbers["rows"]
        counts = [sum(map(len, rows[kind].values())) for kind in ("by eager", "failed")]
        lines.append(f"| {engine} | {rows['equal']} | {counts[0]} | {counts[1]} | | |")
        for kind, before, after in (("by eager", "", " |"), ("failed", "| ", "")):
            by_text: dict[str, list[str]] = collections.defaultdict(list)
            for prim, texts in rows[kind].items():
                for text in texts:
                    by_text[text].append(prim)
            for text, prims in by_text.items():
                lines.append(f"| {engine} | | {before}{len(prims)}{after} | {' '.join(dict.fromkeys(prims))} | {text} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", nargs="*", default=list(MEASURED), choices=MEASURED)
    parser.add_argument("--measure", choices=MEASURED, help="measure this one's --parts, in this process")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--write", action="store_true", help="write BACKENDS.md")
    given = parser.parse_args()
    STATE.mkdir(parents=True, exist_ok=True)
    if given.measure:
        torch.set_num_threads(1)
        for part in given.parts:
            (STATE / f"{given.measure}_{part}.json").write_text(json.dumps(PARTS[part](given.measure)))
        return
    lost = []
    for engine in given.engine:
        for part in given.parts:
            environment = dict(os.environ, PYTHONPATH=os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
            command = [sys.executable, __file__, "--measure", engine, "--parts", part]
            if subprocess.run(command, env=environment).returncode:
                lost.append((engine, part))
    found = {
        e: {part: json.loads(path.read_text()) for part in PARTS if (path := STATE / f"{e}_{part}.json").exists()}
        for e in MEASURED
    }
    text = report(found)
    print(text)
    if given.write:
        REPORT.write_text(text)
    far = [
        (e, r["model"]) for e, numbers in found.items() for r in numbers.get("models", ()) if median(r["differences"]) > TOLERANCE
    ]
    different = [(e, prim) for e, numbers in found.items() for prim in numbers.get("rows", {}).get("failed", ())]
    if far or lost or different:
        raise SystemExit(f"farther from eager than {TOLERANCE}: {far}; other values: {different}; processes that failed: {lost}")


if __name__ == "__main__":
    main()
