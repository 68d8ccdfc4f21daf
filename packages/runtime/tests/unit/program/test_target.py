"""Which machines run a program's binaries, and what is said of others."""

import pytest
import torch
from tracework_runtime.program.target import facts_of_machine, misfit

OTHERS = {
    "torch": ("1.0", "torch 1.0"),
    "tracework": ("0", "version of tracework 0"),
    "format": (-1, "format of artifacts -1"),
    "system": ("Plan 9", "system Plan 9"),
    "machine": ("pdp11", "architecture pdp11"),
    "instructions": (["avx9000"], "a CPU with avx9000"),
    "capability": (10_000, "GPU"),
}


def test_this_machine_runs_what_is_made_here():
    assert misfit(facts_of_machine(["cpu"])) is None


@pytest.mark.parametrize("part", OTHERS)
def test_what_differs_is_named_with_what_to_do(part):
    value, words = OTHERS[part]
    devices = ["cuda"] if part == "capability" and torch.cuda.is_available() else ["cpu"]
    what, advice = misfit({**facts_of_machine(devices), part: value})
    assert words in what and advice
