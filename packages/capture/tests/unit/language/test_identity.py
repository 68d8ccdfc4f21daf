"""`is` of texts, numbers and tuples: objects that exist are told apart as plain Python does, in every call."""

import copy
import sys

import pytest
import torch
import tracework_capture as capture


def backend(gm, example_inputs):
    return gm.forward


pytestmark = pytest.mark.usefixtures("fresh")


@capture.disable
def nothing(*anything):
    pass


def another(text):
    return "".join(list(text))


NAME, LONG = "a_name", "no name, that is"


def two_arguments(x, first, second):
    return x + 1, first is second, first is not second


def with_a_constant(x, text, number):
    return x + 1, text is NAME, number is LARGE


LARGE = 10**6


@pytest.mark.parametrize("text", [NAME, LONG])
def test_arguments_are_told_apart_in_each_call(text):
    compiled = capture.optimize(backend)(two_arguments)
    other = another(text)
    x = torch.ones(2)
    for first, second in [(text, text), (text, other), (other, other), (other, text), (LARGE, LARGE), (LARGE, int("1000000"))]:
        assert compiled(x, first, second)[1:] == two_arguments(x, first, second)[1:]


def test_an_argument_is_told_apart_from_a_constant_in_each_call():
    compiled = capture.optimize(backend)(with_a_constant)
    x = torch.ones(2)
    for text in (NAME, another(NAME), NAME):
        for number in (LARGE, int("1000000"), LARGE):
            assert compiled(x, text, number)[1:] == with_a_constant(x, text, number)[1:]


def test_a_constant_argument_comes_back_itself():
    compiled = capture.optimize(backend)(lambda x, *rest: (x + 1, rest, {"k": rest[0]}))
    slots = capture.optimize(backend)(lambda x, text: (x + 1, text))
    x = torch.ones(2)
    for text in (NAME, another(NAME), LONG, another(LONG)):
        assert slots(x, text)[1] is text
        assert compiled(x, text)[1] == (text,)


def made_while_tracing(x, text):
    made = text[:2] + text[2:]
    pair, same_pair = (text, 1), (text, 1)
    nothing()
    return x + 1, made is text, made == text, pair is same_pair, sys.intern(made) is made


@pytest.mark.parametrize("text", [NAME, LONG])
def test_a_made_text_is_no_constant_after_a_break(text):
    compiled = capture.optimize(backend)(made_while_tracing)
    x = torch.ones(2)
    for _ in range(2):
        assert compiled(x, sys.intern(text))[1:] == made_while_tracing(x, sys.intern(text))[1:] == (False, True, False, False)


def constants(x):
    first, second = (1, ("a", 2)), (1, ("a", 2))
    nothing()
    return x + 1, first is second, first[1] is second[1], first


def made(x, item):
    return x + 1, (item, 1)


def test_tuples_of_the_code_are_its_own_and_others_are_made_each_time():
    x = torch.ones(2)
    compiled = capture.optimize(backend)(constants)
    assert compiled(x)[1:3] == (True, True)
    assert compiled(x)[3] is constants(x)[3]
    compiled = capture.optimize(backend)(made)
    assert compiled(x, 0)[1] == (0, 1)
    assert compiled(x, 0)[1] is not compiled(x, 0)[1]


def test_a_range_that_was_given_comes_back_itself():
    def given(x, steps):
        nothing(steps)
        return x + len(steps), copy.copy(steps) is steps, steps

    call = capture.optimize(backend)(given)
    for count in (3, 3, 4):
        steps = range(count)
        found, same, back = call(torch.ones(2), steps)
        assert torch.equal(found, torch.ones(2) + count) and same and back is steps
