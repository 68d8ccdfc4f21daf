"""What a replay costs the host beside launching the graph: python tools/run_in_tree.py python -m benchmarks.micro.replay_cost

Functions with parameters that are read in place, inputs that are copied and outputs, called as a compiled function calls them. Microseconds
of the host for one call, best of many rounds; "launch" is what cuGraphLaunch alone takes for the same graph, called
through ctypes; on a CPU nothing.
"""

import argparse
import time

import torch
from tracework_runtime import Artifact, RuntimeOptions
from tracework_runtime.cudagraph.engine import GraphEngine, Recorded
from tracework_runtime.cudagraph.record import GraphedFn
from tracework_runtime.device.driver import driver
from tracework_runtime.load import CompiledFn

from packages.runtime.tests.slow_engine import SlowEngine

ROUNDS, CALLS = 40, 50


class NoGpu(SlowEngine):
    """Replays are nothing."""

    def record(self, call, inputs, device, stream, draws, keeps):
        return Recorded(None, call(inputs), replay=lambda: None)


class Recording(GraphEngine):
    """Takes it that every recording pays, and keeps the last one's launch."""

    def time(self, call, device):
        return call(), 1.0, 1.0

    def record(self, *args):
        made = super().record(*args)
        graph, stream = made.handle, torch.cuda.current_stream().cuda_stream
        launch = driver()._library.cuGraphLaunch
        self.launch = lambda: launch(graph, stream)
        return made


def best(call, device):
    """Microseconds of the host."""
    times = []
    for _ in range(ROUNDS):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - started) / CALLS)
    return min(times) * 1e6


def measure(device, fixed, copied, outputs):
    """(a call, its launch alone)"""
    count = fixed + copied

    def host(args):
        x = args[0]
        args.clear()
        return tuple(x + n for n in range(outputs))

    artifact = Artifact(
        "replaycost",
        "",
        devices={"cuda:0"},
        static_inputs=set(range(fixed)),
        externs={"aten::add"},
        inputs=tuple(f"arg{n}" for n in range(count)),
    )
    artifact = artifact.replace(checks=tuple(_check(n) for n in range(count)))
    engine = Recording() if device == "cuda" else NoGpu()
    fn = GraphedFn(CompiledFn(artifact, {"call": host}), RuntimeOptions(), engine)
    parameters = [torch.randn(64, device=device) for _ in range(fixed)]
    turns = [[torch.randn(64, device=device) for _ in range(copied)] for _ in range(2)]
    for n in range(8):
        fn([*parameters, *turns[n % 2]])
    assert fn.replays >= 4 and len(fn.recordings) == 1, fn.reasons()
    (made,) = fn.recordings
    assert len(made.fixed) == fixed
    values = [*parameters, *turns[0]]
    return best(lambda: fn(list(values)), device), best(engine.launch, device) if device == "cuda" else 0.0


def _check(n):
    from tracework_runtime import TensorCheck

    return TensorCheck(n, f"arg{n}", "float32", "cuda:0", (64,), (1,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    print("in place  copied  outputs    call  launch  difference   (us)")
    for fixed, copied, outputs in (
        (1, 0, 1),
        (1, 1, 1),
        (1, 8, 1),
        (1, 32, 1),
        (100, 1, 1),
        (300, 1, 1),
        (1, 1, 50),
        (300, 4, 4),
    ):
        call, launch = measure(device, fixed, copied, outputs)
        print(f"{fixed:8d} {copied:7d} {outputs:8d} {call:7.2f} {launch:7.2f} {call - launch:11.2f}")


if __name__ == "__main__":
    main()
