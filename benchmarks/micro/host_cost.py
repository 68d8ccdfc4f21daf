"""What a host program costs a kernel: a chain of small kernels, interpreted and as Python, beside a bare loop in C over the same launches.

python tools/run_in_tree.py python benchmarks/micro/host_cost.py [--device cuda] [--kernels 100]

Microseconds of the calling thread, the least of several, in turns. On a GPU the bare loop asks the driver for the very launches that the
program made (function, grid, parameters); on the CPU it calls the kernels, so that there their own time is in each row.

The second table is of products by the library, each of a kernel's result and a transposed weight, beside a Python loop over torch.mm with
ready tensors.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tracework_runtime as runtime
from tracework_inductor import InductorOptions, compile_graph
from tracework_primops import GraphBuilder, PrimGraph, PrimValue, TensorSpec, prims
from tracework_runtime.device import driver

REPEATS = 40
BARE = """
#include <stdint.h>
typedef struct { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; } config;
typedef struct { config how; void *function; uint64_t values[64]; void *parameters[64]; } launch;
void run(int (*ask)(const config *, void *, void **, void **), const launch *all, int count)
{ for (int i = 0; i < count; ++i) ask(&all[i].how, all[i].function, (void **)all[i].parameters, 0); }
void call(const launch *all, int count)
{ for (int i = 0; i < count; ++i) { const uint64_t *v = all[i].values;
    ((void (*)(uint64_t, uint64_t, uint64_t, uint64_t))all[i].function)(v[0], v[1], v[2], v[3]); } }
"""


class Config(ctypes.Structure):
    """CUlaunchConfig of the driver."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class Launch(ctypes.Structure):
    """One launch of the bare loop."""

    _fields_ = (
        ("how", Config),
        ("function", ctypes.c_void_p),
        ("values", ctypes.c_uint64 * 64),
        ("parameters", ctypes.c_void_p * 64),
    )


def bare() -> ctypes.CDLL:
    """The loops in C."""
    folder = Path(tempfile.mkdtemp())
    (folder / "bare.c").write_text(BARE)
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(folder / "bare.c"), "-o", str(folder / "bare.so")], check=True)
    return ctypes.CDLL(str(folder / "bare.so"))


def reductions(x: PrimValue, w: PrimValue) -> PrimValue:
    """Of rows; the sum that follows is in the next kernel."""
    return prims.add(prims.mul(prims.amax(x, (1,), True), w), w)


def products(x: PrimValue, w: PrimValue) -> PrimValue:
    """A kernel and a library call."""
    return prims.mm(prims.tanh(x), prims.permute(w, (1, 0)))


def chain(step: Callable[..., PrimValue], steps: int, device: str) -> tuple[PrimGraph, list[torch.Tensor]]:
    """So many steps, each of the result of the one before."""
    given = [torch.randn(64, 64, device=device) / 8 for _ in range(2)]
    graph = torch.fx.Graph()
    builder = GraphBuilder(graph)
    values = []
    for n, t in enumerate(given):
        node = graph.placeholder(f"in{n}")
        node.meta["spec"] = TensorSpec(t.dtype, t.device, tuple(t.shape), tuple(t.stride()))
        values.append(PrimValue(node.meta["spec"], node))
    with builder:
        x, w = values
        for _ in range(steps):
            x = step(x, w)
    graph.output((x.node,))
    return PrimGraph.from_fx(graph), given


