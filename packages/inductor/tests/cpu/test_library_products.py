"""Library calls by torch's C functions: the bits of torch's own call, whatever the layout, and what happens where they cannot be used."""

import ctypes
import threading

import pytest
import torch
import tracework_runtime as runtime
from prim_programs import build, overload
from torch.utils._python_dispatch import TorchDispatchMode
from tracework_inductor import compile_graph
from tracework_inductor.lowering import cpu_products
from tracework_primops import SymbolTable, TensorSpec
from tracework_primops import prims as p
from tracework_runtime.host import library, program
from tracework_runtime.host.lines import Call

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.complex64)


@pytest.fixture(autouse=True)
def by_the_library(monkeypatch):
    monkeypatch.setattr(cpu_products, "has_own_products", lambda: False)


def values(dtype, *sizes):
    made = torch.Generator().manual_seed(sum(sizes))
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(-4, 5, sizes, generator=made).to(dtype)
    return torch.randn(sizes, generator=made).to(dtype)


def plain(t):
    return t


def turned(t):
    return t.mT.contiguous().mT


def inside(t):
    """A part of a larger tensor."""
    outer = t.new_empty([s + 3 for s in t.shape])
    part = outer[tuple(slice(2, 2 + s) for s in t.shape)]
    return part.copy_(t)


PRODUCTS = {
    "mm": (lambda a, b: p.mm(a, b), ((5, 7), (7, 3))),
    "mm of nothing": (lambda a, b: p.mm(a, b), ((5, 0), (0, 3))),
    "bmm": (lambda a, b: p.bmm(a, b), ((2, 5, 7), (2, 7, 3))),
    "addmm, row": (lambda c, a, b: p.addmm(c, a, b), ((3,), (5, 7), (7, 3))),
    "addmm, scaled": (lambda c, a, b: p.addmm(c, a, b, beta=2, alpha=3), ((5, 3), (5, 7), (7, 3))),
    "baddbmm": (lambda c, a, b: p.baddbmm(c, a, b, beta=2), ((2, 5, 3), (2, 5, 7), (2, 7, 3))),
}


def both(fn, given):
    """The artifact, and what it gives with its lines and as Python."""
    artifact = compile_graph(build(fn, given))
    ways = [runtime.load(a, check_inputs=False) for a in (artifact, artifact.replace(host_lines=()))]
    return artifact, *(way(list(given)) for way in ways)


def product_lines(artifact):
    return [line for line in artifact.host_lines if isinstance(line, Call) and line.native]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", PRODUCTS)
def test_bits_of_every_product_and_dtype(name, dtype):
    fn, sizes = PRODUCTS[name]
    for layout in (plain, turned, inside):
        given = [layout(values(dtype, *s)) if len(s) > 1 else values(dtype, *s) for s in sizes]
        artifact, got, wanted = both(fn, given)
        assert all(map(torch.equal, got, wanted))
        assert got[0]._version == wanted[0]._version == 0
        if dtype is torch.float32:
            assert len(product_lines(artifact)) == 1
            assert artifact.externs == {f"aten::{name.partition(',')[0].partition(' ')[0]}"}


aten = torch.ops.aten
FLASH = aten._scaled_dot_product_flash_attention_for_cpu


def spec_of(t, *sizes, strides=None, dtype=None):
    return TensorSpec(dtype or t.spec.dtype, t.spec.device, sizes or t.spec.sizes, strides)


def convolution(x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1), turned=False, out=(0, 0), groups=1):
    return p.convolution(x, w, b, stride, padding, dilation, turned, out, groups)


def attention(q, k, v, scale=None, causal=False):
    rows = spec_of(q, *q.spec.sizes)
    sums = spec_of(q, 2, 3, 5, strides=(15, 1, 3), dtype=torch.float32)
    return overload(FLASH.default, (q, k, v, 0.0, causal), rows, sums, scale=scale)


def images(t):
    return t.contiguous(memory_format=torch.channels_last)


def both_of_sort(x):
    return p.sort(x, 1, True, True)


