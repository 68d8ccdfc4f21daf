"""Golden text of C++ kernels: what programs of prims become, without the head that all files share; of some, the host program too.

The text is the same on every processor but for products of float32, which are ours or the library's: both are here. After a wanted change:
`python packages/inductor/tests/unit/codegen/cpp/test_cpp_text.py` writes the files anew.
"""

import sys
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).parents[3]
sys.path.insert(0, str(TESTS))

import pytest  # noqa: E402
import torch  # noqa: E402
from prim_programs import build, weights  # noqa: E402
from tracework_inductor import InductorOptions  # noqa: E402
from tracework_inductor.codegen.cpp import declared, few_rows, table  # noqa: E402
from tracework_inductor.codegen.cpp.cores.attention import HEAD  # noqa: E402
from tracework_inductor.codegen.cpp.gemm import GEMM_KERNEL  # noqa: E402
from tracework_inductor.codegen.cpp.prefix import prefix  # noqa: E402
from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT  # noqa: E402
from tracework_inductor.codegen.renderer import KERNEL_NAME  # noqa: E402
from tracework_inductor.codegen.wrapper.python import host_source  # noqa: E402
from tracework_inductor.ir.scalar_ops import SCALAR_OPS  # noqa: E402
from tracework_inductor.lowering import cpu_products  # noqa: E402
from tracework_inductor.pipeline import plan_graph, render  # noqa: E402
from tracework_primops import FakeMode, SymbolTable, TensorSpec, prims, trace_bodies  # noqa: E402

GOLDEN = TESTS / "golden" / "cpp"
CPU = torch.device("cpu")
F32, F16, BF16, I64, U8, BOOL = torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool


def of(*sizes, dtype=F32, strides=None):
    return TensorSpec(dtype, CPU, sizes) if strides is None else TensorSpec(dtype, CPU, sizes, strides)


def softmax_of_channels(x):
    e = prims.exp(prims.sub(x, prims.amax(x, (1,), True)))
    return prims.div(e, prims.sum(e, (1,), True))


def channels_last(n, c, h, w):
    return of(n, c, h, w, strides=(h * w * c, 1, w * c, c))


def pointwise(x, y):
    return prims.mul(prims.tanh(prims.add(x, y)), 2.0)


def chain(x, y):
    return prims.add(prims.mul(x, prims.sigmoid(x)), y)


def mixed_dtypes(x, n, keep):
    scaled = prims.mul(prims.convert(n, F32), 0.1)
    return prims.where(keep, prims.add(x, scaled), -1.0), prims.add(n, 1), prims.convert(prims.gt(x, 0.0), U8)


def windowed_attention(q, k, v, slopes):
    def score(s, b, h, i, j, x):
        return s + x[h] * (j - i)

    given = [FakeMode(SymbolTable()).from_real(torch.empty(slopes.sizes))]
    bodies = trace_bodies(score, lambda s, b, h, i, j, x: (i >= j) & (i - j < 40), given, F32, CPU, None)
    return prims.attention(q, k, v, (slopes,), (), (), bodies.score, bodies.keep, 0.25, ())


def layer_norm(x, w, b, residual):
    x = prims.add(x, residual)
    var, mean = prims.var_mean(x, (1,), 0, True)
    y = prims.mul(prims.sub(x, mean), prims.rsqrt(prims.add(var, 1e-5)))
    return x, prims.add(prims.mul(y, w), b)


def image_norm(x):
    var, mean = prims.var_mean(x, (0, 2, 3), 0, True)
    return prims.mul(prims.sub(x, mean), prims.rsqrt(prims.add(var, 1e-5)))


def embedding(table, ids):
    return prims.mul(prims.index(table, (ids,)), 3.0)


def scattered(x, ids, g):
    return prims.index_add(x, 0, ids, g, 1)


def half_norm(x):
    wide = prims.convert(x, F32)
    scale = prims.rsqrt(prims.add(prims.div(prims.sum(prims.mul(wide, wide), (1,), True), 256.0), 1e-6))
    return prims.convert(prims.mul(wide, scale), BF16)


def cache_write(cache, row):
    return prims.copy_into(cache, prims.slice_scatter(cache, row, 0, 5, 6, 1))


def joined(x, y):
    return prims.cat((prims.neg(x), y), 1)


def steps_of_an_optimizer(step, *tensors):
    for x, gradient in zip(tensors[:4], tensors[4:], strict=True):
        prims.copy_into(x, prims.sub(x, prims.div(gradient, prims.exp(step))))
    return prims.neg(step)


def three_steps(x, w, v):
    """What a host program does: a library's call, loops over its result, another call, memory that is free again."""
    return prims.mm(weights(prims.mm(x, w)), v)


def symbolic():
    n = SymbolTable().new(100, "rows", 2, None)
    return of(n, 64), of(64)


