# ruff: noqa: UP031, UP032  # the ways to write texts are what is tested
"""Texts of tensors, arrays and NumPy's numbers are written when the graph has run, of what these held where the program asked."""

import numpy
import pytest
import torch
from tracework_capture import optimize


def fields(x):
    total = x.sum()
    return (
        x + 1,
        f"{total} {total:.3f} {x} {total!r} {total!s:>20} {x.int().sum():d} {x.bool().all()} {x.half().sum():.2e} {x > 0}",
    )


def percent(x):
    return x + 1, "%s|%5.1f|%d|%s" % (x, x[1], 3, "a"), "%.2f" % x.sum(), "100%% %s" % x[0]


def templates(x):
    return (
        x + 1,
        "{} {:.2f} {}".format(1, x.sum(), "a"),
        "{}".format(x),
        "{:>8}".format(x.sum()),
        "{k:.1f} {n}".format(k=x[0], n=x.shape),
    )


def functions(x):
    return x + 1, str(x), repr(x * 2), format(x[0], ".1f"), str(x.bool())


def written_later(x):
    y = x.clone()
    before = f"{y} {y.sum():.1f}"
    y.mul_(2)
    return y, before, f"{y}"


def with_history(x):
    loss = (x.clone().requires_grad_() * 2).sum()
    return x + 1, f"{loss}", f"{loss:.2f}", "{:.1f}".format(loss), str(loss.detach())


def in_modes(x):
    with torch.inference_mode():
        first = f"{x.sum()} {x}"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second = f"{x @ x} {x @ x:.1f}"
    return x + 1, first, second


def of_an_exception(x):
    try:
        if x.numel() == 3:
            raise ValueError(f"bad {x.sum()}")
    except ValueError as error:
        return x + 1, str(error), f"{error}"


def printed(x):
    loss = x.sum()
    print(f"loss {loss:.4f} {x}", "%.1f" % loss)
    return loss * 2, 1


@pytest.mark.parametrize(
    "program", [fields, percent, templates, functions, written_later, with_history, in_modes, of_an_exception, printed]
)
def test_texts_of_tensors_break_no_graph(program, capsys):
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for _ in range(2):
        x = torch.randn(3)
        found, said = compiled(x), capsys.readouterr()
        expected, wanted = program(x), capsys.readouterr()
        assert said == wanted
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def of_arrays(a):
    a = a.copy()
    texts = (
        str(a),
        repr(a),
        f"{a}",
        f"{a.sum():.3f}",
        f"{a.sum()}",
        "%s" % a.max(),
        str(a > 1),
        f"{a.astype(int).sum():d}",
        f"{a.sum()!r}",
    )
    a += 1
    return a, texts, str(a)


def test_texts_of_arrays_break_no_graph():
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(of_arrays)
    for _ in range(2):
        given = numpy.random.default_rng(0).normal(size=3)
        found, expected = compiled(given), of_arrays(given)
        assert (found[0] == expected[0]).all() and found[1:] == expected[1:]


def as_a_key(x):
    return x + 1, {f"{x.sum()}": 1, str(x): 2}


def refused_format(x):
    try:
        return x + 1, f"{x:.2f}"
    except TypeError as error:
        return x - 1, str(error)


def refused_number(x):
    try:
        return x + 1, f"{x.sum():d}"
    except ValueError as error:
        return x - 1, str(error)


def repr_in_a_template(x):
    return x + 1, "{!r} {!s}".format(x[0], x[1]), "%r" % x


def parameter(x):
    weight = torch.nn.Parameter(torch.tensor(2.0))
    return x + weight.detach(), f"{weight.data:.1f}", f"{weight}"


def printed_otherwise(x):
    before = str(x)
    torch.set_printoptions(precision=1)
    return x + 1, before, str(x)


@pytest.mark.parametrize("program", [as_a_key, refused_format, refused_number, repr_in_a_template, parameter, printed_otherwise])
def test_others_are_what_plain_python_gives(program):
    compiled, x = optimize(lambda gm, inputs: gm.forward)(program), torch.tensor([0.25, 1.125, -2.0])
    try:
        found = compiled(x)
        torch.set_printoptions(profile="default")
        expected = program(x)
    finally:
        torch.set_printoptions(profile="default")
    assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


class Shown:
    def __str__(self):
        return "as text"

    def __repr__(self):
        return "as repr"


class Numbered:
    def __index__(self):
        return 3


class Counted:
    def __int__(self):
        return 5


class Formatted:
    def __format__(self, spec):
        return f"<{spec}>"


LAYER = torch.nn.Linear(2, 2)


def objects_in_percent(x):
    return (
        x + 1,
        "%s" % Shown(),
        "%s %.1f %s" % (Shown(), 1.5, x[0]),
        "%d %x %d" % (Numbered(), Numbered(), Counted()),
        "%s" % LAYER,
    )


def objects_in_templates(x):
    texts = "{} {!r} {:>3}".format(Shown(), Shown(), 1), "{:.3f} {o!s:>9} {o}".format(Formatted(), o=Shown())
    return x + 1, texts, "{} {t:.1f} {t!r}".format(LAYER, t=x[0])


@pytest.mark.parametrize("program", [objects_in_percent, objects_in_templates])
def test_objects_are_asked_for_their_texts_in_the_graph(program):
    compiled = optimize(lambda gm, inputs: gm.forward, fullgraph=True)(program)
    for _ in range(2):
        x = torch.randn(3)
        found, expected = compiled(x), program(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
