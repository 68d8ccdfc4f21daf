"""Foreach operators on fakes are eager's in dtype and layout, and are worked out without torch's meta kernels, which load its compiler."""

import pytest
import torch
from tracework_primops import FakeMode
from tracework_primops.fake import dispatch

UNARY = [n for n in ("sqrt", "neg", "abs", "exp", "sign", "reciprocal", "sigmoid", "clone") if hasattr(torch, f"_foreach_{n}")]
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow")
HALVES = [torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(4, dtype=torch.float16)]
LISTS = {
    "floats": [torch.ones(2, 3), torch.ones(4, 3).t(), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)],
    "halves": HALVES,
    "integers": [torch.ones(3, dtype=torch.int64), torch.ones(2, 2, dtype=torch.int32)],
    "mixed": [torch.ones(3, dtype=torch.int64), torch.ones(2, 2, dtype=torch.float64), torch.ones(())],
}


def calls():
    for name in UNARY:
        yield f"_foreach_{name}", lambda xs: (xs,)
    for name in BINARY:
        yield f"_foreach_{name}", lambda xs: (xs, [x.float() for x in xs])
        yield f"_foreach_{name}", lambda xs: (xs, 2)
        yield f"_foreach_{name}", lambda xs: (xs, [1.5] * len(xs))
    for name in ("mul", "div"):
        yield f"_foreach_{name}", lambda xs: (xs, torch.tensor(2.0))
    yield "_foreach_pow", lambda xs: (2, xs)
    yield "_foreach_lerp", lambda xs: (xs, xs, 0.5)


def faked(mode, value):
    if isinstance(value, (list, tuple)):
        return type(value)(faked(mode, v) for v in value)
    return mode.from_real(value) if isinstance(value, torch.Tensor) else value


def outcome(name, args):
    try:
        return [(t.dtype, t.shape, t.stride()) for t in getattr(torch, name)(*args)]
    except RuntimeError:
        return "refused"


@pytest.mark.parametrize("kind", LISTS)
def test_foreach_operators_are_eagers(kind, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "run_meta_kernel", lambda func, args, kwargs: pytest.fail(f"{func} was asked of torch"))
    for name, arguments in calls():
        args = arguments(LISTS[kind])
        expected, mode = outcome(name, args), FakeMode()
        if expected == "refused":
            continue
        with mode:
            assert outcome(name, faked(mode, args)) == expected, f"{name} {args}"


@pytest.mark.parametrize("xs, ys", [([], []), ([torch.ones(3)], [torch.ones(3), torch.ones(3)])])
def test_lists_that_do_not_fit_are_refused(xs, ys) -> None:
    mode = FakeMode()
    with mode, pytest.raises(RuntimeError):
        torch._foreach_add(faked(mode, xs), faked(mode, ys))