PROGRAMS = {
    "pointwise": (pointwise, lambda: (of(33, 40), of(40))),
    "half": (chain, lambda: (of(20000, dtype=BF16), of(20000, dtype=BF16))),
    "half_and_float": (lambda x, y: prims.mul(prims.convert(x, F32), y), lambda: (of(20000, dtype=F16), of(20000))),
    "mixed_dtypes": (mixed_dtypes, lambda: (of(5, 7), of(5, 7, dtype=I64), of(7, dtype=BOOL))),
    "transposed": (lambda x: prims.contiguous(prims.permute(x, (1, 0)), (500, 1)), lambda: (of(500, 600),)),
    "row_sum": (lambda x: prims.sum(prims.exp(x), (1,), False), lambda: (of(64, 128),)),
    "long_sum": (lambda x, y: prims.sum(prims.mul(x, y), (0,), False), lambda: (of(1 << 20), of(1 << 20))),
    "column_sum": (lambda x: prims.sum(prims.sin(x), (0,), False), lambda: (of(300, 64),)),
    "softmax": (weights, lambda: (of(64, 1000),)),
    "layer_norm": (layer_norm, lambda: (of(64, 256), of(256), of(256), of(64, 256))),
    "image_norm": (image_norm, lambda: (channels_last(4, 16, 20, 20),)),
    "half_norm": (half_norm, lambda: (of(64, 256, dtype=BF16),)),
    "gather": (embedding, lambda: (of(50, 12), of(30, dtype=I64))),
    "scatter": (scattered, lambda: (of(50, 12), of(30, dtype=I64), of(30, 12))),
    "search": (lambda x, row: prims.bucketize(x, row), lambda: (of(1000), of(6))),
    "running_sum": (lambda x: prims.cumsum(x, 1), lambda: (of(30, 100),)),
    "argmax": (lambda x: prims.argmax(x, 1, False), lambda: (of(30, 100),)),
    "max_pool": (lambda x: prims.max_pool(x, (2, 2), (2, 2), (0, 0), (1, 1), False)[0], lambda: (of(2, 3, 8, 10),)),
    "average_of_channels": (
        lambda x: prims.avg_pool(x, (3, 3), (2, 2), (1, 1), False, False, None), lambda: (channels_last(2, 40, 8, 10),)
    ),
    "reflected": (lambda x: prims.reflection_pad(x, (2, 1, 1, 1)), lambda: (of(2, 3, 8, 20),)),
    "patches": (lambda x: prims.im2col(x, (3, 3), (1, 1), (1, 1), (1, 1)), lambda: (of(2, 3, 8, 10),)),
    "softmax_of_channels": (softmax_of_channels, lambda: (of(8, 5, 32, 40),)),
    "joined": (joined, lambda: (of(40, 60), of(40, 30))),
    "dynamic_rows": (pointwise, symbolic),
    "attention": (windowed_attention, lambda: (*(of(2, heads, 200, 16, dtype=BF16) for heads in (4, 2, 2)), of(4))),
    "costly_once": (lambda x, y: prims.mul(x, prims.pow(y, 0.3)), lambda: (of(40, 60), of(40, 1))),
    "written_cache": (cache_write, lambda: (of(16, 32), of(1, 32))),
}  # fmt: skip
HOSTS = {
    "host": (three_steps, lambda: (of(64, 32), of(32, 128), of(128, 48)), False),
    "host_own_products": (three_steps, lambda: (of(256, 64), of(64, 128), of(128, 96)), True),
    "table": (
        steps_of_an_optimizer,
        lambda: (of(), *(of(n, 8) for n in (2, 3, 5, 700)), *(of(n, 8) for n in (2, 3, 5, 700))),
        False,
    ),
    "product_of_few_rows": (lambda x, w: prims.relu(prims.mm(x, w)), lambda: (of(2, 512), of(512, 512)), True),
}
"""Programs of which the host program is kept -> whether the processor is one where our products of float32 are the faster ones."""


def rendered(program, specs, own=False):
    """The host program, and the kernels' text."""
    options = InductorOptions()
    with mock.patch.object(cpu_products, "has_own_products", lambda: own):
        graph = build(program, [None] * len(specs), list(specs))
        host, kernels, _ = render(plan_graph(graph, options), options)
    (source,) = {k.source for k in kernels}
    return host_source(host, kernels), source.removeprefix(prefix() + declared())


def text_of(name):
    if name in PROGRAMS:
        program, specs = PROGRAMS[name]
        return rendered(program, specs())[1].replace(HEAD, "/* the head: cores/attention.py */\n")
    program, specs, own = HOSTS[name]
    host, kernels = rendered(program, specs(), own)
    kernels = kernels.replace(few_rows.HEAD, "/* the head: few_rows.py */\n").replace(table.HEAD, "/* the head: table.py */")
    return f"{host}\n\n/*** kernels ***/\n{kernels.replace(GEMM_KERNEL.source.replace(KERNEL_NAME, 'gemm'), '/* the product: gemm.py */')}"


@pytest.mark.parametrize("name", [*PROGRAMS, *HOSTS])
def test_golden(name):
    assert text_of(name) == (GOLDEN / f"{name}.txt").read_text()


def test_no_file_is_left_over():
    assert {path.stem for path in GOLDEN.iterdir()} == {*PROGRAMS, *HOSTS}


def test_every_scalar_op_has_a_text():
    assert set(SCALAR_OPS) <= set(CPP_TEXT)


if __name__ == "__main__":
    for one in [*PROGRAMS, *HOSTS]:
        (GOLDEN / f"{one}.txt").write_text(text_of(one))
