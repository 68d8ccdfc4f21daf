"""What an overload gives by its decomposition, with what stands beside it: refusals and layouts."""

import itertools

import pytest
import torch
from tracework_primops import FakeMode, GraphBuilder, PrimValue, TensorSpec, prims
from tracework_primops.aten_meta.rows import ATEN_META, BY_META_KERNEL, LAYOUTS, REFUSALS, WHOLE
from tracework_primops.decomp import DECOMPS
from tracework_primops.fake.rules import rule_of

aten = torch.ops.aten
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
LAYOUTS_OF_TENSORS = {
    "row-major": ((2, 3, 4), (12, 4, 1)),
    "turned": ((2, 3, 4), (1, 2, 6)),
    "turned, of one column": ((5, 1), (1, 5)),
    "channels-last, of one channel": ((2, 1, 4, 5), (20, 1, 5, 1)),
    "expanded": ((2, 3, 4), (0, 4, 1)),
    "every second": ((2, 3), (6, 2)),
    "no elements": ((0, 3), (1, 0)),
    "no dims": ((), ()),
}


@pytest.mark.parametrize("table", [REFUSALS, LAYOUTS], ids=["refusals", "layouts"])
def test_each_stands_beside_a_decomposition_that_is_asked(table):
    dead = [func for func in table if func in ATEN_META or func not in DECOMPS or rule_of(func) is None]
    assert not dead


def test_what_torch_is_asked_for_has_a_decomposition():
    overloads = {f for f in DECOMPS if f.namespace == "aten"}
    names = {f._schema.name.removeprefix("aten::") for f in overloads}
    names |= {f"{f._schema.name.removeprefix('aten::')}.{f._overloadname}" for f in overloads}
    assert {name for name in BY_META_KERNEL if hasattr(aten, name.partition(".")[0])} <= names
    for func in (aten.topk.default, aten.norm.Scalar, aten.copy_.default):
        assert rule_of(func) is None


def test_composites_that_are_taken_whole_have_a_rule():
    assert None not in WHOLE
    assert all(rule_of(func) is not None for func in WHOLE)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS_OF_TENSORS)
def test_copies_lie_as_in_eager(layout, device):
    """In another dtype, too: dims of one element keep their strides."""
    sizes, strides = LAYOUTS_OF_TENSORS[layout]
    x = torch.empty_strided(sizes, strides)
    spec = TensorSpec(torch.float32, device, sizes, strides)
    with GraphBuilder(None):
        value = PrimValue(spec, None)
        made = {
            "clone": (prims.clone(value), x.clone()),
            "convert": (prims.convert(value, torch.float64), x.to(torch.float64)),
            "device_put": (prims.device_put(value, device), torch.empty_like(x)),
        }
    for name, (found, expected) in made.items():
        assert (found.spec.sizes, found.spec.strides) == (tuple(expected.shape), expected.stride()), name
    to_copy = rule_of(aten._to_copy.default)(spec, dtype=torch.float64)
    assert (to_copy.strides, to_copy.device) == (x.to(torch.float64).stride(), device)


def fit(a, b):
    """Whether tensors of these layouts are broadcast."""
    sizes = (LAYOUTS_OF_TENSORS[name][0] for name in (a, b))
    return all(m == n or 1 in (m, n) for m, n in zip(*(s[::-1] for s in sizes)))


PAIRS = [pair for pair in itertools.permutations(LAYOUTS_OF_TENSORS, 2) if fit(*pair)]


@pytest.mark.parametrize("a, b", PAIRS, ids=" and ".join)
def test_operands_of_two_dtypes(a, b):
    """A CPU copies what has another dtype, a GPU's kernels read it as it is: there the result lies as for operands of one dtype."""
    (sizes, strides), (others, other_strides) = LAYOUTS_OF_TENSORS[a], LAYOUTS_OF_TENSORS[b]
    x, y = torch.empty_strided(sizes, strides), torch.empty_strided(others, other_strides, dtype=torch.float64)
    expected, mode = x + y, FakeMode()
    with mode:
        assert (mode.from_real(x) + mode.from_real(y)).stride() == expected.stride()
    found = rule_of(aten.add.Tensor)(*(TensorSpec(t.dtype, GPU, tuple(t.shape), t.stride()) for t in (x, y)))
    alike = rule_of(aten.add.Tensor)(*(TensorSpec(torch.float64, GPU, tuple(t.shape), t.stride()) for t in (x, y)))
    assert (found.dtype, found.sizes) == (expected.dtype, tuple(expected.shape))
    if x.ndim and y.ndim:
        assert found == alike


