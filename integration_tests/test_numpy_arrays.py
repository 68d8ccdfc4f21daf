"""NumPy on arrays is part of the graph: dtypes, values, memory and classes of results are NumPy's own."""

import copy
import gc
import itertools
import sys
import warnings
import weakref

import numpy
import pytest
import torch
import tracework
from tracework_capture import explain
from training import BACKENDS

KINDS = "bool int8 int16 int32 int64 uint8 float16 float32 float64".split()
TOLERANCE = {2: 2e-3, 4: 2e-6, 8: 1e-13}  # two roundings of results of the size of one


def array(kind, shape=(3, 4)):
    numbers = numpy.random.default_rng(0)
    if kind == "bool":
        return numbers.integers(0, 2, shape).astype(bool)
    if "int" in kind:
        return numbers.integers(0 if kind == "uint8" else -5, 6, shape).astype(kind)
    made = (numbers.standard_normal(shape) * 2).astype(kind)
    made.flat[:3] = numpy.nan, numpy.inf, -0.0
    return made


def agree(found, expected):
    """Class, dtype, shape, layout and numbers."""
    assert type(found) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            agree(*pair)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(expected, (numpy.ndarray, numpy.generic)):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert steps(found) == steps(expected)
        if expected.dtype.kind == "f":
            limit = TOLERANCE[expected.dtype.itemsize]
            numpy.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), limit, limit)
        else:
            numpy.testing.assert_array_equal(found, expected)
    else:
        assert repr(found) == repr(expected)


def steps(found):
    """Strides of the dims that have several items."""
    return [stride for size, stride in zip(found.shape, found.strides, strict=True) if size > 1]


