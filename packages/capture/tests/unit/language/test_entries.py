"""An entry is not used for a call that differs in what it was made for."""

import collections
import gc

import builtin_cases
import pytest
import torch
import tracework_capture as capture
from interp_harness import assert_same

pytestmark = pytest.mark.usefixtures("fresh")


def optimized(function):
    return capture.optimize(lambda gm, example_inputs: gm.forward)(function)


def test_weak_references_are_compared_as_what_they_refer_to():
    compiled = optimized(builtin_cases.is_first)
    for reference in builtin_cases.REFERENCES:
        assert_same(compiled(torch.ones(2), reference), builtin_cases.is_first(torch.ones(2), reference))


def test_an_iterator_is_not_taken_for_a_list():
    compiled = optimized(builtin_cases.hands_round)
    for _ in range(2):
        for given in (iter([1, 2]), [3], (n for n in (4, 5)), (6,), None):
            if given is None:
                with pytest.raises(TypeError):
                    compiled(torch.ones(2), given)
            else:
                expected = list(given) if not hasattr(given, "__next__") else None
                found = compiled(torch.ones(2), given)[1]
                assert found == expected or expected is None and len(found) == 2


def test_an_attribute_that_a_module_gets_later(monkeypatch):
    compiled = optimized(builtin_cases.asks_for_an_attribute)
    assert compiled(torch.ones(2)).tolist() == [1, 1]
    monkeypatch.setattr(builtin_cases.sys, "tracework_number", 2, raising=False)
    assert compiled(torch.ones(2)).tolist() == [3, 3]


def test_a_view_sees_what_changes(monkeypatch):
    compiled = optimized(builtin_cases.a_view_of_a_mapping)
    assert compiled(torch.ones(2))[0].tolist() == [2, 2]
    monkeypatch.setitem(builtin_cases.SETTINGS, "scale", 5)
    assert compiled(torch.ones(2))[0].tolist() == [5, 5]


def scaled(x, n):
    return x + (n % 7 if n > 2 else 0)


def test_an_int_without_a_text_is_reported():
    compiled = optimized(scaled)
    for n in (3, 5, 9, 10**5000, 1, -(10**5000)):
        assert_same(compiled(torch.ones(2), n), scaled(torch.ones(2), n))


def shown(x, given):
    return x + 1, repr(given)


def test_the_text_of_an_empty_container_is_not_that_of_another():
    compiled = optimized(shown)
    for given in ([], [1], {}, {1: 2}, collections.deque(), collections.deque(maxlen=3)):
        assert compiled(torch.ones(2), given)[1] == repr(given)


def test_a_full_collection_leaves_what_leads_to_a_graph():
    counted = []

    def backend(gm, example_inputs):
        counted.append(gm)
        return gm.forward

    def breaks_first(x):
        number = nothing()
        number = [nothing() for _ in (lambda: (number,))()]
        return x + 1

    nothing = capture.disable(lambda: None)
    compiled = capture.optimize(backend)(breaks_first)
    for _ in range(3):
        compiled(torch.ones(2))
        gc.collect()
    assert len(counted) == 1


class Key:
    pass


@pytest.mark.parametrize("made", [lambda keys: dict.fromkeys(keys, 1), set, collections.OrderedDict.fromkeys])
def test_an_argument_is_not_taken_for_the_key_that_it_was(made):
    def program(x, held, argument):
        argument.met = True
        return x + 1, [each for each in held]

    compiled, keys = optimized(program), [Key(), Key()]
    held = made(keys[:1])
    for argument in (*keys, *keys):
        assert compiled(torch.ones(2), held, argument)[1] == keys[:1]


def test_keys_that_took_the_places_of_others():
    def program(x, held):
        return x + 1, [each for each in held]

    compiled = optimized(program)
    held = {Key(): 1, Key(): 2}
    for _ in range(3):
        assert compiled(torch.ones(2), held)[1] == list(held)
        held = {Key(): 1, Key(): 2} if len(held) == 2 else held
        assert compiled(torch.ones(2), held)[1] == list(held)
        held.clear()
        assert compiled(torch.ones(2), held)[1] == []
        held.update({Key(): 1, Key(): 2})
