"""aot_compile() and save(): what they take, and what they say of the rest."""

import io

import pytest
import torch
import tracework

X = torch.ones(3)


def double(x, k=2.0):
    return x * k


def test_what_is_saved_is_loaded():
    file = io.BytesIO()
    tracework.save(tracework.aot_compile(double, (X,)), file)
    assert torch.equal(tracework.load(file)(X), double(X))


def test_what_compile_gave_is_taken():
    assert torch.equal(tracework.aot_compile(tracework.compile(double), (X,), {"k": 3.0})(X, k=3.0), X * 3)


WRONG = {
    "takes a function, method": lambda: tracework.aot_compile(3, (X,)),
    "takes a tuple of arguments": lambda: tracework.aot_compile(torch.sin, X),
    "takes a dict of arguments": lambda: tracework.aot_compile(torch.sin, (X,), [1]),
    "do not fit .*missing a required argument": lambda: tracework.aot_compile(lambda x, y: x, (X,)),
    r"takes the pair \(args, kwargs\)": lambda: tracework.compile(torch.sin).aot_compile((X,)),
    "is for backend='inductor'": lambda: tracework.compile(torch.sin, backend="eager").aot_compile(((X,), {})),
    r"save\(\) takes what aot_compile\(\) or compile\(\) gave": lambda: tracework.save(torch.sin, "m.tw"),
    "'beside' takes the name": lambda: tracework.save(tracework.aot_compile(torch.sin, (X,)), io.BytesIO(), weights="beside"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises((tracework.InvalidArgument, tracework.NotCallable), match=message):
        WRONG[message]()
