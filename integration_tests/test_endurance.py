"""A fixed sample of endurance.py: compiled programs that are called often keep no memory, and leave nothing when they are deleted."""

import sys
import threading

import endurance
import pytest
import torch
import tracework


@pytest.mark.parametrize("name", endurance.PROGRAMS)
def test_nothing_grows_and_nothing_stays(name):
    make, share = endurance.PROGRAMS[name]
    calls = max(1000, 10_000 // share)
    blocks, size, _ = endurance.growth(make, calls, warm_up=calls // 2)
    assert blocks < calls // 2 and size < endurance.RESIDENT  # a leak is a block a call
    assert not endurance.left_behind(make)


def test_many_threads_and_shapes():
    def program(x, y):
        return torch.relu(x) * 2 + y.sum() + x.shape[0]

    call, wrong, barrier = tracework.compile(program), [], threading.Barrier(32)

    def work(number):
        barrier.wait(60)
        try:
            for i in range(200):
                n = 2 + (i * 7 + number * 13) % 200
                x, y = torch.full((n, 3), float(number)), torch.ones(n)
                if not torch.equal(call(x, y), x * 2 + n + n):
                    wrong.append(n)
        except BaseException as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        workers = [threading.Thread(target=work, args=(k,)) for k in range(32)]
        [w.start() for w in workers]
        [w.join() for w in workers]
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
