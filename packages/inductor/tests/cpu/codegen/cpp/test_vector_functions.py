"""Functions on whole vectors: their errors over all floats, special values, and that a value does not depend on its place."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_inductor.codegen.cpp.vector_functions import FUNCTIONS
from tracework_primops import prims
from tracework_runtime import load

ULPS = {"exp": 1.1, "erf": 4, "tanh": 2.5, "sigmoid": 2.5}
"""Largest errors, in units of the last place. The scalar functions, which stand in on other processors, have these; see vector_functions.py."""
SPECIAL = [
    0.0,
    -0.0,
    float("inf"),
    -float("inf"),
    float("nan"),
    1e-40,
    -1e-40,
    88.72283,
    88.72284,
    -87.4,
    -103.97,
    -104.0,
    3.87,
    -3.9,
    8.9,
]


def test_errors_over_all_floats() -> None:
    bits = torch.arange(0, 2**32, 66587).to(torch.int64)
    x = torch.cat([torch.where(bits < 2**31, bits, bits - 2**32).to(torch.int32).view(torch.float32), torch.tensor(SPECIAL)])
    x = torch.cat([x, x[:37]])
    assert len(x) % 32, "the last group is not whole"
    graph = build(lambda v: tuple(getattr(prims, name)(v) for name in ULPS), [x])
    artifact = compile_graph(graph)
    assert set(ULPS) == FUNCTIONS and all(f"tw_each_{name}<" in artifact.kernels[0].source for name in FUNCTIONS)
    for (name, bound), actual in zip(ULPS.items(), load(artifact)([x]), strict=True):
        exact = getattr(torch, name)(x.double())
        # 1 / (1 + exp(-x)) is 0 where the power is infinite, as in eager.
        exact = exact.where(x > -88, 0) if name == "sigmoid" else exact
        actual = actual.where((x > -88) | x.isnan(), 0) if name == "sigmoid" else actual
        rounded = exact.float()
        assert torch.equal(actual.isnan(), x.isnan()), name
        large = rounded.isinf() | x.isnan()
        assert torch.equal(actual[rounded.isinf()], rounded[rounded.isinf()]), name
        assert torch.equal(actual.signbit()[~x.isnan()], rounded.signbit()[~x.isnan()]), name
        size = rounded.abs()
        unit = (torch.nextafter(size, torch.tensor(float("inf"))) - size).double()
        error = ((actual.double() - exact).abs() / unit)[~large].max()
        assert error <= bound, (name, float(error))
        assert name == "exp" or actual[~x.isnan()].abs().max() <= 1
        if name in ("erf", "tanh"):
            assert torch.equal(actual[size == 1], rounded[size == 1]), name
        assert torch.equal(actual[:37], actual[-37:]), name