class Watch:
    """The driver's launch, written down on its way."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, bytes, list[int]]] = []
        self.real = driver.driver().launch_address
        self._library = ctypes.CDLL("libcuda.so.1")
        signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        self._launch = signature(self.real)
        self._watched = signature(self._note)
        self.address = ctypes.cast(self._watched, ctypes.c_void_p).value

    def _note(self, how: int, function: int, parameters: int, extra: int) -> int:
        values = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        info = self._library.cuFuncGetParamInfo
        while info(ctypes.c_void_p(function), ctypes.c_size_t(len(values)), ctypes.byref(offset), ctypes.byref(size)) == 0:
            at = ctypes.c_void_p.from_address(parameters + 8 * len(values)).value
            values.append(int.from_bytes(ctypes.string_at(at, size.value), "little"))
        self.launches.append((function, ctypes.string_at(how, ctypes.sizeof(Config)), values))
        return self._launch(how, function, parameters, extra)


def gpu_launches(artifact: runtime.Artifact, given: list[torch.Tensor]) -> tuple[Any, int]:
    """What a call launches, for the bare loop."""
    watch = Watch()
    driver.driver().launch_address = watch.address
    try:
        call = runtime.load(artifact, check_inputs=False).call
        call(list(given))
        watch.launches.clear()  # what was measured, too
        call(list(given))
    finally:
        driver.driver().launch_address = watch.real
    return launches_of(watch), watch.real


def launches_of(watch: Watch) -> Any:
    """What was launched, for the bare loop."""
    found = (Launch * len(watch.launches))()
    for one, (function, how, values) in zip(found, watch.launches, strict=True):
        one.how, one.function = Config.from_buffer_copy(how), function
        for n, value in enumerate(values):
            one.values[n] = value
            one.parameters[n] = ctypes.addressof(one.values) + 8 * n
    return found


def cpu_launches(artifact: runtime.Artifact, given: list[torch.Tensor]) -> Any:
    """The kernels of a program, each on memory of its own."""
    namespace = runtime.load(artifact, check_inputs=False).namespace
    lines = [line for line in artifact.host_lines if type(line).__name__ == "Launch"]
    memory = torch.randn(64, 64)
    found = (Launch * len(lines))()
    for one, line in zip(found, lines, strict=True):
        assert len(line.operands) <= 4
        one.function = ctypes.cast(namespace[line.function], ctypes.c_void_p).value
        for n in range(len(line.operands)):
            one.values[n] = memory.data_ptr()
    bare_memory.append(memory)
    return found


bare_memory: list[torch.Tensor] = []


def least(ways: dict[str, Callable[[], Any]], wait: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of each way."""
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(REPEATS):
        for name, way in ways.items():
            wait()
            started = time.perf_counter()
            way()
            way()
            way()
            found[name] = min(found[name], (time.perf_counter() - started) / 3)
    return {name: 1e6 * seconds for name, seconds in found.items()}


def measure(kernels: int, device: str, library: ctypes.CDLL) -> dict[str, float]:
    """Microseconds of a call of the chain."""
    graph, given = chain(reductions, kernels - 1, device)
    artifact = compile_graph(graph, InductorOptions(fuse=False))
    interpreted = runtime.load(artifact, check_inputs=False).call
    python = runtime.load(artifact.replace(host_lines=()), check_inputs=False).call
    ways: dict[str, Callable[[], Any]] = {"interpreted": lambda: interpreted(list(given)), "Python": lambda: python(list(given))}
    for way in ways.values():
        torch.testing.assert_close(way()[0], graph.run(*given)[0], rtol=1e-4, atol=1e-4)
    if device == "cuda":
        launches, address = gpu_launches(artifact, given)
        ways["bare loop"] = lambda: library.run(ctypes.c_void_p(address), launches, len(launches))
        wait = torch.cuda.synchronize
    else:
        launches = cpu_launches(artifact, given)
        ways["bare loop"] = lambda: library.call(launches, len(launches))
        wait = lambda: None
    return {"launches": float(len(launches)), **least(ways, wait)}


def measure_products(calls: int, device: str) -> dict[str, float]:
    """Microseconds of a call of a chain with library calls."""
    graph, given = chain(products, calls, device)
    artifact = compile_graph(graph, InductorOptions())
    interpreted = runtime.load(artifact, check_inputs=False).call
    python = runtime.load(artifact.replace(host_lines=()), check_inputs=False).call
    x, w = given
    ready, out = (x, w.t()), torch.empty_like(x)

    def alone() -> None:
        for _ in range(calls):
            torch.mm(*ready, out=out)

    ways = {"bare loop": alone, "interpreted": lambda: interpreted(list(given)), "Python": lambda: python(list(given))}
    return {"launches": float(calls), **least(ways, torch.cuda.synchronize if device == "cuda" else lambda: None)}


def show(few: dict[str, float], many: dict[str, float]) -> None:
    """A table from a short and a long chain."""
    between = many["launches"] - few["launches"]
    print("\n| us | a call | one more | the rest |")
    print("|---|---|---|---|")
    for name in ("bare loop", "interpreted", "Python"):
        slope = (many[name] - few[name]) / between
        print(f"| {name} | {many[name]:.1f} | {slope:.3f} | {many[name] - slope * many['launches']:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--kernels", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    library = bare()
    counts = arguments.kernels // 4, arguments.kernels
    print(f"{arguments.device}, torch {torch.__version__}: {arguments.kernels} kernels, then as many products")
    show(*(measure(n, arguments.device, library) for n in counts))
    show(*(measure_products(n, arguments.device) for n in counts))


if __name__ == "__main__":
    main()
