"""Functions of NumPy that are given tensors: what NumPy gives, and says, in one graph where NumPy only asks for the memory."""

import warnings

import numpy as np
import pytest
import torch
import tracework_capture as capture
from tracework_capture.hook.context import FrameCallback
from tracework_capture.options import CaptureOptions
from tracework_capture.values.arrays.tensors import ATTRIBUTE_FUNCTIONS, CONVERTING, MAKING, WRAPPING
from tracework_capture.values.arrays.ufuncs import UFUNCS

FUNCTIONS = sorted({u.__name__ for u in vars(np).values() if isinstance(u, np.ufunc) and u.nout == 1 and u.signature is None})
TENSORS = {
    "float": torch.tensor([[0.25, 0.5, 1.0], [0.75, 2.0, 3.0]]),
    "negative": torch.tensor([[-0.25, -0.5, -1.0], [0.75, float("nan"), float("inf")]], dtype=torch.float64),
    "int": torch.tensor([[1, 2, 3], [4, 5, 6]]),
    "bool": torch.tensor([[True, False, True], [False, False, True]]),
    "turned": torch.arange(1.0, 7.0).reshape(3, 2).t()[:, 1:],
    "number": torch.tensor(0.5),
}
ASKING_ONE = (
    "atleast_1d atleast_2d atleast_3d copy count_nonzero cov diagonal diff median nan_to_num nanmean ravel rot90 sort trace tril triu"
).split()
GIVEN = {
    "average": lambda t: np.average(t, axis=0),
    "broadcast_to": lambda t: np.broadcast_to(t, (2, 2, 3)),
    "column_stack": lambda t: np.column_stack((t, t)),
    "concatenate": lambda t: (np.concatenate([t, np.ones((1, 3))]), np.concatenate((t, t), axis=None)),
    "dstack": lambda t: np.dstack([t, t]),
    "einsum": lambda t: np.einsum("ij,kj->ik", t, t),
    "expand_dims": lambda t: np.expand_dims(t, 1),
    "histogram": lambda t: np.histogram(t, 3),
    "hstack": lambda t: np.hstack([t, t]),
    "interp": lambda t: np.interp(t, [0.0, 1.0], [1.0, 2.0]),
    "pad": lambda t: np.pad(t, 1),
    "percentile": lambda t: np.percentile(t, 25),
    "quantile": lambda t: np.quantile(t, 0.5),
    "roll": lambda t: np.roll(t, 1),
    "stack": lambda t: np.stack([t, t], 1),
    "tile": lambda t: np.tile(t, 2),
    "vstack": lambda t: np.vstack((t, t)),
    "where": lambda t: (np.where(t > 0.5, t, 0), np.where(t > 0.5, 1.0, t)),
    "array": lambda t: (np.array([t, t]), np.array(t), np.array(t, float, ndmin=3)),
    "asarray": lambda t: np.asarray([t, t]),
    "asanyarray": lambda t: np.asanyarray((t, t)),
    **{
        name: lambda t, name=name: getattr(np, name)(t, t)
        for name in ("allclose", "array_equal", "isclose", "outer", "vdot", "inner")
    },
    **{name: lambda t, name=name: getattr(np, name)(t) for name in ASKING_ONE},
    "dot": lambda t: (np.dot(t, t.T), np.dot(np.ones((2, 2), np.float32), t)),
    "partition": lambda t: np.partition(t, 0),
    "resize": lambda t: np.resize(t, (2, 2)),
    "linalg.norm": lambda t: np.linalg.norm(t, axis=1),
}
LEFT = {"left_shift", "right_shift"}
"""By numbers that are not known these are NumPy's own."""


def said(program, *args):
    """What it gives, or the type of the error that it raises, and what it warns of."""
    with warnings.catch_warnings(record=True) as found, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            result = program(*args)
        except Exception as error:
            result = type(error)
    return result, [(str(each.message), each.category) for each in found]


def check(got, wanted):
    assert type(got) is type(wanted)
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted):
            check(one, other)
    elif isinstance(wanted, (torch.Tensor, np.ndarray, np.generic)):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(
            np.asarray(got), np.asarray(wanted), rtol=2e-6 if "32" in str(wanted.dtype) else 1e-13, atol=1e-16
        )
    else:
        assert got == wanted


