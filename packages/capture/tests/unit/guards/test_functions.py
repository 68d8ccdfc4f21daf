"""Digests of code say the same in each process, and functions are found below what decorators made of them."""

import functools

from tracework_capture.guards.functions import address_of_function, digest_of_code, function_of_code


def test_digests_do_not_depend_on_the_order_of_a_set():
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert list(one) != list(other)
    code = compile("x = 1", "file", "exec")
    codes = [code.replace(co_consts=((1.5, members),)) for members in (one, other)]
    assert len(set(map(digest_of_code, codes))) == 1


def test_the_place_of_code_is_part_of_its_digest():
    texts = ("x = 1", "x = 2", "\nx = 1")
    assert len({digest_of_code(compile(text, "file", "exec")) for text in texts}) == 3
    assert digest_of_code(compile("x = 1", "file", "exec")) == digest_of_code(compile("x = 1", "file", "exec"))
    assert digest_of_code(compile("x = 1", "file", "exec")) != digest_of_code(compile("x = 1", "other", "exec"))


def decorated(function):
    @functools.wraps(function)
    def outer(*args):
        return function(*args)

    return outer


@decorated
@functools.lru_cache
def inside():
    return 1


def test_functions_are_found_below_their_decorators():
    function = inside.__wrapped__.__wrapped__
    kind, module, name, names, *_ = address_of_function(function)
    assert (kind, module, name, names) == ("decorated", __name__, "inside", ["function", "__wrapped__"])
    assert address_of_function(inside)[:3] == ["function", __name__, "inside"]
    assert address_of_function(lambda: 0) is None
    assert function_of_code(function.__code__) is function