@pytest.mark.parametrize("value", [True, 2, 2.5, 1j])
def test_filled_tensors_have_the_dtype_of_the_number(value):
    expected = torch.full((2,), value)
    assert rule_of(aten.full.default)((2,), value) == TensorSpec(expected.dtype, CPU, (2,))


def test_what_a_decomposition_does_not_take_is_left_to_torch():
    mode = FakeMode()
    x = torch.ones(2, 3)
    for dims in ((0, 0), (0,)):
        with pytest.raises(Exception) as expected:
            x.rot90(1, dims)
        with mode, pytest.raises(expected.type):
            mode.from_real(x).rot90(1, dims)


F = torch.nn.functional
OF_ONE = {
    **{
        name: getattr(F, name) for name in ("gelu", "hardshrink", "softshrink", "hardsigmoid", "hardswish", "celu", "elu", "selu")
    },
    **{name: getattr(F, name) for name in ("silu", "mish", "softplus", "leaky_relu", "relu6", "hardtanh", "logsigmoid")},
    **{name: getattr(torch, name) for name in ("logit", "sinc", "deg2rad", "rad2deg", "isposinf", "angle", "frexp")},
    "round": lambda x: x.round(decimals=2),
    "clamp": lambda x: x.clamp(0, 1),
    "power": lambda x: x**3,
    "power of a number": lambda x: 2**x,
    "softmax": lambda x: x.softmax(-1),
    "mean": lambda x: x.mean(-1, keepdim=True) if x.ndim else x.mean(),
    "sorted": lambda x: x.sort(),
    "turned by a quarter": lambda x: x.rot90(1, (0, 1)) if x.ndim > 1 else x.clone(),
    "turned around": lambda x: x.rot90(4, (0, 1)) if x.ndim > 1 else x.clone(),
    "put": lambda x: x.put(torch.zeros(0, dtype=torch.int64), torch.zeros(0)),
    "whole numbers": lambda x: x.long().log2(),
}
OF_TWO = {
    "a sum with a multiple": lambda x, y: torch.add(x, y, alpha=2),
    "a difference with a multiple": lambda x, y: torch.sub(x, y, alpha=3),
    "the reverse": lambda x, y: torch.rsub(x, y, alpha=3),
    "a sum with a multiple in another dtype": lambda x, y: torch.add(x, y.double(), alpha=2),
    "whole quotients": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "bounds": lambda x, y: x.clamp(y, y),
    "a choice": lambda x, y: torch.where(x > y, x, y),
    "a weighted mean": lambda x, y: x.lerp(y, 0.25),
    "a product added": lambda x, y: torch.addcmul(x, y, y, value=2),
    "squared differences": lambda x, y: F.mse_loss(x, y, reduction="none") if x.shape == y.shape else x,
    "smooth differences": lambda x, y: F.smooth_l1_loss(x, y, reduction="none") if x.shape == y.shape else x,
    "Huber's loss": lambda x, y: F.huber_loss(x, y, reduction="none") if x.shape == y.shape else x,
}


def described(found):
    return [(tuple(t.shape), t.stride(), t.dtype) for t in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("layout", LAYOUTS_OF_TENSORS)
@pytest.mark.parametrize("name", OF_ONE)
def test_results_lie_as_in_eager(name, layout):
    x = torch.empty_strided(*LAYOUTS_OF_TENSORS[layout])
    mode = FakeMode()
    with mode:
        found = described(OF_ONE[name](mode.from_real(x)))
    assert found == described(OF_ONE[name](x))


@pytest.mark.parametrize("a, b", [*PAIRS, *((name, name) for name in LAYOUTS_OF_TENSORS)], ids=" and ".join)
@pytest.mark.parametrize("name", OF_TWO)
def test_results_of_two_lie_as_in_eager(name, a, b):
    x, y = (torch.empty_strided(*LAYOUTS_OF_TENSORS[layout]) for layout in (a, b))
    mode = FakeMode()
    with mode:
        found = described(OF_TWO[name](mode.from_real(x), mode.from_real(y)))
    assert found == described(OF_TWO[name](x, y))
