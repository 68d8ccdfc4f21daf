"""Operators whose results are not what their shape rules say: no kernel reads them. With torch's operators the frame runs plainly, with a
warning; with the program's own, which may have done anything, the call raises.
"""

import warnings

import pytest
import torch
import tracework
from tracework_primops import TensorSpec
from tracework_primops.fake import ATEN_META, SPECIAL
from tracework_primops.fake.dispatch import forget_plans
from training import same

PROMISES = {
    "wider dtype": (torch.float64, lambda n, m: (n, m)),
    "narrower dtype": (torch.bfloat16, lambda n, m: (n, m)),
    "integers": (torch.int32, lambda n, m: (n, m)),
    "size": (torch.float32, lambda n, m: (4 * n, m)),
    "one dimension more": (torch.float32, lambda n, m: (1, n, m)),
}
SMALL, LARGE = (3, 3), (300, 300)


@pytest.fixture(autouse=True)
def told_anew():
    tracework.reset()
    yield
    forget_plans()


@pytest.fixture(params=PROMISES)
def broken(request, monkeypatch):
    """A wrong rule for an operator of torch's that kernels are not made for."""
    dtype, sizes = PROMISES[request.param]

    def rule(x, upper=False):
        return TensorSpec(dtype, x.device, sizes(*x.sizes))

    monkeypatch.setitem(ATEN_META, torch.ops.aten.cholesky_inverse.default, rule)
    forget_plans()
    return torch.cholesky_inverse


def factor(n):
    return torch.randn(n, n).tril() + 3 * n * torch.eye(n)


def as_plain_python(fn, *inputs, **options):
    """The compiled function gives what plain Python gives, twice, and warns once that it ran uncompiled; the warning."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled = tracework.compile(fn, **options)
        for _ in range(2):
            theirs, mine = ([x.clone() for x in inputs] for _ in range(2))
            same(compiled(*mine), fn(*theirs))
            same(mine, theirs)
    (found,) = {str(w.message) for w in told if issubclass(w.category, tracework.UncompiledWarning)}
    return found


@pytest.mark.parametrize("n", [3, 300])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_the_frame_runs_plainly_and_says_so(broken, n, fullgraph):
    def fn(x):
        return torch.relu(broken(x * 2) + 1).sum()

    told = as_plain_python(fn, factor(n), fullgraph=fullgraph)
    assert "ResultMismatch" in told and "aten::cholesky_inverse (integration_tests/test_broken_promises.py:" in told
    assert "where the graph was compiled for" in told and "torch.compiler.disable" in told


def test_an_equal_program_of_other_lines_names_its_own(broken):
    """The second one's artifact comes from the cache."""

    def first(x):
        return torch.relu(broken(x * 2) + 1).sum()

    def second(x):
        return torch.relu(broken(x * 2) + 1).sum()

    for fn in (first, second):
        line = fn.__code__.co_firstlineno + 1
        assert f"(integration_tests/test_broken_promises.py:{line} in {fn.__name__} cholesky_inverse)" in as_plain_python(
            fn, factor(3)
        )


def test_a_result_that_is_only_returned(broken):
    as_plain_python(lambda x: broken(x + x), factor(3))


def test_an_input_that_is_written(broken):
    def fn(x):
        x.add_(x)
        return broken(x) * 2

    as_plain_python(fn, factor(3))


def test_sizes_that_change(broken):
    compiled = tracework.compile(lambda x: broken(x + x) * 2, dynamic=True)
    with pytest.warns(tracework.UncompiledWarning, match="ResultMismatch"):
        for n in (4, 7, 9):
            x = factor(n)
            same(compiled(x), broken(x + x) * 2)


def test_one_of_several_results(monkeypatch):
    def rule(x, uplo="L", compute_v=True):
        return TensorSpec(torch.float64, x.device, x.sizes[:1]), TensorSpec(x.dtype, x.device, x.sizes)

    monkeypatch.setitem(ATEN_META, torch.ops.aten._linalg_eigh.default, rule)
    forget_plans()
    told = as_plain_python(lambda x: torch.linalg.eigh(x + x.T).eigenvalues.exp().sum(), torch.randn(5, 5))
    assert "dtype torch.float32 where the graph was compiled for torch.float64" in told


CHANGED = {
    "dtype": lambda found: found.to(torch.float32),
    "size": lambda found: found.narrow(1, 0, 1).clone(),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_result_that_depends_on_data(monkeypatch, change):
    """It is made between compiled pieces; the one that reads it runs eager kernels."""
    func = torch.ops.aten.nonzero.default
    right = SPECIAL[func]

    def rule(mode, func, args, kwargs):
        return change(right(mode, func, args, kwargs))

    monkeypatch.setitem(SPECIAL, func, rule)
    forget_plans()

    def fn(x):
        return (torch.nonzero(x.sin() > 0) * 3 + 1).sum(1)

    told = as_plain_python(fn, torch.randn(40, 5))
    assert "nonzero" in told and "where the graph was compiled for" in told


@pytest.fixture
def own():
    """An operator of the program's that doubles, with a wrong fake."""
    with torch.library._scoped_library("tracework_own", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CPU")
        torch.library.register_fake("tracework_own::double", lambda x: torch.empty_like(x, dtype=torch.float64), lib=library)
        yield torch.ops.tracework_own.double.default


MESSAGE = (
    r"tracework_own::double \(integration_tests/test_broken_promises.py:\d+ in .*\) gave a tensor of dtype torch.float32 where"
)


def test_an_operator_of_the_programs_own(own):
    with pytest.raises(RuntimeError, match=MESSAGE):
        tracework.compile(lambda x: own(x + 1).sum())(torch.randn(LARGE))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, operator):
        ctx.operator = operator
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return ctx.operator(gradient.cos()).to(gradient.dtype), None


def test_in_a_backward_it_is_an_error(own):
    x = torch.randn(SMALL, requires_grad=True)
    result = tracework.compile(lambda x: Doubled.apply(x * 3, own).sin())(x)
    with pytest.raises(RuntimeError, match=MESSAGE):
        result.sum().backward()


def writes(x, y):
    y.add_(1)
    return x + y


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("raises", [False, True])
def test_an_operator_that_writes_to_what_it_says_it_reads(raises, backend):
    """It is named with its argument, once, in a warning; with torch's setting for tests in an error."""
    import torch._functorch.config as settings

    name = f"writes_{backend}_{raises}"
    with (
        settings.patch(error_on_custom_op_aliasing=raises),
        torch.library._scoped_library("tracework_lies", "FRAGMENT") as library,
    ):
        library.define(f"{name}(Tensor x, Tensor y) -> Tensor")
        library.impl(name, writes, "CPU")
        torch.library.register_fake(f"tracework_lies::{name}", lambda x, y: torch.empty_like(x), lib=library)
        operator = getattr(torch.ops.tracework_lies, name).default
        compiled = tracework.compile(lambda x, y: operator(x.sin(), y) * 2, backend=backend)
        message = rf"tracework_lies::{name} writes to its argument 'y'"
        given = torch.ones(2, 3), torch.zeros(2, 3)
        with pytest.raises(RuntimeError, match=message) if raises else pytest.warns(UserWarning, match=message):
            compiled(*given)
        if not raises:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                same(compiled(*given), operator(given[0].sin(), given[1]) * 2 - 2)
