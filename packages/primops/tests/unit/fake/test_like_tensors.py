"""What a fake says of itself: assigned data, lazy bits, and no address."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from tracework_primops import FakeMode

Z = torch.complex(torch.arange(3.0), torch.ones(3))


def test_assigned_data_gives_sizes_dtype_and_memory():
    mode = FakeMode()
    fake, other = mode.from_real(torch.randn(3, 4)), mode.from_real(torch.randn(5, 6))
    fake.data = other
    assert fake.spec == other.spec and tuple(fake.shape) == (5, 6)
    assert fake.storage is other.storage
    assert tuple((fake + 1).shape) == (5, 6)
    fake.data = torch.zeros(2)
    assert fake.spec.sizes == (2,)


@pytest.mark.parametrize("ask", [torch.Tensor.data_ptr, torch.utils.dlpack.to_dlpack], ids=["data_ptr", "dlpack"])
def test_there_is_no_address(ask):
    mode = FakeMode()
    for fake in (mode.from_real(torch.randn(3)), mode.from_real(torch.randn(3)) + 1, mode.from_real(torch.randn(3))[1:]):
        with pytest.raises(RuntimeError, match="Cannot access data pointer"):
            ask(fake)


@pytest.mark.parametrize("function", [torch.dot, torch.vdot])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_lazy_conjugates_of_inner_products(function, first, second):
    mode = FakeMode()
    a, b = (Z.conj() if lazy else Z for lazy in (first, second))
    found = function(mode.from_real(a), mode.from_real(b))
    assert found.is_conj() == function(a, b).is_conj()
    assert mode.from_real(a).is_conj() == first


@pytest.mark.parametrize("left", [False, True])
def test_lazy_conjugate_of_a_solution(left):
    mode = FakeMode()
    factors, pivots = torch.linalg.lu_factor(torch.eye(3, dtype=torch.complex64) * 2)
    arguments = (factors, pivots, torch.ones(3, 3, dtype=torch.complex64))
    found = torch.linalg.lu_solve(*map(mode.from_real, arguments), left=left)
    assert found.is_conj() == torch.linalg.lu_solve(*arguments, left=left).is_conj()


def test_lazy_negative_of_an_input():
    x = Z.conj().imag
    fake = FakeMode().from_real(x)
    assert x.is_neg() and fake.is_neg()


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("x", [Z.conj(), Z.conj().imag], ids=["conjugate", "negative"])
def test_copies_keep_lazy_bits(made, x):
    found = made(FakeMode().from_real(x))
    assert (found.is_conj(), found.is_neg()) == (x.is_conj(), x.is_neg())
    assert (found + 0).spec.sizes == tuple(x.shape)


def test_lazy_bits_of_views():
    def views(z):
        matrix = z.expand(2, 3)
        lazy = matrix.conj()
        assigned = torch.empty_like(z)
        assigned.data = z.conj()
        found = [
            matrix.t(),
            lazy.t(),
            lazy.t().unsqueeze(0),
            lazy.imag.t(),
            lazy.imag[0].view(1, 3),
            lazy.conj().t(),
            lazy.detach(),
        ]
        found += [
            *lazy.split(1),
            assigned.view(1, 3),
            torch.view_as_real(z.resolve_conj()).t(),
            (lazy + 1).t(),
            lazy.resolve_conj().t(),
        ]
        return [(each.is_conj(), each.is_neg()) for each in found]

    z = Z.expand(2, 3)[0]
    assert views(FakeMode().from_real(z)) == views(z)
    assert views(FakeMode().from_real(z.conj())) == views(z.conj())


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows_need_no_rule_of_torch(name, monkeypatch):
    """torch's rules for them import its compiler."""
    monkeypatch.setattr("tracework_primops.fake.meta_kernel._run_static", None)
    make = getattr(torch, f"{name}_window")
    for arguments, options in (((8,), {}), ((8, False), {"dtype": torch.float64})):
        with FakeMode():
            found = make(*arguments, **options)
        expected = make(*arguments, **options)
        assert (found.dtype, tuple(found.shape), found.stride()) == (expected.dtype, tuple(expected.shape), expected.stride())
    with FakeMode(), pytest.raises(RuntimeError):
        make(-1)


@pytest.mark.parametrize(
    "name", ["_foreach_mul_", "_foreach_add_", "_foreach_div_", "_foreach_sqrt_", "_foreach_neg_", "_foreach_zero_"]
)
@pytest.mark.parametrize("number", [2, 1.5])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_foreach_ops_in_place_refuse_what_eager_refuses(name, number, dtype):
    """An integer takes no float."""
    tensors, mode = [torch.ones(2, dtype=dtype), torch.ones(3, dtype=dtype)], FakeMode()
    fakes = [mode.from_real(t) for t in tensors]
    others = () if name in ("_foreach_sqrt_", "_foreach_neg_", "_foreach_zero_") else (number,)
    outcomes = []
    for given in (tensors, fakes):
        try:
            with mode if given is fakes else contextlib.nullcontext():
                getattr(torch, name)(given, *others)
            outcomes.append("done")
        except RuntimeError as error:
            assert "can't be cast to the desired output type" in str(error)
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


def written_since(x):
    base = x.clone()
    view = base[0]
    base.mul_(2)
    return view


def written_to(x):
    view = torch.zeros(4, 3)[1:]
    view.copy_(x)
    return view


WRITTEN = {
    "leaf": lambda leaf: leaf,
    "result": lambda leaf: leaf * 2,
    "view": lambda leaf: leaf.view(3, 3),
    "part": lambda leaf: leaf[1],
    "view of a view": lambda leaf: leaf[1:].t(),
    "view of a result": lambda leaf: (leaf * 2)[1],
    "one of several": lambda leaf: leaf.unbind()[1],
    "one of several of a result": lambda leaf: (leaf * 2).unbind()[1],
    "without history": lambda leaf: leaf.detach()[1],
    "made without history": lambda leaf: without_history(leaf),
    "base written since": written_since,
    "written to": written_to,
}
LEAVES = {
    "leaf": lambda: torch.ones(3, 3, requires_grad=True),
    "leaf that is a view": lambda: torch.ones(9).view(3, 3).requires_grad_(),
    "part that is a leaf": lambda: torch.ones(4, 3)[1:].requires_grad_(),
}


@torch.no_grad()
def without_history(leaf):
    return leaf.view(3, 3)


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("made", WRITTEN.values(), ids=WRITTEN)
def test_a_fake_refuses_writes_where_its_tensor_does(leaf, made):
    tensor = made(leaf())
    fake = FakeMode().from_real(tensor)

    def refused(written):
        try:
            written.mul_(2)
        except RuntimeError:
            return True
        return False

    assert refused(fake) == refused(tensor)
