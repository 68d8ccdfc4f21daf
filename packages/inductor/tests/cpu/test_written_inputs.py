"""Writes to computed positions that end in an input: made there on a GPU, with eager's values in every order of reads and writes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
import torch

triton_interpreter = pytest.importorskip("triton_interpreter")
from prim_programs import build, overload  # noqa: E402
from tracework_inductor import InductorOptions, lower, plan_graph  # noqa: E402
from tracework_primops import TensorSpec, prims  # noqa: E402
from triton_programs import rendered  # noqa: E402

CUDA = torch.device("cuda", 0)
ROWS, NEW = 12, 3


def row(cache, at, new):
    """A cache's new row, and what is computed with it."""
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def before(cache, at, new):
    """The old value is read before, and kept."""
    total = prims.mul(cache, 2.0)
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, written), prims.add(total, written)


def after(cache, at, new):
    """The old value is read after the new one is there."""
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.add(prims.sum(written, (1,), False), prims.select(cache, 1, 0))
    return prims.copy_into(cache, written), total


def viewed(cache, at, new):
    """A view made before is read after."""
    view = prims.slice(cache, 1, 0, 4, 1)
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(prims.mul(prims.slice(written, 1, 0, 4, 1), view), (1,), False)
    return prims.copy_into(cache, written), total


def itself(cache, at, new):
    """Rows of the cache become other rows of it."""
    source = prims.add(prims.slice(cache, 1, 2, 2 + NEW, 1), new)
    written = prims.index_copy(cache, 1, at, source, False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def twice(cache, at, new):
    """Two writes, one after the other, the first one read in between."""
    first = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(first, (1,), False)
    second = prims.index_copy(first, 1, at, prims.mul(new, 3.0), False)
    return prims.copy_into(cache, second), prims.add(total, prims.select(second, 1, 1))


def between(cache, at, new):
    """The value between two writes is read after the second."""
    first = prims.index_copy(cache, 1, at, new, False)
    second = prims.index_copy(first, 1, at, prims.mul(new, 3.0), False)
    return prims.copy_into(cache, second), prims.add(first, second)


def given_out(cache, at, new):
    """The new value is a result as well, in memory of its own."""
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, written), written


def changed(cache, at, new):
    """What the input becomes is computed of what was written."""
    written = prims.index_copy(cache, 1, at, new, False)
    return prims.copy_into(cache, prims.add(written, 1.0)), prims.sum(written, (1,), False)


def put(cache, at, new):
    """By index_put."""
    written = prims.index_put(cache, (None, at), new, False)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def added(cache, at, new):
    """By index_add."""
    written = prims.index_add(cache, 1, at, new)
    return prims.copy_into(cache, written), prims.sum(written, (1,), False)


def library_after(cache, at, new):
    """What may raise comes after the write."""
    written = prims.index_copy(cache, 1, at, new, False)
    total = prims.sum(written, (1,), False)
    angle = overload(torch.ops.aten.logcumsumexp.default, (total, 0), total.spec)
    return prims.copy_into(cache, written), angle


IN_PLACE = {row: True, before: True, after: False, viewed: False, itself: False, twice: True, between: False, given_out: True}
IN_PLACE |= {changed: False, put: True, added: True, library_after: False}
SIZES = (2, ROWS, 4), (NEW,), (2, NEW, 4)
DTYPES = torch.float32, torch.int64, torch.float32


def specs(device, dtypes=DTYPES):
    return [TensorSpec(dtype, device, sizes) for dtype, sizes in zip(dtypes, SIZES, strict=True)]


def inputs():
    torch.manual_seed(0)
    return torch.randn(SIZES[0]), torch.tensor([1, 7, 4]), torch.randn(SIZES[2])


def copies(program, options=None):
    """Buffers as large as the cache that the graph of a program makes."""
    lowered = lower(build(program, [None] * 3, specs(CUDA)), options or InductorOptions())
    return [b for b in lowered.buffers.values() if b.kind in ("computed", "extern") and b.layout.sizes == SIZES[0]]


# The results of library calls are looked at, and here they do not come from a GPU.
@pytest.mark.parametrize("program", [p for p in IN_PLACE if p is not library_after], ids=lambda p: p.__name__)
def test_values(program, tmp_path):
    expected_inputs, given = inputs(), inputs()
    expected = build(program, [None] * 3, specs(torch.device("cpu"))).run(*expected_inputs)
    host, kernels = rendered(build(program, [None] * 3, specs(CUDA)))

    def launcher(kernel):
        def launch(*args):
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            triton_interpreter.interpret(kernel, tensors, args[len(tensors) :], tmp_path)

        return launch

    namespace = {name: launcher(kernel) for name, kernel in kernels.items()}
    exec(host, namespace)
    namespace["empty_cuda"] = namespace["empty_cpu"]
    value = namespace["call"](list(given))
    for a, e in zip((*given, *value), (*expected_inputs, *expected), strict=True):
        torch.testing.assert_close(a, e)
    assert value[1].data_ptr() != given[0].data_ptr()


@pytest.mark.parametrize("program", IN_PLACE, ids=lambda p: p.__name__)
def test_copies_of_the_whole(program):
    """None where the write is made in place, but for what is given out."""
    own = {before: 2, given_out: 1}.get(program, 0)
    assert (len(copies(program)) == own) == IN_PLACE[program]


def test_the_librarys_attention_refuses_no_data():
    """A prompt's rows are written in place as well."""

    def program(cache, at, new):
        written = prims.index_copy(cache, 1, at, new, False)
        x = prims.unsqueeze(written, 1)
        rows, seed = TensorSpec(torch.float32, CUDA, (2, 1, ROWS)), TensorSpec(torch.int64, CUDA, ())
        call = torch.ops.aten._scaled_dot_product_efficient_attention.default
        found = overload(call, (x, x, x, None, False), x.spec, rows, seed, seed)
        return prims.copy_into(cache, written), found

    assert not copies(program)


def test_deterministic_algorithms_keep_to_the_library():
    assert copies(row, InductorOptions(deterministic=True))


def test_rows_of_two_caches_at_a_computed_position_are_one_launch():
    def program(keys, values, at, new):
        at = prims.add(at, 1)
        made = [prims.index_copy(cache, 1, at, prims.mul(new, n), False) for n, cache in ((2.0, keys), (3.0, values))]
        return prims.copy_into(keys, made[0]), prims.copy_into(values, made[1])

    first, *rest = specs(CUDA)
    plan = plan_graph(build(program, [None] * 4, [first, first, *rest]), InductorOptions())
    assert [len(kernel.parts) for kernel in plan.kernels] == [2]
