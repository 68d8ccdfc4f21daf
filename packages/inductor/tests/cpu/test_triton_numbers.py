"""Ints that change from call to call in Triton kernels, told and read from memory: the interpreter against eager, and compiled for Hopper."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch
from tracework_primops import prims as p

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from prim_programs import build  # noqa: E402
from tracework_inductor import InductorOptions, compile_graph  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_primops.spec import SizeSpec, TensorSpec  # noqa: E402
from tracework_primops.symbols.expr import floordiv, symbol  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build_triton  # noqa: E402
from tracework_runtime.host.lines import Bind, Number  # noqa: E402
from triton_programs import rendered  # noqa: E402

NUMBERS = [3, 0, -7, 60_000, 2**31 - 1, -(2**31), 2**40 + 1, -(2**40)]
N = symbol("s0", None, None)
PLACE = symbol("s0", 0, 3)

VALUES = {
    "added": lambda x, i, n: (p.add(x, n), p.add(i, n)),
    "full": lambda x, i, n: p.full((4, 6), n, torch.int64, i.device),
    "compared": lambda x, i, n: p.where(p.lt(i, n), x, p.neg(x)),
    "square": lambda x, i, n: p.add(i, n * n),
    "quotient": lambda x, i, n: p.add(i, floordiv(n, 7)),
    "of sums": lambda x, i, n: p.add(p.sum(x, (1,)), n),
    "in a row": lambda x, i, n: p.sum(p.mul(p.add(i, n), 3), (1,)),
}
PLACES = {
    "column": lambda x, i, n: p.neg(p.slice(x, 1, n, n + 1, 1)),
    "row": lambda x, i, n: p.add(p.slice(x, 0, n, n + 1, 1), 1.0),
    "written": lambda x, i, n: p.slice_scatter(x, p.slice(p.neg(x), 0, 0, 1, 1), 0, n, n + 1, 1),
}
PROGRAMS = {name: (f, N) for name, f in VALUES.items()} | {name: (f, PLACE) for name, f in PLACES.items()}


def options(in_memory):
    return InductorOptions(numbers_in_memory=frozenset({"cpu"} if in_memory else ()))


def inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 6), torch.randint(-9, 9, (4, 6))]


def graph_of(name):
    function, number = PROGRAMS[name]
    specs = [TensorSpec(t.dtype, t.device, tuple(t.shape), t.stride()) for t in inputs()]
    return build(function, [None] * 3, [*specs, SizeSpec(number)])


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name, in_memory, tmp_path):
    graph = graph_of(name)
    host, kernels = rendered(graph, options(in_memory))

    def look(kernel, tensors, numbers):
        fits = dict(kernel.launch)["fits32"]
        if fits is not None and eval(fits, {f"ks{n}": number for n, number in enumerate(numbers)}):
            assert all(-(2**31) <= number < 2**31 for number in numbers), "the launcher would cut them off"
        assert not (in_memory and numbers)

    call = triton_interpreter.host_call(host, kernels, tmp_path, look)
    for number in range(4) if name in PLACES else [n for n in NUMBERS if name != "square" or n * n < 2**63]:
        given = [*inputs(), number]
        for found, wanted in zip(call(list(given)), graph.run(*given), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_all_compile_for_hopper(tmp_path):
    """By value in 32 bits and in 64; from memory in one form alone."""
    renderer, jobs = TritonRenderer(), []
    for name in PROGRAMS:
        for in_memory in (False, True):
            for kernel in renderer.pack(list(rendered(graph_of(name), options(in_memory))[1].items())):
                wides = [False] if kernel.launch["fits32"] is None else [False, True]
                assert wides == [False] or not in_memory
                variants = [build_triton.Variant(wide=wide) for wide in wides]
                entries, config = kernel.launch["entries"], kernel.launch["configs"][0]
                jobs += [build_triton.request(kernel, entry, config, v, 90) for entry in entries for v in variants]
    made = build_triton.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    assert len(made) == len(jobs) >= 3 * len(PROGRAMS)


SIZES = {
    "of a view": (lambda x, n: p.slice(x, 0, 0, n, 1), False),
    "of a result": (lambda x, n: p.full((n,), 2.0, torch.float32, x.device), False),
    "of a result that is a view": (lambda x, n: p.slice(p.sort(x, 0, False, True)[0], 0, n, n + 2, 1), False),
    "of a library call": (lambda x, n: p.sort(p.slice(x, 0, n, n + 2, 1), 0, False, True)[0], True),
    "a value": (lambda x, n: p.mul(x, n), True),
    "a place": (lambda x, n: p.neg(p.slice(x, 0, n, n + 1, 1)), True),
}


@pytest.mark.parametrize("name", SIZES)
def test_what_a_size_depends_on_is_told(name):
    function, is_data = SIZES[name]
    x = torch.randn(8)
    graph = build(function, [None] * 2, [TensorSpec(x.dtype, x.device, (8,), (1,)), SizeSpec(symbol("s0", 2, 5))])
    lines = compile_graph(graph, options(True)).host_lines
    assert any(isinstance(line, Number) for line in lines) is is_data
    assert any(isinstance(line, Bind) for line in lines) is not is_data
