"""Complex numbers in loops: what the pass rewrites, and its kernels in C++ and Triton against eager."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch
import tracework_runtime as runtime

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from prim_programs import check, copied  # noqa: E402
from tracework_inductor import compile_graph  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.ir.buffer import IN_PARTS  # noqa: E402
from tracework_inductor.options import InductorOptions  # noqa: E402
from tracework_inductor.passes.complex_parts import EACH_PART, ROWS, complex_parts  # noqa: E402
from tracework_inductor.pipeline import plan_graph  # noqa: E402
from tracework_primops import prims  # noqa: E402
from tracework_primops.op import OPS  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
from triton_programs import graph_of, rendered  # noqa: E402

p = prims


def rotary(x: Any, table: Any) -> Any:
    """x (rows, heads, width) of a half type, table (rows, width / 2)."""
    rows, heads, width = x.sizes
    pairs = p.view_as_complex(p.reshape(p.convert(x, torch.float32), (rows, heads, width // 2, 2)))
    turned = p.view_as_real(p.mul(pairs, p.unsqueeze(table, 1)))
    return p.convert(p.reshape(turned, (rows, heads, width)), x.dtype)


def interleaved(x: Any, y: Any) -> Any:
    product = p.mul(p.conj(x), y)
    return product, p.permute(p.add(product, 1.5 - 2j), (1, 0)), p.abs(product), p.cat((x, p.neg(y)), 1)


def numbers(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype, generator=torch.Generator().manual_seed(len(sizes)))


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "rotary": (rotary, lambda: [numbers(5, 3, 8, dtype=torch.bfloat16), numbers(5, 4, dtype=torch.complex64)]),
    **{
        f"interleaved {dtype}": (interleaved, lambda d=dtype: [numbers(4, 6, dtype=d), numbers(6, 4, dtype=d).mT])
        for dtype in IN_PARTS
    },
}


def test_rows_are_prims() -> None:
    assert EACH_PART | ROWS.keys() <= OPS.keys()
    assert not EACH_PART & ROWS.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_cpp(name: str) -> None:
    program, inputs = PROGRAMS[name]
    arguments = inputs()
    graph = graph_of(program, *arguments)
    assert not plan_graph(graph, InductorOptions()).program.fallbacks
    found = runtime.load(compile_graph(graph))([copied(a) for a in arguments])
    for value, wanted in zip(found, graph.run(*arguments), strict=True):
        assert value.stride() == wanted.stride()
        torch.testing.assert_close(value, wanted)


def test_one_kernel_without_conditions_turns_pairs() -> None:
    program, inputs = PROGRAMS["rotary"]
    (kernel,) = plan_graph(graph_of(program, *inputs()), InductorOptions()).kernels
    assert [a.size for a in kernel.axes] == [5, 3, 4]
    assert {i.op for i in kernel.passes[0].body.instructions} == {"load", "to_dtype", "mul", "add", "sub", "store"}


@pytest.mark.parametrize("reason", ["complex32", "divided by a tensor", "strict"])
def test_what_stays_eagers(reason: str) -> None:
    x = numbers(4, 6, dtype=torch.complex64)
    if reason == "complex32":
        graph = graph_of(lambda a: p.conj(p.convert(a, torch.complex32)), x)
    else:
        graph = graph_of(lambda a: p.div(a, a) if reason != "strict" else p.mul(a, a), x)
    options = InductorOptions(numerics="strict" if reason == "strict" else "default")
    assert plan_graph(graph, options).program.fallbacks
    if reason == "divided by a tensor":
        check(None, x, graph=graph)  # type: ignore[arg-type]


def test_a_graph_of_real_numbers_is_left_as_it_is() -> None:
    graph = graph_of(lambda a: p.mul(a, 2.0), torch.randn(3))
    assert complex_parts(graph) is graph


@pytest.mark.parametrize("name", PROGRAMS)
def test_triton(name: str, tmp_path: Path) -> None:
    program, inputs = PROGRAMS[name]
    arguments = inputs()
    graph = graph_of(program, *arguments)
    expected = graph.run(*[a.clone() for a in arguments])
    host, kernels = rendered(complex_parts(graph))

    def launcher(kernel: Any) -> Callable[..., None]:
        def launch(*args: Any) -> None:
            tensors = [torch.view_as_real(a) if a.is_complex() else a for a in args if isinstance(a, torch.Tensor)]
            triton_interpreter.interpret(kernel, tensors, args[len(tensors) :], tmp_path)

        return launch

    namespace: dict[str, Any] = {kernel_name: launcher(kernel) for kernel_name, kernel in kernels.items()}
    exec(host, namespace)
    for value, wanted in zip(namespace["call"](list(arguments)), expected, strict=True):
        torch.testing.assert_close(value, wanted)


def test_triton_compiles_for_hopper(tmp_path: Path) -> None:
    renderer, jobs = TritonRenderer(), []
    for program, inputs in PROGRAMS.values():
        for kernel in renderer.pack(list(rendered(complex_parts(graph_of(program, *inputs())))[1].items())):
            jobs += [build.request(kernel, e, kernel.launch["configs"][0], build.Variant(), 90) for e in kernel.launch["entries"]]
    assert len(build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))) == len(jobs) >= len(PROGRAMS)
