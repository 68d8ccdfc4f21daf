"""Large products in tiles: what the core is given, what is fused with it, and its values, through Triton's interpreter, against float64."""

import dataclasses
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path.insert(0, str(TESTS))

import pytest  # noqa: E402
import torch  # noqa: E402

triton_interpreter = pytest.importorskip("triton_interpreter", reason="triton is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from prim_programs import build as build_graph  # noqa: E402
from product_programs import (  # noqa: E402
    BF16,
    F16,
    F32,
    check,
    dequantised,
    four_bits,
    in_float64,
    linear,
    matrix,
    silu,
    turned,
    wide,
)
from tracework_inductor import InductorOptions, compile_plan, lower, pipeline, plan_graph, schedule  # noqa: E402
from tracework_inductor.autotune.book import Book, Row, triton_version  # noqa: E402
from tracework_inductor.autotune.cost import DEVICES, Calibration, Shares  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton.config import LIMITS, Epilogue, TileConfig, tile_configs  # noqa: E402
from tracework_inductor.codegen.triton.cores import tiles  # noqa: E402
from tracework_inductor.codegen.triton.cores.rectangles import rectangle  # noqa: E402
from tracework_inductor.codegen.wrapper.lines import host_program  # noqa: E402
from tracework_inductor.codegen.wrapper.python import host_source  # noqa: E402
from tracework_inductor.decisions.products import question  # noqa: E402
from tracework_inductor.ir.body import Axis  # noqa: E402
from tracework_inductor.ir.index import floordiv, symbol  # noqa: E402
from tracework_inductor.lowering import product_pieces, tile_products  # noqa: E402
from tracework_inductor.product_costs import FEW_CHANNELS, LARGE_CONVOLUTION, LIMITED_BY_BYTES  # noqa: E402
from tracework_inductor.schedule.choice import Answer, every  # noqa: E402
from tracework_inductor.schedule.plan import ExternKernel, LoopKernel  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from tracework_primops.spec import SizeSpec  # noqa: E402
from tracework_runtime import RuntimeOptions, Store  # noqa: E402
from tracework_runtime.build import triton as build  # noqa: E402
from triton_programs import graph_of  # noqa: E402

CUDA = torch.device("cuda", 0)
OPTIONS = InductorOptions(products="tiles")
SMALL = TileConfig(16, 32, 16, 2, 2, band=2)
"""So that small matrices have several tiles and steps."""


def planned(program, *inputs, graph=None, choose=every):
    graph = graph or graph_of(program, *inputs, device=CUDA)
    return schedule(lower(graph, OPTIONS), OPTIONS, TritonRenderer().capabilities, choose)


def cores(plan):
    return [k for k in plan.kernels if isinstance(k, LoopKernel) and k.core]


def run(plan, inputs, folder, config=SMALL):
    """Results, and the rendered cores."""
    renderer = TritonRenderer()
    kernels = {k.name: renderer.render(k) for k in plan.kernels if not isinstance(k, ExternKernel)}
    kernels |= {k.name: renderer.render(dataclasses.replace(k, config=config.record())) for k in cores(plan)}
    host = host_source(host_program(plan, {name: name for name in kernels}), ())
    found = triton_interpreter.host_call(host.replace("gpu_workspace", "workspace"), kernels, folder)
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    return found(given), [kernels[k.name] for k in cores(plan)]


def gelu(x):
    return prims.mul(prims.mul(x, 0.5), prims.add(prims.erf(prims.mul(x, 0.7071067811865476)), 1.0))


def scaled_rows(x, scale, weight):
    """What a norm leaves for the product: rows scaled by what is known, columns by a weight."""
    return prims.mul(prims.convert(prims.mul(prims.convert(x, F32), scale), x.dtype), weight)


def heads(x, count):
    """(rows, count * size) as (count, rows, size), in memory."""
    rows, columns = x.sizes
    size = columns // count
    return prims.contiguous(prims.permute(prims.reshape(x, (rows, count, size)), (1, 0, 2)), (rows * size, size, 1))


PROGRAMS = {
    "mm": (prims.mm, lambda: (matrix(48, 64), matrix(64, 96)), torch.matmul, 1),
    "edges": (prims.mm, lambda: (matrix(37, 53), matrix(53, 71)), torch.matmul, 1),
    "inner of two": (prims.mm, lambda: (matrix(20, 2), matrix(2, 40)), torch.matmul, 1),
    "float16": (prims.mm, lambda: (matrix(33, 48, dtype=F16), matrix(48, 40, dtype=F16)), torch.matmul, 1),
    "float32": (prims.mm, lambda: (matrix(33, 50, dtype=F32), matrix(50, 40, dtype=F32)), torch.matmul, 4),
    "turned": (
        lambda a, b: prims.mm(turned(a), turned(b)), lambda: (matrix(40, 33), matrix(50, 40)), lambda a, b: a.T @ b.T, 1,
    ),
    "strided": (
        lambda x, w: linear(prims.slice(x, 1, 0, 64, 1), prims.slice(w, 1, 1, 129, 2)),
        lambda: (matrix(24, 80), matrix(40, 130)),
        lambda x, w: x[:, :64] @ w[:, 1:129:2].T,
        1,
    ),
    "aligned edges": (
        lambda a, b: prims.mm(a, turned(b)), lambda: (matrix(37, 56), matrix(72, 56)), lambda a, b: a @ b.T, 1,
    ),
    "bias": (
        lambda x, w, b: prims.addmm(b, x, turned(w)),
        lambda: (matrix(32, 64), matrix(48, 64), matrix(48)),
        lambda x, w, b: x @ w.T + b,
        1,
    ),
    "bias, scaled": (
        lambda x, w, b: prims.addmm(b, x, turned(w), beta=0.5, alpha=2),
        lambda: (matrix(32, 64, dtype=F32), matrix(48, 64, dtype=F32), matrix(32, 48, dtype=F32)),
        lambda x, w, b: 0.5 * b + 2 * (x @ w.T),
        4,
    ),
    "bias, activation": (
        lambda x, w, b: gelu(prims.addmm(b, x, turned(w))),
        lambda: (matrix(30, 64), matrix(48, 64), matrix(48)),
        lambda x, w, b: torch.nn.functional.gelu(x @ w.T + b),
        2,
    ),
    "residual, two results": (
        lambda x, w, h: (lambda y: (y, prims.convert(silu(y), F32)))(prims.add(h, linear(x, w))),
        lambda: (matrix(32, 64), matrix(40, 64), matrix(32, 40)),
        lambda x, w, h: (h + x @ w.T, torch.nn.functional.silu(h + x @ w.T)),
        2,
    ),
    "heads": (
        lambda x, w: heads(linear(x, w), 3),
        lambda: (matrix(20, 64), matrix(48, 64)),
        lambda x, w: (x @ w.T).unflatten(1, (3, 16)).transpose(0, 1),
        1,
    ),
    "gate": (
        lambda x, w, g: prims.mul(silu(g), linear(x, w)),
        lambda: (matrix(32, 64), matrix(40, 64), matrix(32, 40)),
        lambda x, w, g: torch.nn.functional.silu(g) * (x @ w.T),
        2,
    ),
    "int8": (
        lambda x, w, s: linear(x, dequantised(w, s, x.dtype)),
        lambda: (matrix(72, 64), matrix(40, 64, dtype=torch.int8), matrix(40)),
        lambda x, w, s: x @ (w.double() * s[:, None]).T,
        2,
    ),
    "int8, scale along the sum": (
        lambda x, w, s: linear(x, prims.mul(prims.convert(w, x.dtype), s)),
        lambda: (matrix(72, 64), matrix(40, 64, dtype=torch.int8), matrix(64)),
        lambda x, w, s: x @ (w.double() * s).T,
        2,
    ),
    "int4": (
        lambda x, p, s: linear(x, four_bits(p, s, x.dtype)),
        lambda: (matrix(72, 64), matrix(40, 32, dtype=torch.uint8), matrix(40, 4)),
        lambda x, p, s: x @ in_float64(p, s, -1).T,
        2,
    ),
    "rows scaled": (
        lambda x, s, n, w: linear(scaled_rows(x, s, n), w),
        lambda: (matrix(40, 256), torch.rand(40, 1), matrix(256), matrix(40, 256)),
        lambda x, s, n, w: (x * s * n) @ w.T,
        2,
    ),
    "shifted past the end": (
        lambda x, w: linear(prims.add(x, 1.0), w), lambda: (matrix(40, 70), matrix(40, 70)), lambda x, w: (x + 1) @ w.T, 2,
    ),
    "batches": (
        lambda a, b: prims.bmm(a, prims.permute(b, (0, 2, 1))),
        lambda: (matrix(3, 20, 40), matrix(3, 33, 40)),
        lambda a, b: a @ b.mT,
        1,
    ),
    "batches, bias": (
        lambda a, b, c: prims.baddbmm(c, a, b, alpha=0.5),
        lambda: (matrix(3, 20, 40, dtype=F16), matrix(3, 40, 33, dtype=F16), matrix(3, 1, 33, dtype=F16)),
        lambda a, b, c: c + 0.5 * (a @ b),
        1,
    ),
    "batches of two kinds": (
        lambda a, b: prims.bmm(prims.reshape(prims.permute(a, (1, 2, 0, 3)), (6, 20, 16)), b),
        lambda: (matrix(20, 2, 3, 16), matrix(6, 16, 40)),
        lambda a, b: a.permute(1, 2, 0, 3).reshape(6, 20, 16) @ b,
        1,
    ),
    "batches of the same matrix": (
        lambda a, b: prims.bmm(a, prims.expand(b, (3, 40, 33))),
        lambda: (matrix(3, 20, 40), matrix(1, 40, 33)),
        lambda a, b: a @ b,
        1,
    ),
}  # fmt: skip
"""name -> (program, inputs, the same in float64, roundings that it does)."""

FORMS = {
    "tiles": SMALL,
    "split": dataclasses.replace(SMALL, parts=2),
    "persistent": dataclasses.replace(SMALL, persistent=True),
    "described": dataclasses.replace(SMALL, descriptors=True, persistent=True),
    "described, in slices": dataclasses.replace(SMALL, descriptors=True, persistent=True, slices=2),
    "in slices": dataclasses.replace(SMALL, columns=64, slices=4),
}


WINDOWS = {
    "3x3": ((16, 3, 3), 1, 1, 1),
    "strided": ((16, 3, 3), 2, 0, 1),
    "dilated": ((16, 5, 3), 1, 2, 2),
    "one tap": ((16, 1, 1), 1, 0, 1),
    "one tap, strided": ((16, 1, 1), 2, 1, 1),
    "one tap, few channels": ((3, 1, 1), 1, 0, 1),
    "odd channels": ((13, 3, 3), 1, 1, 1),
    "along a line": ((16, 5), 2, 2, 1),
    "in space": ((16, 2, 3, 2), 1, 1, 1),
}
"""name -> (channels and window), stride, padding, dilation."""

FEW = {
    "first of a network": ((3, 7, 7), 2, 3, 1),
    "3x3": ((3, 3, 3), 1, 1, 1),
    "whole pixels": ((4, 3, 3), 1, 0, 1),
    "patches": ((3, 4, 4), 4, 0, 1),
    "one channel": ((1, 3, 3), 1, 1, 1),
    "five channels": ((5, 3, 3), 2, 1, 1),
    "dilated": ((3, 5, 3), 1, 2, 2),
    "border wider than the window": ((2, 3, 2), 1, 4, 1),
    "steps past the window": ((3, 2, 2), 3, 0, 1),
    "along a line": ((3, 5), 2, 2, 1),
    "along a line, dilated": ((2, 3), 1, 2, 2),
    "in space": ((3, 3, 2, 3), 1, 1, 1),
}
"""The same of convolutions whose images are copied first, with whole pixels."""

IMAGES = {1: (31,), 2: (9, 11), 3: (3, 4, 5)}
"""Dimensions -> sizes."""
MEMORY = {4: torch.channels_last, 5: torch.channels_last_3d}


def convolved(settings, last, images=2, columns=20, dtype=BF16):
    """A program with the bias, an activation and another image in the same kernel, its inputs, and the result in float64."""
    torch.manual_seed(0)
    (channels, *window), stride, padding, dilation = settings
    memory = MEMORY.get(2 + len(window), torch.contiguous_format) if last else torch.contiguous_format
    sizes = (images, *IMAGES[len(window)]), (columns, *window)
    x, w = (matrix(n, channels, *size, dtype=dtype).to(memory_format=memory) for n, *size in sizes)
    b, steps, dims = matrix(columns, dtype=dtype), (stride, padding, dilation), len(window)
    reference = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[dims - 1]
    wanted = reference(x.double(), w.double(), b.double(), *steps)
    other = torch.randn(wanted.shape).to(dtype).to(memory_format=memory)

    def program(x, w, b, other):
        found = prims.convolution(x, w, b, *((n,) * dims for n in steps), False, (0,) * dims, 1)
        return prims.relu(prims.add(found, other))

    return program, (x, w, b, other), torch.relu(wanted + other.double())


@pytest.mark.parametrize("last", (True, False), ids=("channels last", "row-major"))
@pytest.mark.parametrize("name", WINDOWS)
def test_convolutions(name, last, tmp_path):
    program, inputs, wanted = convolved(WINDOWS[name], last)
    plan = planned(program, *inputs)
    assert len(plan.kernels) == 1 == len(cores(plan))
    for config in FORMS.values() if name == "odd channels" else (SMALL,):
        (found,), _ = run(plan, inputs, tmp_path, config)
        assert found.stride() == inputs[-1].stride()
        check(found, wanted, BF16, 1)


@pytest.mark.parametrize("last", (True, False), ids=("channels last", "row-major"))
@pytest.mark.parametrize("name", FEW)
def test_convolutions_of_few_channels(name, last, tmp_path):
    """No place of an image is tested as it is read, and pixels are read whole."""
    program, inputs, wanted = convolved(FEW[name], last)
    plan = planned(program, *inputs)
    (core,) = cores(plan)
    assert not any(i.op == "masked" or i.op == "where" for i in core.passes[0].body.instructions)
    assert not any(isinstance(k, ExternKernel) for k in plan.kernels)
    for config in FORMS.values() if name == "first of a network" else (SMALL,):
        (found,), _ = run(plan, inputs, tmp_path, config)
        assert found.stride() == inputs[-1].stride() or inputs[0].shape[1] == 1
        check(found, wanted, BF16, 1)


@pytest.mark.parametrize(
    "dtype, names", ((F32, ("one channel", "3x3", "five channels")), (F16, ("3x3",))), ids=("float32", "float16")
)
def test_few_channels_of_other_dtypes(dtype, names, tmp_path):
    """Of float32, pixels of one and three channels are filled up to 8 and 16 bytes, and those of five are read as they lie."""
    for name in names:
        program, inputs, wanted = convolved(FEW[name], True, dtype=dtype)
        plan = planned(program, *inputs)
        (core,) = cores(plan)
        copied = any(i.op == "where" for i in core.passes[0].body.instructions)
        assert copied == (name == "five channels")
        (found,), _ = run(plan, inputs, tmp_path)
        check(found, wanted, dtype, 4)


def test_borders_and_channels_of_zeros_keep_what_is_infinite(tmp_path):
    """What is no number reaches the results that read it, and no other ones."""
    program, (x, w, b, other), _ = convolved(FEW["first of a network"], True)
    x[0, 1, 4, 5] = float("inf")
    plan = planned(program, x, w, b, other)
    (found,), _ = run(plan, (x, w, b, other), tmp_path)
    wanted = torch.relu(torch.nn.functional.conv2d(x.double(), w.double(), b.double(), 2, 3) + other.double())
    assert torch.equal(found.isfinite(), wanted.isfinite()) and not found.isfinite().all()


def test_what_few_channels_are_computed_from_is_computed_in_the_copy(tmp_path):
    program, (x, w, b, other), _ = convolved(FEW["3x3"], True)
    plan = planned(lambda x, *more: program(prims.mul(x, 0.5), *more), x, w, b, other)
    assert len(plan.kernels) <= 3 and len(cores(plan)) == 1
    (found,), _ = run(plan, (x, w, b, other), tmp_path)
    wanted = torch.nn.functional.conv2d(x.double() / 2, w.double(), b.double(), 1, 1) + other.double()
    check(found, torch.relu(wanted), BF16, 1)


CONVOLUTIONS_LEFT = {"depthwise": (8, 1, False), "groups": (8, 4, False), "transposed": (8, 8, True)}


@pytest.mark.parametrize("name", CONVOLUTIONS_LEFT)
def test_convolutions_left_to_the_library(name):
    channels, of_weight, transposed = CONVOLUTIONS_LEFT[name]
    groups = channels // of_weight
    x, w = matrix(1, channels, 9, 9), matrix(channels, of_weight, 3, 3)
    program = lambda x, w: prims.convolution(x, w, None, (1, 1), (1, 1), (1, 1), transposed, (0, 0), groups)
    assert not cores(planned(program, x, w))


def test_what_a_window_reads_is_computed_once():
    """Each element is read for each place of the window; of one tap it is computed as it is read."""
    x = matrix(2, 16, 9, 9).to(memory_format=torch.channels_last)
    for size, count in ((3, 2), (1, 1)):
        w = matrix(24, 16, size, size).to(memory_format=torch.channels_last)
        program = lambda x, w: prims.convolution(prims.relu(x), w, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
        plan = planned(program, x, w)
        assert len(plan.kernels) == count and len(cores(plan)) == 1


IN_ALL_FORMS = (
    "mm",
    "edges",
    "turned",
    "strided",
    "residual, two results",
    "gate",
    "int8",
    "batches, bias",
    "heads",
    "aligned edges",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, tmp_path):
    torch.manual_seed(0)
    program, make, reference, steps = PROGRAMS[name]
    inputs = make()
    plan = planned(program, *inputs)
    assert len(plan.kernels) == 1 == len(cores(plan))
    wanted = reference(*wide(inputs))
    for config in FORMS.values() if name in IN_ALL_FORMS else (SMALL,):
        found, _ = run(plan, inputs, tmp_path, config)
        for a, b in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            check(a.to(inputs[0].dtype), b, inputs[0].dtype, steps)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows, columns", ((37, 71), (33, 57), (16, 65), (47, 35)))
def test_nothing_is_touched_outside_of_memory(rows, columns, form, monkeypatch, tmp_path):
    """Rows of the result that begin anywhere, tiles over both edges: what is not masked lies in a buffer of the launch, its last byte too."""
    from triton.runtime.interpreter import InterpreterBuilder

    inputs = matrix(rows, 56), matrix(columns, 56), matrix(columns), matrix(rows, columns)
    plan = planned(lambda x, w, b, h: prims.add(h, prims.addmm(b, x, turned(w))), *inputs)
    config = FORMS[form]
    memory, workspace = [], []
    interpret = triton_interpreter.interpret

    def launched(rendered, tensors, *rest):
        memory[:] = ((t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in tensors)
        interpret(rendered, tensors, *rest)

    def checked(name, mask_at):
        plain = getattr(InterpreterBuilder, name)

        def access(self, pointers, *rest, **others):
            kept = pointers.data[rest[mask_at].data].astype("int64")
            size = pointers.get_element_ty().primitive_bitwidth // 8
            if size == F32.itemsize:  # what parts leave is the only memory of float32
                workspace.extend(kept.tolist())
            else:
                inside = [(kept >= start) & (kept <= start + count - size) for start, count in memory]
                assert sum(inside).all(), "outside of memory"
            return plain(self, pointers, *rest, **others)

        monkeypatch.setattr(InterpreterBuilder, name, access)

    checked("create_masked_load", 0)
    checked("create_masked_store", 1)
    monkeypatch.setattr(triton_interpreter, "interpret", launched)
    run(plan, inputs, tmp_path, config)
    assert memory and bool(workspace) == (config.parts > 1)
    assert max(workspace, default=0) - min(workspace, default=0) <= F32.itemsize * (config.parts * rows * columns)


SIZES = st.integers(2, 40)


@settings(deadline=None, max_examples=10, derandomize=True)
@given(rows=SIZES, columns=SIZES, inner=SIZES, turns=st.tuples(st.booleans(), st.booleans()), form=st.sampled_from(sorted(FORMS)))
def test_all_shapes(rows, columns, inner, turns, form, tmp_path_factory):
    torch.manual_seed(0)
    a, b = matrix(*((inner, rows) if turns[0] else (rows, inner))), matrix(*((columns, inner) if turns[1] else (inner, columns)))

    def program(a, b):
        return prims.relu(prims.mm(turned(a) if turns[0] else a, turned(b) if turns[1] else b))

    plan = planned(program, a, b)
    if not cores(plan):  # few rows are loops
        assert min(rows, columns) <= 8
        return
    (found,), _ = run(plan, (a, b), tmp_path_factory.getbasetemp(), FORMS[form])
    check(found, torch.relu((a.T if turns[0] else a).double() @ (b.T if turns[1] else b).double()), BF16, 1)


@pytest.mark.parametrize("form", FORMS)
def test_open_sizes(form, tmp_path):
    """Rows, and then all three sizes, that the launch tells."""
    torch.manual_seed(0)
    m, n, k = (symbol(name, 2, None) for name in ("s0", "s1", "s2"))
    a, b = matrix(50, 24), matrix(24, 40)
    for rows, columns, inner, told in ((m, 40, 24, (50,)), (m, n, k, (50, 40, 24))):
        specs = [TensorSpec(BF16, CUDA, (rows, inner), (inner, 1)), TensorSpec(BF16, CUDA, (inner, columns), (columns, 1))]
        specs += [SizeSpec(s) for s in (m, n, k)[: len(told)]]
        graph = build_graph(lambda a, b, *_: gelu(prims.mm(a, b)), [None] * len(specs), specs)
        (found,), (kernel,) = run(planned(None, graph=graph), (a, b, *told), tmp_path, FORMS[form])
        check(found, torch.nn.functional.gelu(a.double() @ b.double()), BF16, 2)
        assert "i64" in kernel.signature


LEFT = {
    "a row": (lambda x, w: linear(x, w), (matrix(1, 64), matrix(40, 64))),
    "float64": (linear, (matrix(32, 64).double(), matrix(40, 64).double())),
    "an inner dimension of one": (prims.mm, (matrix(32, 1), matrix(1, 40))),
    "what takes long again": (
        lambda x, w: linear(prims.sin(prims.exp(prims.tanh(x))), w), (matrix(32, 64), matrix(40, 64)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ("a row", "float64", "an inner dimension of one"))
def test_what_no_core_is_for(name):
    program, inputs = LEFT[name]
    assert not cores(planned(program, *inputs))


def test_what_takes_long_is_computed_once():
    program, inputs = LEFT["what takes long again"]
    plan = planned(program, *inputs)
    assert len(cores(plan)) == 1 and len(plan.kernels) == 2


def test_default_leaves_small_products_to_the_library():
    program, make, _, _ = PROGRAMS["bias, activation"]
    program = lower(graph_of(program, *make(), device=CUDA), InductorOptions())
    assert not program.products


def two_layers(x, w, b, v):
    return gelu(prims.addmm(b, gelu(linear(x, w)), v))


def test_the_choice_is_made_after_fusion(tmp_path):
    """Each way as it would be: the core with what is fused, the library with the kernels of what is not."""
    torch.manual_seed(0)
    inputs = matrix(32, 64), matrix(40, 64), matrix(48), matrix(40, 48)
    wanted = torch.nn.functional.gelu
    x, w, b, v = wide(inputs)
    expected = wanted(wanted(x @ w.T) @ v + b)
    seen = []

    def choose(choices):
        seen.append([(len(c.library), sorted(c.core.writes)) for c in choices])
        return Answer({choices[n].name: SMALL.record() for n in picked})

    for picked in ((), (0,), (1,), (0, 1)):
        plan = planned(two_layers, *inputs, choose=choose)
        assert len(cores(plan)) == len(picked) and len(plan.kernels) == 4 - len(picked)
        assert all(TileConfig.of(k.config) == SMALL for k in cores(plan))
        (found,), _ = run(plan, inputs, tmp_path)
        check(found, expected, BF16, 4)
    assert seen == [[(2, seen[0][0][1]), (2, seen[0][1][1])]] * 4


def test_rows_that_the_library_wants_padded(tmp_path):
    """The core writes the buffer that the library's call would, whose rows are longer than they need to be; a bias is added behind it."""
    torch.manual_seed(0)
    inputs = matrix(2048, 64), matrix(1001, 64), matrix(1001), matrix(1001, 2048)

    def program(x, w, b, v):
        return prims.mm(v, prims.relu(prims.addmm(b, x, turned(w)))), prims.mm(linear(x, w), v)

    graph = graph_of(program, *(torch.empty_like(t, device="meta") for t in inputs), device=CUDA)
    lowered = lower(graph, OPTIONS)
    assert any(b.layout.strides == (1008, 1) for b in lowered.buffers.values()) and len(lowered.products) == 4
    plan = planned(None, graph=graph)
    assert len(cores(plan)) == 4 == len(plan.kernels)


@pytest.mark.parametrize("name", ("mm", "bias"))
def test_products_that_the_library_computes_in_pieces(name, monkeypatch, tmp_path):
    """A core takes the place of all pieces, and of the copies between them; the library keeps them."""
    torch.manual_seed(0)
    monkeypatch.setattr(product_pieces, "LEAST_BYTES", 1)
    monkeypatch.setattr(product_pieces, "ROWS", 2)
    x, w, b = inputs = matrix(40, 64), matrix(37, 64), matrix(37)
    program = linear if name == "mm" else lambda x, w, b: prims.addmm(b, x, turned(w))
    wanted = x.double() @ w.double().T + (0 if name == "mm" else b.double())
    inputs = inputs[:2] if name == "mm" else inputs
    seen = []
    for ours in (False, True):
        plan = planned(program, *inputs, choose=lambda c: seen.append(c) or (every(c) if ours else Answer({})))
        (choice,) = seen[-1]
        assert sum(isinstance(k, ExternKernel) for k in choice.library) == 7
        assert len(cores(plan)) == ours and (len(plan.kernels) == 1) == ours
    (found,), _ = run(plan, inputs, tmp_path)
    assert found.is_contiguous()
    check(found, wanted, BF16, 1)


def test_configs_are_read_back():
    for config in tile_configs(2, 4096, 4096, 4096, (2, 2), 2, 90) + tile_configs(1, 64, 256, 8192, (4, 1), 4):
        assert TileConfig.of(json.loads(json.dumps(config.record()))) == config


LARGE = TileConfig(128, 256, 64, 8, 3, persistent=True, descriptors=True, slices=2)
SQUARE = TileConfig(128, 128, 64, 8, 4, persistent=True, descriptors=True)
ORDER = {
    "many tiles": ((16384, 3072, 768), Epilogue(), True, (LARGE, SQUARE, dataclasses.replace(LARGE, rows=256, columns=128))),
    "some tiles": ((4096, 1024, 4096), Epilogue(), True, (SQUARE, TileConfig(128, 256, 64, 8, 3))),
    "a tile each": ((2048, 1024, 2048), Epilogue(), True, (TileConfig(128, 128, 64, 4, 4),)),
    "functions": (
        (16384, 3072, 768),
        Epilogue(costly=True),
        True,
        (dataclasses.replace(SQUARE, num_warps=4, num_stages=3, slices=2, at_once=2), LARGE),
    ),
    "elsewhere": ((16384, 3072, 768), Epilogue(), False, (TileConfig(128, 256, 64, 8, 3, persistent=True),)),
}
"""name -> (rows, columns, inner), what follows, whether descriptors tell where the matrices are, the best guesses."""


@pytest.mark.parametrize("name", ORDER)
def test_order_of_configs(name):
    """That of measurements of bf16 on an H200; descriptors are for blocks that take several tiles."""
    sizes, after, described, wanted = ORDER[name]
    found = tile_configs(1, *sizes, (2, 2), 2, 90, after, described)
    assert tuple(found[: len(wanted)]) == wanted
    assert all(config.persistent and config.parts == 1 for config in found if config.descriptors)


def test_configs_where_bytes_are_the_limit():
    """Threads hold few elements, matrices are loaded again few times, and no step walks far past the end."""
    rows, columns, inner = 200704, 256, 64
    first, *others = found = tile_configs(1, rows, columns, inner, (2, 2), 2, 90, moved=2 * rows * (inner + 2 * columns))
    assert (
        first.rows * first.columns <= 64 * 32 * first.num_warps
        and first.rows >= 64 <= first.columns
        and (first.persistent or first.num_stages == 1)
    )
    large = tile_configs(1, rows, columns, inner, (2, 2), 2, 90)[0]
    assert large in others and large.rows * large.columns > first.rows * first.columns and len(set(found)) == len(found)
    assert {c.inner for c in tile_configs(1, 802816, 64, 196, (2, 2), 2, 90)} == {32}
    assert tile_configs(1, 802816, 16, 36, (2, 2), 2, 90)[0].columns == 16


def test_the_book_decides(monkeypatch, tmp_path):
    """The library stays where nothing is known of a product; a row of the book gives it to a core, with its config."""
    inputs, options = (matrix(32, 64), matrix(40, 64), matrix(48), matrix(40, 48)), InductorOptions()
    graph, rows = graph_of(two_layers, *inputs, device=CUDA), {}
    assert not cores(plan_graph(graph, options)) and "takes" not in plan_graph(graph, options).text()
    asked = []
    planned(None, graph=graph, choose=lambda found: asked.extend(found) or Answer({}))
    first = question(asked[0], DEVICES["H200"], "default")
    row = Row(first.problem.facts(), (first.candidates[3].replace(measured_us=1.0),), triton_version())
    rows[row.key] = row
    for module in (pipeline, tile_products):
        monkeypatch.setattr(module, "Book", lambda *args, **kwargs: Book(rows))
    monkeypatch.setattr(pipeline, "device", lambda index: DEVICES["H200"])
    plan = plan_graph(graph, options)
    (core,) = cores(plan)
    assert core.config == first.candidates[3].config
    assert plan.text().count("takes tiles") == 1 == plan.text().count("takes extern")
    ways = {lines[0].split()[1].strip(",") for lines in compile_plan(graph, plan, options).notes["choices"].values()}
    assert core.name in plan.choices and {"extern", "tiles"} <= ways


def on_meta(channels, columns, window, stride, padding, size=56, dtype=BF16):
    """A program of a convolution with what follows it, and its inputs, which are not there."""
    program, _, _ = convolved(((channels, window, window), stride, padding, 1), True)
    places = (size + 2 * padding - window) // stride + 1
    sizes = (64, channels, size, size), (columns, channels, window, window), (columns,), (64, columns, places, places)
    made = (torch.empty(n, dtype=dtype, device="meta") for n in sizes)
    return program, [t.to(memory_format=torch.channels_last) if t.ndim == 4 else t for t in made]


KINDS = {
    "first of a network": ((3, 64, 7, 2, 3, 224), FEW_CHANNELS),
    "expansion": ((64, 256, 1, 1, 0), LIMITED_BY_BYTES),
    "projection": ((512, 128, 1, 1, 0, 28), LIMITED_BY_BYTES),
    "many channels": ((2048, 2048, 1, 1, 0, 28), LARGE_CONVOLUTION),
    "3x3": ((64, 64, 3, 1, 1), LARGE_CONVOLUTION),
    "float32": ((64, 256, 1, 1, 0, 56, F32), "tiles"),
}
QUICK, SLOW = Shares(0.9, 0.9), Shares(0.4, 0.2)


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_convolutions_that_are_calibrated_are_predicted(name, monkeypatch):
    """The core is taken by its first guess where it is predicted to be quicker, with the copies that it reads; no other kind is looked at."""
    settings, kind = KINDS[name]
    program, inputs = on_meta(*settings)
    graph = graph_of(program, *inputs, device=CUDA)
    rows = {k: Calibration(QUICK, SLOW) for k in (FEW_CHANNELS, LIMITED_BY_BYTES, LARGE_CONVOLUTION)}

    def calibrated(rows):
        on = dataclasses.replace(DEVICES["H200"], calibrated=rows)
        monkeypatch.setattr(tile_products, "device", lambda index: on)
        monkeypatch.setattr(pipeline, "device", lambda index: on)

    for others in ({}, {k: row for k, row in rows.items() if k != kind}):
        calibrated(others)
        assert not lower(graph, InductorOptions()).products
    for row in (Calibration(QUICK, SLOW), Calibration(SLOW, QUICK)):
        calibrated({**rows, kind: row})
        plan = plan_graph(graph, InductorOptions())
        ((first, *_),) = plan.choices.values()
        assert first.reason == "predicted" and len(cores(plan)) == (row.core == QUICK)
        if row.core == QUICK:
            (core,) = cores(plan)
            assert core.config == tiles.configs(core, 90)[0].record()


def test_copies_are_a_cost_of_the_core():
    asked = []
    program, inputs = on_meta(*KINDS["first of a network"][0])
    planned(program, *inputs, choose=lambda found: asked.extend(found) or Answer({}))
    (choice,) = asked
    copied = {choice.core.layouts[name].sizes for k in choice.copies for name in k.writes}
    assert copied == {(64, 4, 229, 229), (64, 4, 7, 7)}
    on = dataclasses.replace(DEVICES["H200"], calibrated={FEW_CHANNELS: Calibration()})
    whole, alone = (
        question(c, on, "default").candidates[1].predicted_us for c in (choice, dataclasses.replace(choice, copies=()))
    )
    assert whole > alone + 10


def test_equal_products_are_one_problem():
    """Names and the rest of the program are no part of a problem; what is computed before and behind the product is."""
    asked = []

    def program(x, w, b, v):
        return gelu(linear(x, w)), gelu(linear(x, b)), silu(linear(x, v))

    inputs = matrix(32, 64), matrix(48, 64), matrix(48, 64), matrix(48, 64)
    planned(program, *inputs, choose=lambda found: asked.extend(found) or Answer({}))
    first, second, third = (question(c, DEVICES["H100"], "default").problem for c in asked)
    assert first == second != third and first.epilogue != third.epilogue and first.prologue == third.prologue
    assert dict(first.sizes) == {"z": 1, "y": 32, "x": 48, "r": 64} and first.dtypes == ("bfloat16",) * 3


def test_a_core_is_refused_with_its_reason(monkeypatch):
    from tracework_inductor.schedule import choice

    program, make, _, _ = PROGRAMS["bias, activation"]
    monkeypatch.setattr(choice, "matrix_product", lambda kernel: "there is none today")
    plan = planned(program, *make())
    assert not cores(plan) and "core: there is none today" in plan.text()


GOLDEN = {
    "product_in_tiles": ("bias, activation", (matrix(157, 283), matrix(331, 283), matrix(331)), SMALL),
    "product_in_tiles_split": ("int8", (matrix(176, 592), matrix(361, 592, dtype=torch.int8), matrix(361)), FORMS["split"]),
}
"""Sizes of their own: in which order an index is written goes by which of equal ones was first."""


def text_of(name):
    program, inputs, config = GOLDEN[name]
    (kernel,) = cores(planned(PROGRAMS[program][0], *inputs))
    rendered = TritonRenderer().render(dataclasses.replace(kernel, config=config.record()))
    return rendered.source + "\n".join(f"# {key}: {value}" for key, value in rendered.launch) + "\n"


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    assert text_of(name) == (TESTS / "golden" / "triton" / f"{name}.txt").read_text()


def frame_bytes(code):
    """Of a thread in memory, where its registers spill: the largest of the functions, as the cubin's records say."""
    start, (size, count, names) = struct.unpack_from("<Q", code, 0x28)[0], struct.unpack_from("<HHH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", code, start + n * size) for n in range(count)]
    texts, largest = sections[names][4], 0
    for name, _, _, _, at, length in sections:
        end = at + length if code[texts + name :].startswith(b".nv.info\0") else at
        while at < end:
            form, kind, value = struct.unpack_from("<BBH", code, at)
            at += 4
            if form == 4:
                if kind == 0x11:
                    largest = max(largest, struct.unpack_from("<II", code, at)[1])
                at += value
    return largest


SHAPES = {"large": (4096, 4096, 4096), "unaligned": (1000, 768, 50257), "split": (64, 256, 8192)}
"""(rows, columns, inner)."""


def with_gelu(m, n, k, dtype):
    """The kernel of a linear layer with its activation."""
    inputs = [torch.empty(size, dtype=dtype, device="meta") for size in ((m, k), (n, k), (n,))]
    (core,) = cores(planned(lambda x, w, b: gelu(prims.addmm(b, x, turned(w))), *inputs))
    return core


def of_images(*settings):
    """The kernel of a convolution with what follows it."""
    program, inputs = on_meta(*settings)
    (core,) = cores(planned(program, *inputs))
    return core


def plain(m, n, k, dtype):
    """The kernel of a linear layer."""
    (core,) = cores(planned(linear, *(torch.empty(size, dtype=dtype, device="meta") for size in ((m, k), (n, k)))))
    return core


def with_gate(m, n, k, dtype):
    """The kernel of a linear layer whose result a gate multiplies."""
    inputs = [torch.empty(size, dtype=dtype, device="meta") for size in ((m, k), (n, k), (m, n))]
    (core,) = cores(planned(lambda x, w, g: prims.mul(silu(g), linear(x, w)), *inputs))
    return core


def test_best_guesses_do_not_spill(tmp_path):
    """On two generations of GPUs, in both precisions."""
    renderer, jobs, shared = TritonRenderer(), [], []
    for (m, n, k), dtype in (*((sizes, BF16) for sizes in SHAPES.values()), (SHAPES["large"], F32)):
        for kernel in renderer.pack([("product", renderer.render(with_gelu(m, n, k, dtype)))]):
            for entry in kernel.launch["entries"]:
                for capability in (80, 90):
                    jobs.append(build.request(kernel, entry, kernel.launch["configs"][0], build.Variant(), capability))
    of_both = len(jobs)
    for make in (with_gelu, plain, with_gate):  # the larger tiles of the later one
        core = make(*SHAPES["large"], BF16)
        found = [c for c in tiles.configs(core, 90) if c.descriptors]
        for config in {(c.rows, c.columns, c.num_warps, c.slices): c for c in reversed(found[:9])}.values():
            (kernel,) = renderer.pack([("product", renderer.render(dataclasses.replace(core, config=config.record())))])
            jobs.append(build.request(kernel, "kernel", kernel.launch["configs"][0], build.Variant(), 90))
    for name in ("first of a network", "expansion", "projection"):
        core = of_images(*KINDS[name][0])
        for config in tiles.configs(core, 90)[:3]:
            (kernel,) = renderer.pack([("product", renderer.render(dataclasses.replace(core, config=config.record())))])
            jobs.append(build.request(kernel, "kernel", kernel.launch["configs"][0], build.Variant(), 90))
    cubins = build.build_all(jobs, RuntimeOptions(), Store(tmp_path / "cache"))
    for job, cubin in zip(jobs, cubins, strict=True):
        assert frame_bytes(cubin.code) == 0, (job["source"], job["capability"])
        shared.append(cubin.shared)
    assert max(shared[:of_both]) <= LIMITS[80][0] and max(shared) <= LIMITS[90][0]
    assert all(cubin.scratch_alignment <= 128 for cubin in cubins[of_both:])


PTX = """
import json, sys
from tracework_runtime.build.triton_worker import load_module
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

r = json.load(sys.stdin)
function = load_module(r["source"], 0)[r["entry"]]
signature = dict(r["arguments"]) | dict.fromkeys(r["constants"], "constexpr")
places = {name: n for n, name in enumerate(function.arg_names)}
attributes = {(places[name],): [["tt.divisibility", 16]] for name in r["aligned"]}
options = {"num_warps": r["num_warps"], "num_stages": r["num_stages"]}
source = ASTSource(function, signature, r["constants"], attributes)
print(triton.compile(source, target=GPUTarget("cuda", r["capability"], 32), options=options).asm["ptx"])
"""


TEXTS = {
    "sm_80": (80, TileConfig(128, 128, 64, 8, 3), ("mma.sync", "cp.async.cg.shared.global")),
    "sm_90": (90, TileConfig(128, 128, 64, 8, 3), ("wgmma.mma_async", "cp.async.cg.shared.global")),
    "descriptors": (
        90,
        TileConfig(128, 256, 64, 8, 3, descriptors=True, slices=2, persistent=True),
        ("wgmma.mma_async", "cp.async.bulk.tensor.2d.shared", "cp.async.bulk.tensor.2d.global", "tensormap.replace"),
    ),
}
"""form -> compute capability, config, what the PTX has."""


@pytest.mark.parametrize("name", TEXTS)
def test_takes_tensor_cores_and_copies_ahead(name, tmp_path):
    """What is loaded goes to the shared memory that tensor cores read, and is on its way while others are multiplied."""
    capability, config, instructions = TEXTS[name]
    renderer = TritonRenderer()
    core = dataclasses.replace(with_gelu(1024, 1024, 1024, BF16), config=config.record())
    (kernel,) = renderer.pack([("product", renderer.render(core))])
    request = build.request(kernel, "kernel", kernel.launch["configs"][0], build.Variant(), capability)
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PTX]
    found = subprocess.run(command, input=json.dumps(request), env=env, text=True, capture_output=True, timeout=200)
    assert found.returncode == 0, found.stderr
    loop = found.stdout
    assert all(instruction in loop for instruction in instructions) and ".local." not in loop
    assert ("cp.async.cg.shared.global" in loop) == (not config.descriptors)


PLACES = {
    "rows": ((64, 1), 0, 2, (0, 64, False)),
    "columns": ((1, 64), 0, 2, (0, 64, True)),
    "rows of a larger matrix": ((80, 1), 16, 2, (16, 80, False)),
    "rows that are not aligned": ((62, 1), 0, 2, None),
    "of four bytes": ((62 * 2, 1), 0, 4, (0, 124, False)),
    "place that is not aligned": ((64, 1), 1, 2, None),
    "every other element": ((128, 2), 0, 2, None),
    "one row again": ((0, 1), 0, 2, None),
    "backwards": ((-64, 1), 640, 2, None),
}
"""name -> strides, offset, bytes of an element, (offset, stride, turned) of the rectangle."""


@pytest.mark.parametrize("name", PLACES)
def test_rectangles(name):
    (down, across), offset, itemsize, wanted = PLACES[name]
    y, y0, y1, x = (symbol(n, 0, None) for n in ("y", "y0", "y1", "x"))
    columns = (Axis(x, 40),)
    assert rectangle(y * down + x * across + offset, ((Axis(y, 20),), columns), itemsize) == wanted
    # Two axes are one where the outer one goes on where the inner one ends.
    apart, together = (
        rectangle(y0 * step + y1 * down + x * across + offset, ((Axis(y0, 4), Axis(y1, 5)), columns), itemsize)
        for step in (5 * down + 8, 5 * down)
    )
    assert apart is None and together == wanted
    assert rectangle(floordiv(y, 2) * down + x * across, ((Axis(y, 20),), columns), itemsize) is None or down == 0


if __name__ == "__main__":
    for one in GOLDEN:
        (TESTS / "golden" / "triton" / f"{one}.txt").write_text(text_of(one))