def compiled(program):
    callback = FrameCallback(lambda gm, inputs: gm.forward, CaptureOptions(), program)
    return callback.wrap(program), callback


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_ufunc_of_a_tensor_is_a_tensor(name, fresh):
    ufunc = getattr(np, name)

    def program(t):
        return (
            ufunc(*[t] * ufunc.nin) if ufunc.nin != 2 else (ufunc(t, t), ufunc(t, 2), ufunc(np.ones(t.shape, t.numpy().dtype), t))
        )

    kept = 0
    for tensor in TENSORS.values():
        capture.reset()
        call, callback = compiled(program)
        (got, told), (wanted, warned) = said(call, tensor), said(program, tensor)
        check(got, wanted)
        assert told == warned
        kept += not callback.breaks and not callback.skipped
    assert kept or name not in UFUNCS or name in LEFT


@pytest.mark.parametrize("name", sorted({*GIVEN, *CONVERTING, *MAKING}))
def test_a_function_that_asks_for_an_array_gets_one(name, fresh):
    call, callback = compiled(GIVEN[name])
    for _ in range(2):
        (got, told), (wanted, warned) = said(call, TENSORS["float"]), said(GIVEN[name], TENSORS["float"])
        check(got, wanted)
        assert told == warned
    assert not callback.breaks and not callback.skipped


ARGUMENTS = {
    "clip": [(1, 2), (None, 1)],
    "repeat": [(2,), (2, 0)],
    "reshape": [(-1,), ((-1, 1),)],
    "swapaxes": [(0, -1)],
    "take": [([0, 0],), (0, 0)],
    **dict.fromkeys(("cumsum", "cumprod", "argmax", "argmin", "squeeze"), [(), (0,)]),
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("name", (*WRAPPING, *ATTRIBUTE_FUNCTIONS))
def test_a_function_that_calls_a_method_gives_what_the_tensors_or_the_wrapped_arrays_gives(name, kind, fresh):
    function = getattr(np, name)
    for given in ARGUMENTS.get(name, [()]):
        capture.reset()

        def program(t, given=given):
            return function(t, *given)

        call, callback = compiled(program)
        for _ in range(2):
            (got, told), (wanted, warned) = said(call, TENSORS[kind]), said(program, TENSORS[kind])
            check(got, wanted)
            assert told == warned
        assert not callback.breaks or kind in ("number", "bool") or isinstance(wanted, type)
        if isinstance(wanted, torch.Tensor):
            assert got.stride() == wanted.stride() and got.requires_grad == wanted.requires_grad
            shared = [np.shares_memory(found.numpy(), TENSORS[kind].numpy()) for found in (got, wanted)]
            assert shared[0] == shared[1]


@pytest.mark.parametrize("name", (*WRAPPING, *ATTRIBUTE_FUNCTIONS))
def test_other_arguments_and_tensors_that_ask_gradients(name, fresh):
    function, tensor = getattr(np, name), torch.rand(2, 3, requires_grad=True)
    given = ARGUMENTS.get(name, [()])[0]
    for arguments, named in (
        ((tensor, *given), {}),
        ((tensor.detach(), *given), {"out": None}),
        ((tensor.detach().numpy(), *given), {}),
    ):
        capture.reset()

        def program(*args, named=named):
            return function(*args, **named)

        (got, told), (wanted, warned) = said(compiled(program)[0], *arguments), said(program, *arguments)
        check(*(found.detach() if isinstance(found, torch.Tensor) else found for found in (got, wanted)))
        assert told == warned and getattr(got, "requires_grad", None) == getattr(wanted, "requires_grad", None)


@pytest.mark.parametrize(
    "tensor", [torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.bfloat16), torch.ones(2).to("meta")]
)
@pytest.mark.parametrize("program", [np.sin, lambda t: np.stack([t, t])])
def test_a_tensor_without_an_array_raises_as_in_plain_python(program, tensor, fresh):
    def called(t):
        return program(t)

    assert said(compiled(called)[0], tensor) == said(called, tensor)


def test_a_tensor_subclass_and_a_mode_are_asked(fresh):
    asked = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            asked.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def under_mode(t):
        with Mode():
            return np.sin(t)

    for program, tensor in ((lambda t: np.sin(t), torch.ones(2).as_subclass(Own)), (under_mode, torch.ones(2))):
        seen = []
        for call in (program, compiled(program)[0]):
            said(call, tensor)
            seen.append(asked[:])
            asked.clear()
        assert seen[0] == seen[1]
