"""functools.cmp_to_key: the program's function is called as often, and on the same items, as plain Python calls it."""

import functools
import heapq

import pytest
import torch
from harness import capture, check

X = torch.ones(3)


def compare(left, right):
    return (left > right) - (left < right)


def sorted_by_it(x):
    pairs = []

    def noted(left, right):
        pairs.append((left, right))
        return compare(left, right)

    numbers = [3, 1, 2, 1]
    numbers.sort(key=functools.cmp_to_key(noted), reverse=True)
    return x + 1, numbers, sorted([3, 1, 2], key=functools.cmp_to_key(noted)), max("bca", key=functools.cmp_to_key(noted)), pairs


def keys_in_a_heap(x):
    backwards, heap = functools.cmp_to_key(lambda left, right: right - left), []
    for number in (1, 3, 2):
        heapq.heappush(heap, backwards(number))
    return x * heapq.heappop(heap).obj, [heapq.heappop(heap).obj for _ in range(2)]


def tensors(x):
    return sorted([x, x[:2] * 2], key=functools.cmp_to_key(lambda left, right: len(left) - len(right)))


def what_it_refuses(x):
    key, said = functools.cmp_to_key(compare), []
    for call in (
        lambda: key(1) < 3,
        lambda: 3 < key(1),
        lambda: key < key(1),
        lambda: {key(1)},
        lambda: sorted("a1", key=key(2)),
    ):
        try:
            said.append(call())
        except (TypeError, AttributeError) as error:
            said.append((type(error).__name__, str(error)))
    return x + 1, said, key(1) == key(1), key(2) != key(2), key(obj=2) >= key(1)


def an_error_of_the_function(x):
    try:
        sorted([1, "a"], key=functools.cmp_to_key(compare))
    except TypeError as error:
        return x + 1, str(error)


@pytest.mark.parametrize(
    "fn", [sorted_by_it, keys_in_a_heap, tensors, what_it_refuses, an_error_of_the_function], ids=lambda fn: fn.__name__
)
def test_same_as_plain(fn):
    check(fn, X)


def test_keys_that_leave_the_program():
    def step(x):
        return x * 2, functools.cmp_to_key(compare), functools.cmp_to_key(compare)(3)

    run, _ = capture(step, X)
    _, key, three = run()
    assert three.obj == 3 and key(2) < three < key(4)
