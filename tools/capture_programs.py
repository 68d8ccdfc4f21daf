"""The programs of tools/capture_diff.py: cases of capture's tests, a program for each reason of a break, models of the zoo."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

__all__ = ["PARTS", "Run"]

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "packages" / "capture" / "tests" / "unit"
Compiled = Callable[..., Any]
"""What gives a function compiled, with optimize()'s options."""
Run = Callable[[Compiled], None]
"""A program: it makes its calls."""
QUICK = """
awkward/until_converged=inference awkward/filtered_boxes=inference awkward/lbfgs_step=inference awkward/rollout=inference
awkward/gan_step=inference awkward/detector=inference timm/resnet18=inference timm/swin_tiny_patch4_window7_224=inference
GPT2LMHeadModel=training BertForMaskedLM=inference Gemma3ForCausalLM=inference DINOv3ViTModel=inference DebertaForMaskedLM=inference
RwkvForCausalLM=inference Wav2Vec2ForCTC=inference T5ForConditionalGeneration/generate=generate Phi3ForCausalLM/generate=generate
""".split()
"""Jobs of the zoo that are taken without --zoo: each kind of call, and of a break, a loop, a retry, a size that changes."""


def language() -> Iterator[tuple[str, Run]]:
    """The cases of unit/language."""
    sys.path[:0] = [str(TESTS / "language"), str(TESTS / "interp")]
    for file in sorted((TESTS / "language").glob("*_cases.py")):
        importlib.import_module(file.stem)
    for name, (function, _) in sys.modules["cases"].CASES.items():
        yield name, partial(repeat, function)
    for name, case in sys.modules["one_graph_cases"].CASES.items():
        yield f"one_graph: {name}", partial(call_case, case)


def repeat(function: Callable[..., Any], compiled: Compiled) -> None:
    """As the tests of the cases do; then with another size."""
    program = compiled(function)
    for rows in (2, 2, 4):
        torch.manual_seed(0)
        program(torch.randn(rows, 3))


def call_case(case: Any, compiled: Compiled) -> None:
    """The calls of a row of one_graph_cases."""
    program = compiled(case.program, unbacked=True if case.fullgraph else None, fullgraph=case.fullgraph)
    for args in case.calls:
        program(*args)


def breaks() -> Iterator[tuple[str, Run]]:
    """A program for each reason of a break, which breaks, and is refused."""
    sys.path.insert(0, str(TESTS / "controls"))
    table = importlib.import_module("break_programs")
    for name, function in table.PROGRAMS.items():
        yield name, partial(call_once, function, table.X, False)
        yield f"{name} refused", partial(call_once, function, table.X, True)


def call_once(function: Callable[..., Any], x: torch.Tensor, fullgraph: bool, compiled: Compiled) -> None:
    """One call, in which a break may be an error."""
    compiled(function, fullgraph=fullgraph)(x)


def zoo(all_of_it: bool) -> Iterator[tuple[str, Run]]:
    """The models of integration_tests/zoo, called as zoo.breaks calls them."""
    sys.path[:0] = [str(ROOT), str(ROOT / "integration_tests")]
    counted = importlib.import_module("zoo.breaks")
    for library in counted.LIBRARIES["ours"]:
        importlib.import_module(library)
    for job in counted.jobs("") if all_of_it else QUICK:
        yield job, partial(run_job, counted.calls_of, job)


def run_job(calls_of: Callable[[str, str], Any], job: str, compiled: Compiled) -> None:
    """All calls of a record of the zoo."""
    name, _, mode = job.rpartition("=")
    for _ in calls_of(name, mode)(partial(compiled, unbacked=None)):
        pass


PARTS: dict[str, Callable[[bool], Iterator[tuple[str, Run]]]] = {
    "language": lambda _: language(),
    "breaks": lambda _: breaks(),
    "zoo": zoo,
}
"""Part -> its programs, given whether to take all of the zoo."""
