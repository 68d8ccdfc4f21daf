"""What one ATen op on fakes costs, over all ops of a 12-block GPT and a ResNet-18, forward and backward; and what decomposing the GPT costs.

python tools/run_in_tree.py python benchmarks/micro/fakes.py [--no-torch] [--ops] [--write]

Each op of the trace is called again on fakes of the same sizes: static, with a symbolic batch, and on torch's FakeTensor in the
same run. Times are of the thread, so that other programs on the machine do not count, and the best of several rounds. `first` is the one
pass over all ops with nothing remembered, as compiling a new model meets them. `--write` writes benchmarks/results/fakes.md.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tracework_primops import Expr, FakeMode, FakeTensor, SymbolTable, decompose
from tracework_primops.fake.memo import STATIC

from benchmarks.micro.gpt import GPT

BATCH = 4
Call = tuple[Any, tuple, dict]


def models() -> dict[str, tuple[torch.nn.Module, torch.Tensor]]:
    """Name -> (model, input with the batch first)."""
    from benchmarks.torchvision_on_cpu import torchvision_models

    resnet = torchvision_models().resnet18(weights=None)
    return {"gpt": (GPT(), torch.randint(0, 8192, (BATCH, 128))), "resnet18": (resnet, torch.randn(BATCH, 3, 64, 64))}


def trace(model: torch.nn.Module, example: torch.Tensor, symbolic: bool) -> tuple[list[Call], Any]:
    """Every ATen call of a training step on fakes."""
    table = SymbolTable() if symbolic else None
    mode = FakeMode(table)
    weights = {n: mode.from_real(t) for n, t in (*model.named_parameters(), *model.named_buffers())}
    sizes = (table.new(BATCH, "batch"), *example.shape[1:]) if table else None
    calls: list[Call] = []
    mode.recorder = lambda func, args, kwargs, out: calls.append((func, args, kwargs))
    with mode:
        torch.func.functional_call(model, weights, (mode.from_real(example, sizes),)).sum().backward()
    mode.recorder = None
    return calls, table


def distinct(calls: list[Call]) -> tuple[list[Call], list[int]]:
    """One call of each kind, and how often it occurs."""
    kinds: dict[str, Call] = {}
    count: Counter = Counter()
    for call in calls:
        key = str([call[0], *map(_described, call[1]), *((k, _described(v)) for k, v in call[2].items())])
        kinds.setdefault(key, call)
        count[key] += 1
    return list(kinds.values()), [count[key] for key in kinds]


def _described(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return str(value.spec)
    return [_described(v) for v in value] if isinstance(value, (list, tuple)) else str(value)


def replay(calls: list[Call], rounds: int) -> list[float]:
    """Best microseconds of each call."""
    best = [float("inf")] * len(calls)
    gc.disable()
    with torch.no_grad():
        for _ in range(rounds):
            for i, (func, args, kwargs) in enumerate(calls):
                start = time.thread_time()
                for _ in range(8):
                    func(*args, **kwargs)
                best[i] = min(best[i], (time.thread_time() - start) / 8 * 1e6)
    gc.enable()
    return best


def first_pass(calls: list[Call], table: Any) -> float:
    """Microseconds per op when nothing is remembered, over the whole trace in order."""
    STATIC.forget()
    if table is not None:
        table.fakes.forget()
    gc.disable()
    with torch.no_grad():
        start = time.thread_time()
        for func, args, kwargs in calls:
            func(*args, **kwargs)
        spent = time.thread_time() - start
    gc.enable()
    return spent / len(calls) * 1e6


def torchs(calls: list[Call], table: Any) -> list[Call]:
    """The same calls on torch's FakeTensor; the batch becomes a symbol of torch's."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    environment = ShapeEnv() if table is not None else None
    mode = FakeTensorMode(shape_env=environment)
    values: dict[Any, Any] = {}
    if environment is not None:
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
        sized = mode.from_tensor(torch.empty(BATCH), symbolic_context=context)
        values = {symbol: sized.shape[0] for symbol in table.symbols}

    def number(size: Any) -> Any:
        return eval(str(size), {}, {str(s): v for s, v in values.items()}) if isinstance(size, Expr) else size

    def convert(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            spec = value.spec
            with mode:
                sizes, strides = [number(s) for s in spec.sizes], [number(s) for s in spec.strides]
                return torch.empty_strided(sizes, strides, dtype=spec.dtype, device=spec.device)
        if isinstance(value, torch.SymInt):
            return number(value.node.expr)
        return type(value)([convert(v) for v in value]) if isinstance(value, (list, tuple)) else value

    return [(f, tuple(map(convert, args)), {k: convert(v) for k, v in kw.items()}) for f, args, kw in calls]


def spread(values: list[float], counts: list[int]) -> list[float]:
    """Each value as often as its call occurs."""
    return [v for v, n in zip(values, counts, strict=True) for _ in range(n)]


def decomposition() -> str:
    """Seconds to decompose the joint graph of the GPT."""
    import tracework_aotautograd as aotautograd

    model = GPT()
    names = [n for n, _ in model.named_parameters()]

    def loss(ids: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (ids,))

    inputs = [torch.randint(0, 8192, (BATCH, 128)), *model.parameters()]
    graph = torch.fx.Graph()
    graph.output((graph.call_function(loss, tuple(graph.placeholder(f"x{i}") for i in range(len(inputs)))),))
    spent: dict[str, list[float]] = {"trace": [], "decompose": []}
    gc.disable()
    for _ in range(5):
        start = time.thread_time()
        joint = aotautograd.trace_joint(torch.fx.GraphModule({}, graph), inputs)
        traced = time.thread_time()
        prims = decompose(joint.graph)
        spent["trace"].append(traced - start)
        spent["decompose"].append(time.thread_time() - traced)
        gc.collect()
    gc.enable()
    nodes = len(joint.graph.graph.nodes), len(prims.graph.nodes)
    return (
        f"12-block GPT, forward and backward: traced in {min(spent['trace']):.3f} s, its {nodes[0]} ATen nodes decomposed "
        f"into {nodes[1]} in {min(spent['decompose']):.3f} s"
    )


def measure(name: str, model: Any, example: Any, with_torch: bool = True, show_ops: bool = False) -> list[tuple[str, ...]]:
    """The two rows of one model: (name, sizes, ops, median, mean, first, torch's median), in microseconds."""
    rows = []
    for kind, symbolic in (("static", False), ("symbolic", True)):
        calls, table = trace(model, example, symbolic)
        once, counts = distinct(calls)
        ours = replay(once, 20)
        theirs = replay(torchs(once, table), 2) if with_torch else []
        found = [statistics.median(spread(ours, counts)), statistics.mean(spread(ours, counts)), first_pass(calls, table)]
        found += [statistics.median(spread(theirs, counts))] if with_torch else []
        rows.append((name, kind, str(len(calls)), *(f"{value:.1f}" for value in found)))
        print("  ".join(f"{cell:>9}" for cell in rows[-1]), flush=True)
        if show_ops:
            _print_ops(once, counts, ours, theirs)
    return rows


def _print_ops(calls: list[Call], counts: list[int], ours: list[float], theirs: list[float]) -> None:
    by_op: dict[str, list[int]] = {}
    for i, (func, _, _) in enumerate(calls):
        by_op.setdefault(str(func), []).append(i)
    for op, places in sorted(by_op.items(), key=lambda item: -statistics.median(ours[i] for i in item[1])):
        weights = [counts[i] for i in places]
        line = f"  {op:55} {sum(weights):5} x {statistics.median(spread([ours[i] for i in places], weights)):7.1f}"
        print(line + (f" {statistics.median(spread([theirs[i] for i in places], weights)):9.1f}" if theirs else ""))


HEAD = """# What an op on fakes costs

Microseconds of one thread per ATen op of a training step, over all ops of a 12-block GPT and a ResNet-18: each op is called again on fakes of
the same sizes, the best of 20 rounds of 8 calls, and the median and the mean are over all calls of the step. `first`: one pass over the
step with nothing remembered. torch: the median of the same calls on its FakeTensor in the same run. The targets are medians of 10 with static
and 30 with symbolic sizes on a machine where torch's are 120 and 820; what else runs on the machine slows both. Written by `nox -s fakes`.

| model | sizes | ops | median | mean | first | torch: median | torch / ours |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Print a table in microseconds per op."""
    print("  ".join(f"{cell:>9}" for cell in ("model", "sizes", "ops", "median", "mean", "first", "torch")))
    rows = [
        row
        for name, (model, example) in models().items()
        for row in measure(name, model, example, "--no-torch" not in sys.argv, "--ops" in sys.argv)
    ]
    spent = decomposition()
    print(spent)
    if "--write" in sys.argv:
        lines = [f"| {' | '.join(row)} | {float(row[6]) / float(row[3]):.0f} |\n" for row in rows]
        (Path(__file__).parent.parent / "results" / "fakes.md").write_text(f"{HEAD}{''.join(lines)}\n{spent}.\n")


if __name__ == "__main__":
    main()
