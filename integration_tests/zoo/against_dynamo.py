"""Graph counts of torch.compile's capture and ours for named records: `python -m zoo.against_dynamo NAME...`."""

from __future__ import annotations

import sys

import torch
import tracework

from .build import build
from .inputs import INPUTS
from .records import RECORDS


def counts(name: str) -> tuple[int, int, int, int]:
    """(graphs, breaks) of theirs, then of ours, in inference."""
    record = RECORDS[name]
    model = build(record).eval()
    inputs = INPUTS[record.inputs](record)
    with torch.no_grad():
        theirs = torch._dynamo.explain(model)(**inputs)
        torch._dynamo.reset()
        ours = tracework.explain(model, backend="eager")(**inputs)
    return theirs.graph_count, theirs.graph_break_count, len(ours.capture.graphs), len(ours.capture.breaks)


def main() -> None:
    """A table on standard output."""
    print("| record | torch graphs | torch breaks | graphs | breaks |\n|---|---|---|---|---|")
    for name in sys.argv[1:]:
        print(f"| {name} | {' | '.join(map(str, counts(name)))} |", flush=True)


if __name__ == "__main__":
    main()
