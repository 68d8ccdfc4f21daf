"""What a token of a decoder costs the host: the step, its host program alone, and a bare loop in C over the launches of that program.

python tools/run_in_tree.py python -m benchmarks.micro.step_cost [--models gpt2,qwen-0.5b] [--cache 512]

Microseconds of the calling thread in default mode, the least of several, in turns, with the queue of the GPU empty before each; "token" is
what a step takes in a chain of steps. "python" counts the lines of the host program that are Python, such as library calls. The step is
without the model's own code: frames, guards and arguments, versions and addresses of inputs. Needs a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from typing import Any

import torch
import tracework
from tracework_runtime import CompiledFn
from tracework_runtime.device import driver
from tracework_runtime.host.lines import Call

from benchmarks import decode
from benchmarks.micro.host_cost import Watch, bare, launches_of, least
from benchmarks.worker import timed


class Watched:
    """The one host program of a step, and the inputs of its first call."""

    def __init__(self) -> None:
        self.compiled: CompiledFn | None = None
        self.inputs: list[Any] = []

    def observe(self, stage: str, product: Any) -> None:
        """For `tracework.compile(observe=...)`."""
        if stage != "runtime":
            return
        assert self.compiled is None, "a step of several graphs"
        self.compiled, call = product, product.call

        def noted(inputs: list[Any]) -> tuple[Any, ...]:
            self.inputs = self.inputs or list(inputs)
            return call(inputs)

        product.call = noted
        self.program = call


def launches_of_step(watched: Watched, watch: Watch) -> Any:
    """For the bare loop."""
    watch.launches.clear()
    watched.program(list(watched.inputs))
    return launches_of(watch)


@torch.no_grad()
def measure(model: str, cache: int, library: ctypes.CDLL) -> dict[str, float]:
    """Microseconds, launches and lines of a step of decode.MODELS[model]."""
    decoder = decode.build(model, cache, "full", "cuda", torch.bfloat16)
    token = decoder.prompt()[:, :1]
    watched, watch = Watched(), Watch()
    driver.driver().launch_address = watch.address
    try:
        step, own = decoder.step_of(lambda f: tracework.compile(f, observe=watched.observe))
        for _ in range(2):
            step(token)
        launches = launches_of_step(watched, watch)
    finally:
        driver.driver().launch_address = watch.real
    plain = Watched()
    step, own = decoder.step_of(lambda f: tracework.compile(f, observe=plain.observe))
    step(token), decode.rewind(own, decode.PROMPT)
    assert plain.compiled is not None and watched.compiled is not None
    program, inputs = plain.program, plain.inputs

    def chain() -> None:
        current = token
        for _ in range(decode.BLOCK):
            current, _ = step(current)
            current = current.clone()

    ways: dict[str, Callable[[], Any]] = {
        "bare loop": lambda: library.run(ctypes.c_void_p(watch.real), launches, len(launches)),
        "program": lambda: program(list(inputs)),
        "step": lambda: step(token),
    }
    found = {
        "launches": float(len(launches)),
        **least(ways, lambda: (decode.rewind(own, decode.PROMPT), torch.cuda.synchronize())),
    }
    decode.rewind(own, decode.PROMPT)
    found["token"] = (
        min(timed(lambda: (decode.rewind(own, decode.PROMPT), chain()), "cuda") for _ in range(8)) / decode.BLOCK * 1e6
    )
    return found | {"python": float(sum(isinstance(line, Call) for line in plain.compiled.artifact.host_lines))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(m for m in decode.MODELS if m != "llama-8b"))
    parser.add_argument("--cache", type=int, default=512)
    arguments = parser.parse_args()
    library = bare()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, us\n")
    names = ("launches", "python", "bare loop", "program", "step", "token")
    print(f"| model | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for model in arguments.models.split(","):
        found = measure(model, arguments.cache, library)
        print(f"| {model} | {' | '.join(f'{found[name]:.0f}' for name in names)} |", flush=True)


if __name__ == "__main__":
    main()