def compare(fn, *args, backend="eager", fullgraph=False):
    """The compiled function gives what the plain one gives or raises, and leaves its arguments as that leaves them."""
    plain_args, given = copy.deepcopy(args), copy.deepcopy(args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = fn(*plain_args)
        except Exception as error:
            with pytest.raises(type(error)):
                tracework.compile(fn, backend=backend)(*given)
            return
        agree(tracework.compile(fn, backend=backend, fullgraph=fullgraph)(*given), expected)
    agree(list(given), list(plain_args))


def program(text, names):
    return eval(f"lambda {names}: ({text})", {"numpy": numpy, "torch": torch})


UFUNCS = "add divide floor_divide power arctan2 maximum less logical_and bitwise_and".split()


@pytest.mark.parametrize("name", UFUNCS)
def test_dtypes_of_two_arrays(name):
    for left, right in itertools.product(KINDS, KINDS):
        compare(program(f"numpy.{name}(a, b)", "a, b"), array(left), array(right, (4,)))


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_of_arrays_and_numbers(kind):
    numbers = ("2", "2.5", "True", "-1", "300", "numpy.float32(1.5)", "numpy.int64(3)", "[1, 2, 3, 4]")
    for op, number in itertools.product("+ / // ** & <".split(), numbers):
        compare(program(f"a {op} {number}", "a"), array(kind))
        compare(program(f"{number} {op} a", "a"), array(kind))
        compare(program(f"a[0, 1] {op} {number}", "a"), array(kind))


@pytest.mark.parametrize("named", ["numpy.bool_", "bool", "numpy.float32", "int", "'bool'", "numpy.dtype('float32')"])
def test_dtypes_are_compared_with_what_names_them(named):
    for kind in ("bool", "float32"):
        compare(program(f"(a.dtype == {named}, a.dtype != {named}, {named} == a.dtype, a.sum())", "a"), array(kind))


ONE_ARRAY = """abs negative sign sqrt square exp log sin tanh floor ceil rint isnan isfinite logical_not invert reciprocal
sum prod mean std var max min ptp any all argmax argmin count_nonzero cumsum cumprod
ravel transpose squeeze tril triu diff sort copy zeros_like ones_like nan_to_num round linalg.norm""".split()


@pytest.mark.parametrize("name", ONE_ARRAY)
def test_functions_of_one_array(name):
    for kind in KINDS:
        compare(program(f"numpy.{name}(a)", "a"), array(kind))
        compare(program(f"numpy.{name}(a)", "a"), array(kind).T)
        compare(program(f"numpy.{name}(a)", "a"), array(kind, (0, 3)))
        compare(program(f"numpy.{name}(a, axis=0)", "a"), array(kind, (2, 3, 4)))


EXPRESSIONS = """a.sum(axis=(0, 1), keepdims=True) | a.mean(0, dtype=numpy.float64) | a.std(axis=1, ddof=1) | a.max(axis=-1)
a.reshape(2, -1) | a.reshape((6, 2)) | a.T | a.swapaxes(0, 1) | numpy.moveaxis(a, 0, -1) | numpy.expand_dims(a, -1) | a.flatten()
numpy.stack([a, a], axis=1) | numpy.concatenate([a, a * 0.5]) | numpy.vstack([a, a]) | numpy.hstack((a, a)) | numpy.split(a, 3)
numpy.array_split(a, 2, axis=1) | numpy.tile(a, 2) | numpy.repeat(a, 2, axis=0) | numpy.roll(a, 1, axis=1) | numpy.take(a, [0, 2], axis=1)
numpy.where(a > 0, a, 0) | numpy.where(a > 0, 1, 0.5) | numpy.clip(a, 0, 2) | a.clip(max=1) | numpy.isclose(a, a, equal_nan=True)
a.astype("float64") | a.astype(bool) | numpy.float32(a) | numpy.array(a, dtype=float) | a.dot(a.T) | a @ a.T | numpy.outer(a[0], a[1])
numpy.einsum("ij,kj->ik", a, a) | numpy.zeros(a.shape) | numpy.full(a.shape, 2.5) | numpy.arange(a.shape[0]) | numpy.linspace(0, 1, 5)
numpy.eye(3)[1:] | numpy.array([[1, 2], [3, 4]]) | (a.shape, a.ndim, a.size, a.dtype, a.itemsize, a.nbytes, a.strides, len(a))
isinstance(a, numpy.ndarray), isinstance(a.mean(), float), type(a[0, 0]).__name__ | a[0] | a[-1, 1:] | a[:, 1] | a[..., 0] | a[0, 0]
a[0, 0, ...] | a[None] | a[[0, 1]] | a[numpy.array([0, 1]), 1] | a[0, numpy.array([1, 2])] | a[::2, ::2] | a[a.argmax() % 3, 1]
[row.sum() for row in a] | numpy.array([row.max() for row in a]) | torch.from_numpy(a), torch.tensor(a), torch.as_tensor(a)
torch.tensor(a.max()), torch.tensor(a, dtype=torch.float64) | torch.ones(3) * a.mean() | numpy.asarray(torch.ones(2)), numpy.array(torch.ones(2))
numpy.round(a, 1), a.round() | numpy.add(a, 1, dtype="float64") | abs(a), -a | a.tolist() | a[::-1] | numpy.flip(a) | numpy.unique(a)
a[a > 0] | numpy.argsort(a) | a.base is None | a[9] | a.reshape(5, 5) | numpy.max(a, initial=0) | numpy.linalg.norm(a, 2) | a[0, 0] * [1, 2]
numpy.argsort(a, kind="stable") | numpy.argsort(a, axis=0, stable=True) | a.argsort(kind="stable") | numpy.argsort(a % 2, kind="mergesort")
a[True] | numpy.array([1, 2.5]).max() | torch.tensor([1, numpy.float32(2)]) | numpy.einsum("ij->", a)"""


@pytest.mark.parametrize("text", [t.strip() for line in EXPRESSIONS.splitlines() for t in line.split(" | ")])
def test_expressions(text):
    for kind in ("float32", "int64", "uint8", "bool", "float16"):
        compare(program(text, "a"), array(kind))


def writes_items(a):
    a[0] = 1
    a[:, 1] += 2
    a[a > 2] = 0
    a[1:] = a[:-1]
    a[2] = [1, 2, 3, 4]
    return a


def writes_through_views(a):
    view, flat, columns = a[1:], a.reshape(-1), a.T
    view *= 2
    flat[0] = 7
    columns[1] -= 1
    numpy.add(a, 1, out=a)
    return view, a.sum(), columns


def copies_are_no_views(a):
    first, copied, cast = a[0, 0], a.copy(), a.astype("float64")
    a[...] = 9
    a.fill(3)
    return first, copied, cast, a.flatten()


def memory_of_tensors(a):
    x = torch.from_numpy(a)
    x.add_(1)
    b = x.numpy()
    b[0] = 5
    x.mul_(2)
    own = torch.tensor(a)
    own.zero_()
    return x, b, own, numpy.asarray(b) is b


def standardised(a):
    b = a.astype(numpy.float64)
    b -= b.mean(axis=0)
    b /= b.std(axis=0) + 1e-8
    return b, numpy.sqrt((b**2).sum(axis=1))


PROGRAMS = (writes_items, writes_through_views, copies_are_no_views, memory_of_tensors, standardised)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_are_one_graph(fn, backend):
    for kind in ("float32", "int64"):
        compare(fn, numpy.arange(12, dtype=kind).reshape(3, 4), backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_results_share_memory_with_arguments(backend):
    def views(a, x):
        return a, a[1:], torch.from_numpy(a), x.numpy()[:2]

    a, x = numpy.zeros(4), torch.zeros(4)
    same, tail, tensor, head = tracework.compile(views, backend=backend, fullgraph=True)(a, x)
    a[:], x[:] = 3, 4
    assert same is a
    numpy.testing.assert_array_equal(tail, a[1:])
    numpy.testing.assert_array_equal(tensor.numpy(), a)
    numpy.testing.assert_array_equal(head, x.numpy()[:2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_may_overlap_and_be_the_same(backend):
    def writes(a, b):
        a += 1
        b *= 2
        return a is b, a.sum(), b + 1

    def pairs():
        separate, shared, same = (numpy.arange(6.0) for _ in range(3))
        return (separate, numpy.arange(4.0)), (shared, shared[1:5]), (same, same)

    compiled = tracework.compile(writes, backend=backend)
    for found, expected in zip(pairs(), pairs(), strict=True):
        agree(list(compiled(*found)), list(writes(*expected)))
        agree(list(found), list(expected))


def special(kind):
    """An array that torch has no tensor for."""
    a = numpy.arange(12.0).reshape(3, 4)
    if kind.startswith("read-only"):
        a.flags.writeable = False
    views = {
        "rows backwards": a[::-1],
        "backwards": a[::-1, ::-1],
        "some backwards": a[::-2, ::2],
        "read-only backwards": a[:, ::-1],
    }
    return numpy.broadcast_to(a[0], (3, 4)) if kind == "broadcast" else views.get(kind, a)


def reads(a):
    computed = (
        a + 1,
        a.sum(axis=0),
        a[0, 1],
        numpy.sort(a, axis=0),
        numpy.copy(a),
        a.T + a.T,
        a[:, [1, 0]],
        numpy.roll(a, 1, axis=0),
    )
    return *computed, a[0], a[1:], a[::-1], a.T, a, numpy.flip(a), a.strides, a.flags.writeable, a.flags.c_contiguous, a.ravel()


def writes(a):
    a[0] = 7
    a += 1
    view = a[1:]
    view *= 2
    a[-1, -1] = 5
    return a, view, numpy.add(a, a, out=a), a.sum()


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize(
    "kind",
    ["rows backwards", "backwards", "some backwards", "read-only", "read-only backwards", "broadcast"],
)
def test_arguments_that_torch_has_no_tensor_for(kind, backend):
    compiled = tracework.compile(reads, backend=backend, fullgraph=True)
    given, plain = special(kind), special(kind)
    for found, expected in zip(compiled(given), reads(plain), strict=True):
        agree(found, expected)
        if isinstance(expected, numpy.ndarray):
            assert found.flags.writeable == expected.flags.writeable
            assert (found is given, numpy.shares_memory(found, given)) == (
                expected is plain,
                numpy.shares_memory(expected, plain),
            )
    agree(compiled(numpy.ones((3, 4)))[0], numpy.ones((3, 4)) + 1)  # another entry
    compare(writes, special(kind), backend=backend, fullgraph=plain.flags.writeable)


def test_one_row_backwards_is_in_order():
    def facts(a):
        return a + 1, a.strides, a.flags.c_contiguous, a.ravel()[0]

    compare(facts, numpy.ones((1, 4))[::-1], backend="eager", fullgraph=False)


def test_gradients_pass_by_what_arrays_compute():
    def scaled(x):
        weights = x.detach().numpy()
        weights = weights / numpy.abs(weights).sum()
        return (x * torch.from_numpy(weights)).sum()

    x, y = (torch.arange(1.0, 5.0, requires_grad=True) for _ in range(2))
    tracework.compile(scaled, backend="aot_eager", fullgraph=True)(x).backward()
    scaled(y).backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_arrays_of_what_wants_gradients_are_forced():
    def forced(x):
        return (x * 2).numpy(force=True) + x.numpy(force=True), x.detach().numpy(force=False), x.sum()

    x = torch.arange(1.0, 5.0, requires_grad=True)
    found, expected = tracework.compile(forced, backend="aot_eager", fullgraph=True)(x), forced(x)
    agree(list(found[:2]), list(expected[:2]))
    assert found[2].requires_grad


def test_arrays_are_guarded():
    compiled = tracework.compile(lambda a: (a + 1, a.dtype.name, a.shape), backend="eager")
    given = [numpy.ones(3), numpy.ones(3, "float32"), numpy.ones((2, 2), "int8"), numpy.ones(4)[::-1], numpy.ones(3, ">f8")]
    frozen = numpy.ones(3)
    frozen.flags.writeable = False
    for a in (*given, frozen, [1.0], numpy.float64(2)):
        if isinstance(a, list):
            with pytest.raises(TypeError):
                compiled(a)
            continue
        agree(list(compiled(a)), [a + 1, a.dtype.name, a.shape])


def test_sizes_that_change_are_compiled_twice():
    report = []

    def backend(module, inputs):
        report.append(module)
        return module.forward

    compiled = tracework.compile(lambda a: numpy.tanh(a) @ a.T + a.shape[0], backend=backend)
    for size in range(2, 9):
        a = array("float64", (size, 3))
        agree(compiled(a), numpy.tanh(a) @ a.T + a.shape[0])
    assert len(report) == 2


def test_a_requiring_tensor_has_no_array():
    with pytest.raises(RuntimeError, match="requires grad"):
        tracework.compile(lambda x: x.numpy() + 1, backend="eager")(torch.ones(2, requires_grad=True))


def test_numbers_of_small_arrays_are_known():
    def sized(x):
        shape = numpy.array([2, 3])
        return x.reshape(int(shape.prod()), -1), [int(n) for n in shape]

    report = explain(sized)(torch.ones(12))
    assert (len(report.graphs), len(report.breaks)) == (1, 0)


def test_errors_that_raise_are_left_to_numpy():
    compiled = tracework.compile(lambda a: 1 / a, backend="eager")
    agree(compiled(numpy.ones(2)), numpy.ones(2))
    with numpy.errstate(divide="raise"), pytest.raises(FloatingPointError):
        compiled(numpy.zeros(2))


def test_arrays_made_inside_index_tensors():
    def fn(x, y):
        order = numpy.arange(4)
        x = x.clone()
        x[order[:2]] = 0
        return x[order[1:3]], x[order % 2 == 0], x[order[::2], order[:2]], x[:, order[1:]], y[order]

    given = torch.arange(16.0).view(4, 4), torch.arange(5.0)
    for found, expected in zip(tracework.compile(fn, backend="eager", fullgraph=True)(*given), fn(*given), strict=True):
        assert torch.equal(found, expected)


VIEWS = {
    "of what is made": lambda x, t: (a := x * 2, a[1:]),
    "backwards": lambda x, t: (a := x * 2, a[::-1]),
    "of a view": lambda x, t: (a := x * 2, a.reshape(2, 3).T[1]),
    "without items": lambda x, t: (a := x[:0] * 2, a[None]),
    "of an argument": lambda x, t: (x, x[1:]),
    "in another order": lambda x, t: (a := x.reshape(2, 3).T + 1, a[:, 1]),
    "of a tensor's": lambda x, t: (a := t.numpy(), a[1:]),
    "of a made tensor's": lambda x, t: (a := (t * 2).numpy(), a[1:]),
    "that a tensor shares": lambda x, t: (a := x + 1, torch.from_numpy(a).add_(1).numpy() is None, a[2:])[::2],
    "after a break": lambda x, t: (a := x + 1, print(end=""), a[2:])[::2],
}


def memory_facts(held, view):
    """Whose memory two arrays have, and that it is theirs: it can be written to and resized as NumPy's own."""
    facts = [view.base is held, type(held.base), held.flags.owndata, view.flags.owndata, numpy.shares_memory(held, view)]
    held[...] += 1
    facts += [view.tolist(), view.dtype, sys.getsizeof(held), sys.getsizeof(view)]
    del view
    for size in (7, 100, 2):
        try:
            held.resize(size, refcheck=False)
        except ValueError as error:
            facts.append(str(error))
        facts.append(held.tolist())
    return facts


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", VIEWS)
def test_whose_memory_an_array_has(name, backend):
    compiled = tracework.compile(VIEWS[name], backend=backend)
    for start in (0, 6):  # the argument owns its memory, or is a view
        given = [(numpy.arange(12.0)[start:] if start else numpy.arange(6.0), torch.arange(6.0)) for _ in range(2)]
        assert memory_facts(*compiled(*given[0])) == memory_facts(*VIEWS[name](*given[1]))


def test_what_an_array_says_of_its_memory_is_part_of_the_graph():
    def says(x):
        a = x + 1
        return a.base is None, a[1:].base is a, a[1:].T.base is a, a.flags.owndata, a[1:].flags["OWNDATA"], a

    compare(says, numpy.arange(4.0), fullgraph=True)


def test_memory_ends_with_the_last_array():
    def held(x):
        a = numpy.tanh(x)
        return a, a[2:3]

    compiled = tracework.compile(held)
    array, view = compiled(numpy.arange(5.0))
    ended = weakref.ref(array)
    del array
    assert ended() is view.base
    gc.disable()
    try:
        del view
        assert ended() is None
    finally:
        gc.enable()


PUTS = [
    "numpy.put(a, [1, -2], [7, 8])",
    "numpy.put(a, (1, 2, 1, 1), [7, 8])",
    "a.put([3], 9)",
    "a.put(5, a[0])",
    "numpy.put(a, numpy.array([0, 3]), a[1] * 2, mode='raise')",
    "numpy.put(a, [], [1])",
    "numpy.put_along_axis(a, a.argmax(axis=1, keepdims=True), 9, axis=1)",
    "numpy.put_along_axis(a, numpy.array([[2, 1, -1, 0]]), numpy.arange(4), axis=0)",
    "numpy.put_along_axis(a, numpy.array([[-3]]), a[:1] + 1, axis=-2)",
]


@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
@pytest.mark.parametrize("text", PUTS)
def test_writes_to_chosen_places(text, kind):
    compare(
        program(f"b := a + a, {text.replace('(a', '(b').replace('a.', 'b.', 1)}, b, a.sum()", "a"), array(kind), fullgraph=True
    )
    compare(program(f"{text}, a + 1", "a"), array(kind), fullgraph=True)


@pytest.mark.parametrize(
    "text",
    [
        "numpy.put(a, [12], 1)",
        "numpy.put(a, [13, 1], [1, 2], mode='wrap')",
        "numpy.put(a.T, [1, 2], 3)",
        "numpy.put(a, a[0].astype(int) % 2, [1, 2, 3, 4])",
        "numpy.put(a[::-1], [1], 3)",
        "numpy.put_along_axis(a, numpy.array([[0, 0], [1, 1], [2, 2]]), [[1, 2], [3, 4], [5, 6]], axis=1)",
        "numpy.put_along_axis(a, numpy.array([[9]]), 1, axis=1)",
        "numpy.put_along_axis(a, numpy.array([1, 2]), 1, axis=None)",
    ],
)
def test_writes_that_are_left_to_numpy(text):
    compare(program(f"a.sum(), {text}, a + 1", "a"), array("float32"))
