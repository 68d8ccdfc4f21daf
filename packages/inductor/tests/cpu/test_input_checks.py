"""Artifacts know what they were compiled for: loaded, they refuse other inputs."""

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build
from tracework_inductor import compile_graph
from tracework_primops import parse_graph
from tracework_primops import prims as p
from tracework_primops.symbols.expr import Condition


def test_fixed_sizes():
    x = torch.randn(8, 8)
    artifact = compile_graph(build(lambda v: (p.exp(v),), [x]))
    fn = runtime.load(artifact)
    torch.testing.assert_close(fn([x])[0], x.exp())
    with pytest.raises(runtime.InputError, match=r"input 0 .*sizes: expected \(8, 8\), got \(2, 2\)"):
        fn([torch.randn(2, 2)])
    for other in (x.t(), x.double(), x[:, :4], torch.randn(9, 8)[1:]):
        with pytest.raises(runtime.InputError, match="input 0"):
            fn([other])
    with pytest.raises(runtime.InputError, match="1 inputs expected, 2 given"):
        fn([x, x])


GRAPH = """inference graph
symbol s0 in 2..None hint 3
symbol s1 in 2..64 hint 4
%n: size s0 = input
%m: size 2*s0 + 1 = input
%x: f32[s0, s1] = input
%y: f32[s1] = input
%wide: f32[s0, s1] strides (0, 1) = expand(%y, (s0, s1))
%sum: f32[s0, s1] = add(%x, %wide)
return %sum
"""


@pytest.fixture(scope="module")
def symbolic():
    """A number that is a size, one that is computed from sizes, and tensors whose sizes and strides depend on two symbols."""
    graph = parse_graph(GRAPH)
    s0, s1 = graph.inputs[2].spec.sizes
    graph.symbols.assume(Condition.compare("!=", s0, s1))
    return runtime.Artifact.from_bytes(compile_graph(graph).to_bytes())


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 64), (5, 4)])
def test_all_sizes_that_fit_are_taken(symbolic, rows, columns):
    x, y = torch.randn(rows, columns), torch.randn(columns)
    assert torch.equal(runtime.load(symbolic)([rows, 2 * rows + 1, x, y])[0], x + y)


REFUSED = {
    "a size that is not the number": ((3, 7, torch.ones(4, 5), torch.ones(5)), "sizes: expected"),
    "a number that is not computed so": ((3, 8, torch.ones(3, 4), torch.ones(4)), r"2\*s0"),
    "two sizes that differ": ((3, 7, torch.ones(3, 4), torch.ones(5)), r"input 3 .*sizes"),
    "strides that do not follow from sizes": ((3, 7, torch.ones(4, 3).t(), torch.ones(4)), "strides"),
    "a size below its range": ((1, 3, torch.ones(1, 4), torch.ones(4)), "s0 >= 2"),
    "a size above its range": ((3, 7, torch.ones(3, 65), torch.ones(65)), "s1 <= 64"),
    "what was found out": ((4, 9, torch.ones(4, 4), torch.ones(4)), "s0 != s1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_relations_of_sizes(symbolic, name):
    given, message = REFUSED[name]
    with pytest.raises(runtime.InputError, match=message):
        runtime.load(symbolic)(list(given))
