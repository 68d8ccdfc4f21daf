"""A loaded artifact refuses inputs that it was not compiled for."""

import pytest
import torch
from tracework_runtime import Artifact, ArtifactError, InputError, SymbolBinding, TensorCheck, cudagraph, load

HOST = "def call(args):\n    given = tuple(args)\n    args.clear()\n    return given\n"
FIXED = TensorCheck(0, "x", "float32", "cpu", (4, 8), (8, 1))
SYMBOLIC = Artifact(
    "k" * 8,
    HOST,
    checks=(
        TensorCheck(1, "x", "float32", "cpu", ("s0", "2*s0"), ("2*s0", 1)),
        TensorCheck(2, "y", "float32", "cpu", ("s1",), ("s2",)),
    ),
    symbols=(SymbolBinding("s0", "value", 0), SymbolBinding("s1", "size", 2, 0), SymbolBinding("s2", "stride", 2, 0)),
    conditions=("s0 > s1", "n == s0 + s1", "max(s0, 2) != 7"),
    inputs=("size", "x", "y", "n"),
)


def loaded(*checks, **facts):
    return load(Artifact("k" * 8, HOST, checks=checks, **facts))


def x(*sizes, **facts):
    return torch.zeros(*sizes, **facts)


REFUSED = {
    "another size": (x(2, 2), r"input 0 \(x\): sizes: expected \(4, 8\), got \(2, 2\)"),
    "one dimension more": (x(1, 4, 8), "sizes"),
    "no dimensions": (x(()), "sizes"),
    "no elements": (x(0, 8), "sizes"),
    "another dtype": (x(4, 8, dtype=torch.float64), "dtype: expected torch.float32, got torch.float64"),
    "integers": (x(4, 8, dtype=torch.int32), "dtype"),
    "another device": (x(4, 8, device="meta"), "device: expected cpu, got meta"),
    "transposed": (x(8, 4).t(), r"strides: expected \(8, 1\), got \(1, 4\)"),
    "a part of rows": (x(4, 16)[:, :8], "strides"),
    "expanded": (x(8).expand(4, 8), "strides"),
    "later in its memory": (x(5, 8)[1:], "storage offset: expected .0., got 8"),
    "sparse": (x(4, 8).to_sparse(), "layout"),
    "negated": (torch.complex(x(4, 8), x(4, 8)).conj().imag, "memory"),
    "a number": (3.0, "type: expected torch.Tensor, got float"),
    "nothing": (None, "type"),
    "a list": ([[0.0] * 8] * 4, "type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_inputs_are_refused(name):
    value, message = REFUSED[name]
    box = [value]
    with pytest.raises(InputError, match=message):
        loaded(FIXED)(box)
    assert len(box) == 1
    with pytest.raises(InputError, match="check_inputs=False"):
        loaded(FIXED).call([value])
    assert load(Artifact("k" * 8, HOST, checks=(FIXED,)), check_inputs=False)([value])[0] is value


TAKEN = {
    "as compiled": (FIXED, x(4, 8)),
    "a parameter": (FIXED, torch.nn.Parameter(x(4, 8))),
    "another stride over one element": (
        TensorCheck(0, "x", "float32", "cpu", (4, 1), (1, 1)),
        x(4, 1).as_strided((4, 1), (1, 9)),
    ),
    "another stride of nothing": (TensorCheck(0, "x", "float32", "cpu", (0, 3), (3, 1)), x(3, 0).t()),
    "any GPU": (TensorCheck(0, "x", "float32", "meta", (4,), (1,)), x(4, device="meta")),
    "aligned": (TensorCheck(0, "x", "float32", "cpu", (4,), (1,), alignment=4), x(4)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_inputs_that_do_not_differ_are_taken(name):
    check, value = TAKEN[name]
    assert loaded(check)([value])[0] is value


def test_alignment():
    memory = x(64)
    check = TensorCheck(0, "x", "float32", "cpu", (4,), (1,), offset="s0", alignment=64)
    taken = [n for n in range(32) if not (memory.data_ptr() + 4 * n) % 64]
    for n in range(32):
        part = memory[n : n + 4]
        if n in taken:
            assert loaded(check)([part])[0] is part
        else:
            with pytest.raises(InputError, match="divisible by 64"):
                loaded(check)([part])


def test_the_number_of_inputs():
    with pytest.raises(InputError, match="1 inputs expected, 0 given"):
        loaded(FIXED)([])
    with pytest.raises(InputError, match="1 inputs expected, 2 given"):
        loaded(FIXED, inputs=("x",))([x(4, 8), x(4, 8)])


def symbolic(s0, s1, n, **changes):
    given = {"size": s0, "x": x(s0, 2 * s0), "y": x(3 * s1)[::3], "n": n} | changes
    return load(SYMBOLIC)(list(given.values()))


SYMBOLIC_REFUSED = {
    "a condition": ((2, 3, 5, {}), r"compiled for s0 > s1, which does not hold where s0 = 2, s1 = 3"),
    "a number that is computed": ((3, 2, 6, {}), "n == s0"),
    "a size and its symbol": ((3, 2, 5, {"x": x(4, 8)}), r"sizes: expected \(s0, 2\*s0\) where s0 = 3, got \(4, 8\)"),
    "a size and an expression": ((3, 2, 5, {"x": x(3, 7)}), "sizes"),
    "a stride and an expression": ((3, 2, 5, {"x": x(6, 3).t()}), "strides"),
    "a function": ((7, 2, 9, {}), "max"),
    "no number": ((3, 2, 5, {"size": 3.0}), "input 0: a number .int. expected, float given"),
    "no number that is computed": ((3, 2, None, {}), "missing among the inputs"),
}


@pytest.mark.parametrize("name", SYMBOLIC_REFUSED)
def test_relations_of_sizes(name):
    (s0, s1, n, changes), message = SYMBOLIC_REFUSED[name]
    assert len(symbolic(5, 4, 9)) == 4
    with pytest.raises(InputError, match=message):
        symbolic(s0, s1, n, **changes)


def test_text_that_is_no_expression():
    with pytest.raises(ArtifactError, match="no expression"):
        loaded(conditions=("s0 >",))


def test_a_recorded_function_checks_too():
    fn = cudagraph(loaded(TensorCheck(0, "x", "float32", "cuda:0", (4,), (1,)), devices=frozenset()))
    with pytest.raises(InputError, match="device"):
        fn([x(4)])


def test_round_trip():
    again = Artifact.from_bytes(SYMBOLIC.to_bytes())
    assert again == SYMBOLIC
