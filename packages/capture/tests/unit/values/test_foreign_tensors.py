"""Tensors that no graph holds (nested but not jagged, sparse, of subclasses with a __torch_dispatch__ and no parts): what is done with one
breaks the graph there, what is done beside it is captured."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from tracework_capture import Unsupported, explain, optimize

X = torch.arange(3.0)


class Wrapper(torch.Tensor):
    """Computes what the tensor inside does."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, Wrapper, func(*args, **kwargs))


def nested():
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)


def sparse():
    return torch.eye(3).to_sparse()


def plain(tensor):
    """What is in it, as a plain tensor."""
    while isinstance(tensor, Wrapper):
        tensor = tensor.inner
    return tensor.values() if tensor.is_nested else tensor.to_dense()


def operators(x, other):
    y = x.sin()
    z = other * 2
    return y + 1, z, other is z, isinstance(other, torch.Tensor), type(other).__name__


def in_place(x, other):
    y = x.sin()
    other *= 2
    return y * 2, other


def on_the_right(x, other):
    y = x.cos()
    return x * other, y + 1


def python_of_torch(x, other):
    y = x.cos()
    return F.relu(other * 2), y + 1


def passed_on(x, other):
    table = {"x": x + 1, "other": [other]}
    y = x if other is None else x * 2
    return y, table["other"][0]


PROGRAMS = [operators, in_place, on_the_right, python_of_torch, passed_on]
MAKERS = [nested, sparse, lambda: Wrapper(torch.ones(3))]


@pytest.mark.parametrize("make", MAKERS, ids=["nested", "sparse", "wrapper"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(fresh, make, program):
    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(program)
    for _ in range(2):
        given, others = compiled(X, make()), program(X, make())
        for found, expected in zip(given, others, strict=True):
            assert type(found) is type(expected)
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(plain(found), plain(expected), rtol=0, atol=0)
            else:
                assert found == expected
    assert graphs


def test_the_reason_is_at_the_operation():
    found = explain(operators)(X, Wrapper(torch.ones(3)))
    assert [stop.reason_id for stop in found.breaks] == ["tensor_subclass"]
    assert "other is a Wrapper" in found.breaks[0].detail
    assert not [frame for frame in found.skipped if frame.name == "operators"]


def test_no_graph_at_all_where_one_is_asked_for(fresh):
    with pytest.raises(Unsupported, match="other is a tensor of layout torch.sparse_coo"):
        optimize(lambda gm, inputs: gm.forward, fullgraph=True)(operators)(X, sparse())
    assert optimize(lambda gm, inputs: gm.forward, fullgraph=True)(passed_on)(X, nested())[1].is_nested


def test_a_plain_tensor_where_there_was_a_sparse_one(fresh):
    graphs = []
    compiled = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(on_the_right)
    for other in (sparse(), torch.eye(3), sparse()):
        torch.testing.assert_close(compiled(X, other), on_the_right(X, other))
    assert len([g for g in graphs if any(n.op == "placeholder" and "other" in n.name for n in g.graph.nodes)]) == 1


def test_functions_of_subclasses_switched_off_outside(fresh):
    def program(x, other):
        y = x + 1
        return torch.overrides.has_torch_function_unary(other), y

    compiled = optimize(lambda gm, inputs: gm.forward)(program)
    other = nested()
    assert compiled(X, other)[0] is True
    with torch._C.DisableTorchFunctionSubclass():
        assert compiled(X, other)[0] is False
    assert compiled(X, other)[0] is True


class Shaped(torch.Tensor):
    """Has the shape of another tensor, which is not there at first."""

    @property
    def shape(self):
        return self.other.shape

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.Tensor.__torch_function__.__func__(cls, function, types, args, kwargs or {})


def test_a_tensor_whose_class_has_a_shape_of_its_own(fresh, caplog):
    def fn(x, shaped):
        y = x + 1
        shaped.other = y
        return y, tuple(shaped.shape)

    compiled = optimize(lambda gm, inputs: gm.forward)(fn)
    for size in (3, 4, 5):
        y, shape = compiled(torch.ones(size), torch.ones(2).as_subclass(Shaped))
        assert torch.equal(y, torch.full((size,), 2.0)) and shape == (size,)
    assert "please report" not in caplog.text
