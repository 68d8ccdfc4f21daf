"""torch.inference_mode inside a compiled function: what leaves it is an inference tensor exactly where eager's is."""

import pytest
import torch
import tracework
from training import BACKENDS


class Holder:
    pass


holder = Holder()


def kinds(x):
    with torch.inference_mode():
        made = x * 2
        part, of_input, detached = made[1:], x[1:], x.detach()
        part.add_(1)
        holder.made = made + 1
    flat = part.view(-1)
    asked = [t.is_inference() for t in (made, part, of_input, detached, flat)]
    return made, part, of_input, detached, flat, made * 1, asked


def conjugated(x):
    with torch.inference_mode():
        made = torch.complex(x, x * 2)
        return made.conj(), made.conj().imag


@torch.inference_mode()
def decorated(x):
    return x.sin()


def decorated_inside(x):
    return decorated(x) + 1, decorated(x)


def broken(x):
    with torch.inference_mode():
        y = x * 2
        torch._dynamo.graph_break()
        z = y * 3
    return y, z, z * 2


def asked(x):
    return x * 2, x.is_inference(), (x * 2).is_inference(), x[1:].is_inference()


def facts(found):
    leaves = torch.utils._pytree.tree_leaves(found)
    return [
        (t.is_inference(), t.requires_grad, t.stride(), t.is_conj(), t.untyped_storage().nbytes(), t.tolist())
        if isinstance(t, torch.Tensor)
        else t
        for t in leaves
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [kinds, conjugated, decorated, decorated_inside, broken, asked])
def test_what_leaves_a_block(fn, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=fn is not broken)
    with torch.inference_mode():
        of_inference = torch.arange(3.0)
    for x in (torch.arange(3.0), torch.arange(3.0, requires_grad=True), of_inference):
        holder.made = None
        expected = facts([fn(x), holder.made])
        holder.made = None
        assert facts([compiled(x), holder.made]) == expected
    with torch.inference_mode():
        assert facts(compiled(x)) == facts(fn(x))


def computed_before(x):
    with torch.inference_mode():
        torch._dynamo.graph_break()
        y = x * 2
        return x.requires_grad, x.is_leaf, x.requires_grad_(True) is x, x.is_inference(), y.requires_grad, y.is_inference()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [lambda w: w, lambda w: w * 1, lambda w: w[:2], lambda w: w.detach()[1:].requires_grad_()])
def test_a_frame_that_begins_inside(make, backend):
    given = make(torch.arange(3.0, requires_grad=True))
    compiled = tracework.compile(computed_before, backend=backend)
    for _ in range(2):
        assert compiled(given) == computed_before(given)


def saved_for_backward(x, w):
    with torch.inference_mode():
        y = x * 2
    return y * w


def written_to(x, w):
    with torch.inference_mode():
        y = x * 2
    y[0] = 1
    return y


def asked_for_a_gradient(x, w):
    with torch.inference_mode():
        y = x * 2
    return y.requires_grad_()


@pytest.mark.parametrize("fn", [saved_for_backward, written_to, asked_for_a_gradient])
def test_misuse_raises_as_in_eager(fn):
    x, w = torch.arange(3.0), torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError) as expected:
        fn(x, w)
    with pytest.raises(RuntimeError) as found:
        tracework.compile(fn, backend="eager")(x, w)
    assert str(found.value) == str(expected.value)
