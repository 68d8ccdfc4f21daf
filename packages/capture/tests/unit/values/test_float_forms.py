"""What is traced in place of functions that take a float that changes: called by anybody, it gives what the function gives."""

import pytest
import torch
import torch.nn.functional as F
from tracework_capture.polyfills.torch_numbers import FORMS

PLACES = torch.tensor([0, 2])


def case(*args, **kwargs):
    return args, kwargs


def cases(x):
    """Name of a form -> arguments."""
    y, square = x * 2 - 1, x[:, :2]
    activations = {name: case(x, 0.75) for name in ("elu", "celu", "softplus", "softshrink", "hardshrink", "leaky_relu")}
    products = {"addmm": case(x[:, :2], x, x.T[:, :2]), "addmv": case(x[:, 0], x, x[0]), "addr": case(x, x[:, 0], x[0])}
    products |= {"addbmm": case(x, x[None, :, :2], x[None]), "baddbmm": case(square[None], x[None], x.T[None, :, :2])}
    lists = {f"_foreach_{name}": case([x, y], 0.75) for name in ("add", "sub", "mul", "div", "maximum", "minimum")}
    return {
        **{name: case(x, 0.25, 1.5) for name in ("clamp", "clip")},
        **{name: case(x, 0.5) for name in ("clamp_min", "clamp_max", "fill", "xlogy", "special_xlog1py")},
        **{name: case(x, 0.75) for name in "copysign divide eq floor_divide fmod ge gt le lt multiply ne remainder true_divide".split()},
        **{name: case(x, 0.75) for name in "greater greater_equal less less_equal not_equal special_xlogy".split()},
        "where": case(x > 0, x, 0.5),
        "masked_fill": case(x, x > 0, 0.5),
        "full": case((2, 3), 0.5),
        "full_like": case(x, 0.5, dtype=torch.float64),
        "new_full": case(x, (2,), 0.5),
        "scalar_tensor": case(0.5),
        "fill_diagonal_": case(x.clone(), 0.5),
        "pad": case(x, (1, 1), "constant", 0.5),
        "constant_pad_nd": case(x, (1, 1), 0.5),
        "index_fill": case(x, 1, PLACES, 0.5),
        "scatter": case(x, 1, PLACES[None], 0.5),
        "index_add": case(x, 1, PLACES, x[:, 1:], alpha=0.5),
        "searchsorted": case(x[0], 0.5, right=True),
        "bucketize": case(0.5, x[0]),
        "lerp": case(x, y, 0.3),
        "pow": case(x.abs(), 1.5),
        "rsub": case(x, y, alpha=0.5),
        **activations,
        "threshold": case(x, 0.5, 2.0),
        "hardtanh": case(x, -0.5, 0.75),
        "normalize": case(x, eps=0.5),
        "renorm": case(x, 2.0, 0, 1.5),
        **{name: (args, {"beta": 0.5, "alpha": 2.0}) for name, (args, _) in products.items()},
        "arange": case(0.5, 3.25, 0.25),
        "linspace": case(0.5, 3.0, 5),
        "gradient": case(x, spacing=0.5, edge_order=1),
        **lists,
    }  # fmt: skip


def original(name):
    """The function, or method, that a form stands for."""
    if name.startswith("special_"):
        return getattr(torch.special, name.removeprefix("special_"))
    owner = next(owner for owner in (torch, torch.Tensor, F) if hasattr(owner, name))
    return getattr(owner, name)


DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", cases(torch.ones(2, 3)))
def test_eager(name, dtype):
    x = (torch.arange(-2.0, 4.0) / 2 + 0.125).reshape(2, 3).to(dtype)
    args, kwargs = cases(x)[name]
    form = FORMS[name]
    if dtype not in form.dtypes and form.of:
        return  # the float is fixed
    with torch.no_grad():
        found, expected = form.function(name, *args, **kwargs), original(name)(*args, **kwargs)
    if found is not NotImplemented:
        torch.testing.assert_close(
            list(found) if type(found) is tuple else found, list(expected) if type(expected) is tuple else expected
        )
    assert found is not NotImplemented or dtype is torch.bfloat16


def test_every_form_has_a_case():
    left = {name for name in FORMS if not name.endswith("_") and not name.startswith(("_foreach", "_fused"))} - {
        *cases(torch.ones(2, 3))
    }
    assert left == {"batch_norm", "_threshold", "special_zeta"}
