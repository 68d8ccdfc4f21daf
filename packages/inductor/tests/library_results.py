"""What host programs believe of library calls against what torch gives: all operators that op_db reaches, forward and backward, all dtypes.

python packages/inductor/tests/library_results.py [--device cuda] [--only NAME ...] [--samples N]

Each ATen call that a sample makes becomes a graph of its own, once as it is and once as prims, and every node of it an eager call. The host
program of that graph checks its results: what differs is listed. A result that has to be copied, because its strides are not those that were
promised or its memory begins elsewhere, is listed, too: it is right, and costs a copy.
"""

from __future__ import annotations

import argparse
import contextlib
import operator
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import tracework_primops as primops
import tracework_runtime as runtime
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from tracework_inductor import InductorOptions, compile_graph
from tracework_runtime import results

SAMPLES = 8  # of each entry and dtype, spread over what it offers
LARGEST = 1 << 16  # elements of an operand
ALL_EAGER = InductorOptions(fallback_ops=frozenset(primops.OPS))
PROFILES = ("none", "prims")
LEFT_OUT = ("_foreach_",)  # groups of tensors are taken apart before anything is compiled
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AssertionError)
"""What eager raises for calls, and for samples, that it has no kernels for."""


@dataclass
class Found:
    """calls: compared, by profile; refused: reasons that nothing was compiled -> how often; wrong, copied: calls that differ."""

    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)
    copied: dict[str, str] = field(default_factory=dict)


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """What lists, tuples and dicts hold, changed."""
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)([mapped(change, v) for v in value])
    return {k: mapped(change, v) for k, v in value.items()} if isinstance(value, dict) else change(value)


def graph_of(func: Any, args: Any, kwargs: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """A graph with this call alone, whose shapes are those of fakes; and its inputs."""
    mode = primops.FakeMode()
    graph, inputs, known = torch.fx.Graph(), [], {}

    def lift(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in known:
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = mode.from_real(value)
            known[id(value)] = node
            inputs.append(value)
        return known[id(value)]

    args, kwargs = mapped(lift, (tuple(args), dict(kwargs)))
    with torch.no_grad(), mode:
        fakes = mapped(lambda v: v.meta["val"] if isinstance(v, torch.fx.Node) else v, (args, kwargs))
        result = func(*fakes[0], **fakes[1])
    node = graph.call_function(func, args, kwargs)
    node.meta["val"] = result
    graph.output(tuple(_leaves(graph, node, result)))
    return torch.fx.GraphModule({}, graph), inputs


def _leaves(graph: torch.fx.Graph, node: torch.fx.Node, value: Any) -> Iterator[torch.fx.Node]:
    if isinstance(value, torch.Tensor):
        yield node
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            if item is not None:
                part = graph.call_function(operator.getitem, (node, i))
                part.meta["val"] = item
                yield from _leaves(graph, part, item)


def usable(tensor: torch.Tensor, device: str) -> bool:
    """Whether a compiled graph could have it: plain, in memory of its own values, on the device or a number of the CPU."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and not (tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()) and tensor.numel() <= LARGEST


class Checking(TorchDispatchMode):
    """Runs each functional ATen call eagerly, and then from host programs."""

    def __init__(self, found: Found, device: str) -> None:
        super().__init__()
        self.found, self.device = found, device
        self.seen: set[Any] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the handler with its compiler's decorator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors: list[torch.Tensor] = []
        facts = mapped(lambda v: _facts(v, tensors), (args, kwargs))
        schema = func._schema
        skipped = func.namespace != "aten" or schema.is_mutable or any(r.alias_info for r in schema.returns)
        if skipped or not all(usable(t, self.device) for t in tensors):
            return result
        key = f"{func} {facts}"
        if key not in self.seen:
            self.seen.add(key)
            for profile in PROFILES:
                self._check(func, args, kwargs, profile, key)
        return result

    def _check(self, func: Any, args: Any, kwargs: Any, profile: str, key: str) -> None:
        with contextlib.ExitStack() as stack:
            copied = stack.enter_context(mock.patch.object(results, "restride", wraps=results.restride))
            try:
                gm, inputs = graph_of(func, args, kwargs)
                compiled = runtime.load(compile_graph(primops.decompose(gm, profile), ALL_EAGER))
            except Exception as error:  # data decides, or there is no fake: nothing is promised
                self.found.refused[f"{type(error).__name__}: {func}"] += 1
                return
            self.found.calls[profile] += 1
            try:
                compiled([t.detach() for t in inputs])
            except Exception as error:
                self.found.wrong.setdefault(
                    f"{func} {profile}", f"{key[:300]}: {type(error).__name__}: {str(error).splitlines()[0]}"
                )
            if copied.called:
                value, strides = copied.call_args.args
                what = f"strides {value.stride()} offset {value.storage_offset()} for {tuple(strides)}"
                self.found.copied.setdefault(f"{func} {profile}", f"{key[:200]}: {what}")


def _facts(value: Any, tensors: list[torch.Tensor]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    tensors.append(value)
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), value.stride() if value.layout is torch.strided else ()


def check(entry: Any, device: str, samples: int, found: Found) -> None:
    """All dtypes of an entry."""
    backward = entry.supported_backward_dtypes(torch.device(device).type) if entry.supports_autograd else ()
    mode = Checking(found, device)
    for dtype in sorted(entry.supported_dtypes(torch.device(device).type), key=str):
        gradients = dtype in backward
        for sample in chosen(entry, dtype, device, gradients, samples):
            with contextlib.suppress(*REFUSALS), mode:
                result = entry.op(sample.input, *sample.args, **sample.kwargs)
                if gradients:
                    differentiate(result)


def chosen(entry: Any, dtype: torch.dtype, device: str, gradients: bool, count: int) -> list[Any]:
    """Samples, evenly spread; those made by code that eager refuses are missing."""
    torch.manual_seed(0)
    made: list[Any] = []
    with contextlib.suppress(*REFUSALS):
        made.extend(entry.sample_inputs(device, dtype, requires_grad=gradients))
    step = max(1.0, len(made) / count)
    return [made[int(i * step)] for i in range(min(count, len(made)))]


def differentiate(result: Any) -> None:
    """Backward through everything that has a history."""
    found: list[torch.Tensor] = []
    mapped(lambda v: found.append(v) if isinstance(v, torch.Tensor) and v.grad_fn is not None else None, result)
    if found:
        torch.autograd.backward(found, [torch.ones_like(t) for t in found])


def measure(entries: list[Any], device: str = "cpu", samples: int = SAMPLES) -> Found:
    """All entries."""
    found = Found()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in entries:
            check(entry, device, samples, found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", help="names of entries; default all")
    parser.add_argument("--part", default="0/1", help="I/N: the I-th of N parts of the table")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    entries = [op for op in op_db if not options.only or op.name in options.only]
    entries = [op for op in entries if not op.name.startswith(LEFT_OUT)][part::parts]
    found = measure(entries, options.device, options.samples)
    for title, rows in (("differs", found.wrong), ("is copied", found.copied)):
        print(f"\n{title}: {len(rows)}")
        print("\n".join(f"- {text}" for text in rows.values()))
    print(f"\ncompared {dict(found.calls)}; without a graph: {found.refused.total()} {found.refused.most_common(12)}")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
