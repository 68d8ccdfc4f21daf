"""Errors on a GPU of the functions that activations are made of: ours and eager's, against float64, over all exponents of float32.

    python tools/run_in_tree.py python benchmarks/micro/function_errors.py [--only WORDS]

"ulp" is the largest error in units of the last place of the exact result, where that is a normal number, and "at" where it is; "apart" the
largest absolute error of results up to 4; "special" the results for NaN, infinities, zeros, large and denormal numbers that are not eager's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import tracework

Function = Callable[[torch.Tensor], torch.Tensor]
SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30, 1e-40, -1e-40)


def gradient(fn: Function) -> Function:
    """Of the sum of what a function gives."""

    def of(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(fn(x).sum(), x)[0]

    return of


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def new_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


FUNCTIONS: dict[str, Function] = {
    "erf": torch.erf,
    "1 + erf": lambda x: 1.0 + torch.erf(x),
    "tanh": torch.tanh,
    "1 + tanh": lambda x: 1.0 + torch.tanh(x),
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "log1p": torch.log1p,
    "gelu": F.gelu,
    "gelu tanh": gelu_tanh,
    "new gelu": new_gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
}
GRADIENTS: dict[str, Function] = {"gelu": F.gelu, "gelu tanh": gelu_tanh, "silu": F.silu, "softplus": F.softplus, "mish": F.mish}


def all_exponents() -> torch.Tensor:
    """4096 numbers of each, of both signs, and a dense range."""
    torch.manual_seed(0)
    bits = (torch.arange(255, dtype=torch.int32)[:, None] << 23) | torch.randint(1 << 23, (255, 4096), dtype=torch.int32)
    found = torch.cat([bits.view(torch.float32).flatten(), torch.linspace(0, 20, 2_000_001), torch.linspace(20, 110, 500_001)])
    return torch.cat([found, -found]).cuda()


def errors(found: torch.Tensor, exact: torch.Tensor, x: torch.Tensor) -> str:
    size = exact.abs().float()
    last = (torch.nextafter(size, torch.full_like(size, float("inf"))) - size).double()
    apart = (found.double() - exact).abs().nan_to_num(0.0)
    normal = (size >= torch.finfo(torch.float32).tiny) & (size < float("inf"))
    ulps = torch.where(normal, apart / last, 0.0)
    place = int(ulps.argmax())
    return f"{float(ulps[place]):12.4g}{float(x[place]):12.4g}{float(torch.where(size <= 4, apart, 0.0).max()):10.1e}"


def line(name: str, eager: Function, ours: Function, x: torch.Tensor) -> str:
    """Of one function."""
    exact = eager(x.double())
    special = torch.tensor(SPECIAL, device="cuda")
    pairs = zip(SPECIAL, ours(special).tolist(), eager(special).tolist(), strict=True)
    strange = [f"{at}: {a}, not {b}" for at, a, b in pairs if repr(a) != repr(b)]
    found, wanted = ours(x), eager(x)
    if more := int((found.isnan() & ~wanted.isnan()).sum()):
        strange.append(f"{more} more that are not numbers")
    return f"{name:20s}{errors(found, exact, x)}  {errors(wanted, exact, x)}  {'; '.join(strange)}"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="functions whose names hold one of these words, separated by commas")
    words = parser.parse_args().only.split(",")
    print(torch.cuda.get_device_name())
    print(f"{'function':20s}{'ours: ulp':>12s}{'at':>12s}{'apart':>10s}  {'eager: ulp':>12s}{'at':>12s}{'apart':>10s}  special")
    x = all_exponents()
    table: dict[str, tuple[Function, Any]] = {name: (fn, tracework.compile(fn, dynamic=False)) for name, fn in FUNCTIONS.items()}
    for name, fn in GRADIENTS.items():
        table[f"{name}, gradient"] = gradient(fn), gradient(tracework.compile(fn, dynamic=False))
    for name, (eager, ours) in table.items():
        if any(word in name for word in words):
            print(line(name, eager, ours, x), flush=True)


if __name__ == "__main__":
    main()