LIBRARY = {
    "convolution": (convolution, ((2, 4, 9, 7), (6, 4, 3, 3), (6,)), "convolution"),
    "no bias": (convolution, ((2, 4, 9, 7), (6, 4, 3, 3)), "convolution"),
    "strided, padded, in groups": (
        lambda x, w: convolution(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        ((1, 4, 9, 7), (6, 2, 3, 3)),
        "convolution",
    ),
    "transposed": (
        lambda x, w: convolution(x, w, stride=(2, 2), turned=True, out=(1, 0)),
        ((2, 4, 5, 3), (4, 3, 3, 3)),
        "convolution",
    ),
    "attention": (attention, ((2, 3, 17, 8),) * 3, "_scaled_dot_product_flash_attention_for_cpu"),
    "attention, scaled": (
        lambda *t: attention(*t, 0.25, True),
        ((2, 3, 17, 8),) * 3,
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    "topk": (
        lambda x: overload(aten.topk.default, (x, 3), spec_of(x, 4, 3), spec_of(x, 4, 3, dtype=torch.int64)),
        ((4, 9),),
        "topk",
    ),
    "of a result": (lambda x, w: p.tanh(convolution(p.tanh(x), w)), ((2, 4, 9, 7), (6, 4, 3, 3)), "convolution"),
    "two in turn": (lambda x, w: convolution(convolution(x, w), w), ((2, 4, 9, 9), (4, 4, 3, 3)), "convolution"),
}
"""A program, sizes of its inputs, and torch's C function that does it."""


def inside_of(fn):
    """The program, whose results a kernel reads into other memory: what is returned is made by Python."""

    def twice(value):
        return p.cat((value, p.neg(value)), 0)

    def program_of(*given):
        made = fn(*given)
        return tuple(map(twice, made)) if isinstance(made, tuple) else twice(made)

    return program_of


def made_natively(monkeypatch):
    """The calls that programs, from here on, make by C functions."""
    made, native = [], program._Assembler._native
    monkeypatch.setattr(program._Assembler, "_native", lambda self, call: made.append(call.function) or native(self, call))
    return made


@pytest.mark.parametrize("layout", [plain, images], ids=["rows", "channels last"])
@pytest.mark.parametrize("name", LIBRARY)
def test_bits_and_strides_of_library_calls(name, layout, monkeypatch):
    fn, sizes, function = LIBRARY[name]
    is_image = function == "convolution"  # attention wants rows
    given = [layout(values(torch.float32, *s)) if len(s) == 4 and is_image else values(torch.float32, *s) for s in sizes]
    made = made_natively(monkeypatch)
    artifact, got, wanted = both(inside_of(fn), given)
    assert {line.native.function for line in product_lines(artifact)} == {function} == set(made)
    again = runtime.load(artifact, check_inputs=False)
    monkeypatch.setattr(program._Late, "__call__", lambda *args: pytest.fail("by Python"))
    for result in (got, again(list(given)), again(list(given))):
        for mine, theirs in zip(result, wanted, strict=True):
            assert torch.equal(mine, theirs) and mine.stride() == theirs.stride() and mine.dtype == theirs.dtype
            assert mine._version == 0 and type(mine) is torch.Tensor


def test_what_is_returned_is_made_by_python(monkeypatch):
    """So that a recording can say where."""
    made = made_natively(monkeypatch)
    given = [values(torch.float32, *s) for s in ((2, 4, 9, 9), (4, 4, 3, 3))]
    _, got, wanted = both(LIBRARY["two in turn"][0], given)
    assert made == ["convolution"] and torch.equal(got[0], wanted[0])


def test_a_library_that_gives_another_layout_is_asked_by_python():
    """Results that differ from what kernels read are copied, as those of other calls are."""
    given = [values(torch.float32, 2, 3, 17, 8) for _ in range(3)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*given).exp()
    for strides in ((408, 136, 8, 1), (408, 8, 24, 1)):

        def program(q, k, v, strides=strides):
            return p.exp(overload(FLASH.default, (q, k, v), spec_of(q, *q.spec.sizes, strides=strides), spec_of(q, 2, 3, 17)))

        call = runtime.load(compile_graph(build(program, given)))
        for _ in range(3):
            torch.testing.assert_close(call(list(given))[0], wanted)


def test_sizes_that_are_symbols():
    rows = SymbolTable().new(5, "rows", 2, None)
    given = [values(torch.float32, 5, 7), values(torch.float32, 7, 3)]
    specs = [TensorSpec(torch.float32, torch.device("cpu"), sizes) for sizes in ((rows, 7), (7, 3))]
    artifact = compile_graph(build(lambda a, b: p.tanh(p.mm(a, b)), given, specs))
    assert len(product_lines(artifact)) == 1
    call = runtime.load(artifact).call
    for n in (5, 2, 9, 5, 11, 400):
        a = values(torch.float32, n, 7)
        torch.testing.assert_close(call([a, given[1]])[0], torch.tanh(a @ given[1]))


def chain(x, w):
    """Two products, of a result of a kernel and of a turned input."""
    return p.mm(p.tanh(p.mm(x, p.permute(w, (1, 0)))), w)


def loaded():
    given = [values(torch.float32, 8, 8), values(torch.float32, 8, 8)]
    artifact = compile_graph(build(chain, given))
    assert len(product_lines(artifact)) == 2
    return artifact, given, torch.tanh(given[0] @ given[1].t()) @ given[1]


def test_who_looks_at_operators_sees_them():
    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    artifact, given, wanted = loaded()
    call = runtime.load(artifact).call
    call(list(given))
    with Counted():
        (got,) = call(list(given))
    assert seen.count("aten.mm.out") == 2
    torch.testing.assert_close(got, wanted)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(list(given))
    assert next(e.count for e in profile.key_averages() if e.key == "aten::mm") == 2


@pytest.mark.parametrize("gone", ["address", "dtype_code"])
def test_where_torch_has_no_such_function(gone, monkeypatch):
    monkeypatch.setattr(library, gone, {"address": lambda *args: 0, "dtype_code": lambda dtype: None}[gone])
    artifact, given, wanted = loaded()
    torch.testing.assert_close(runtime.load(artifact)(list(given))[0], wanted)


def test_a_function_that_fails_is_tried_as_torch_does_it(monkeypatch):
    asked = []
    fails = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *tensors: asked.append(tensors) or 1)
    monkeypatch.setattr(library, "address", lambda *args: ctypes.cast(fails, ctypes.c_void_p).value)
    artifact, given, wanted = loaded()
    call = runtime.load(artifact)
    for _ in range(2):
        torch.testing.assert_close(call(list(given))[0], wanted)
    assert len(asked) == 4


def test_inputs_move_and_end():
    artifact, given, _ = loaded()
    call = runtime.load(artifact).call
    for n in range(20):
        x, w = given[0] + n, given[1] * (n % 3)
        got = call([x, w])[0]
        torch.testing.assert_close(got, torch.tanh(x @ w.t()) @ w)
        del x, w


def test_threads():
    artifact, given, _ = loaded()
    call = runtime.load(artifact).call
    wrong = []

    def work(n):
        x, w = given[0] + n, given[1] - n
        wanted = call([x, w])[0]
        for k in range(200):
            if not torch.equal(call([x.clone() if k % 2 else x, w])[0], wanted):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
