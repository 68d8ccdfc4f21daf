"""The memory that recordings share: which pool what comes from, and that torch's allocator is asked in the way that it asserts."""

import contextlib
import gc
import itertools
import sys
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tracework_runtime import Artifact, _torch
from tracework_runtime.cudagraph import arena, engine
from tracework_runtime.cudagraph.arena import Arena
from tracework_runtime.cudagraph.budget import BUDGET
from tracework_runtime.host.lines import Call, Free, Inputs, Return
from tracework_runtime.host.program import host_program


class Allocator:
    """As torch counts: a pool lives until it was released as often as entered, and never again; a thread takes from the first it is in."""

    def __init__(self):
        self.counts, self.entered, self.taken, self.handles = {}, [], [], itertools.count(1)

    def handle(self):
        return (0, next(self.handles))

    def enter_pool(self, device, pool):
        assert pool not in self.entered and self.counts.get(pool) != 0
        self.counts[pool] = self.counts.get(pool, 0) + 1
        self.entered.append(pool)

    def leave_pool(self, device, pool):
        self.entered.remove(pool)

    def release_pool(self, device, pool):
        assert self.counts[pool] > 0
        self.counts[pool] -= 1

    def take(self):
        self.taken.append(self.entered[0])

    @property
    def alive(self):
        return {pool for pool, count in self.counts.items() if count}


@contextlib.contextmanager
def allocator():
    made = Allocator()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("enter_pool", "leave_pool", "release_pool"):
            patch.setattr(_torch, name, getattr(made, name))
        patch.setattr(torch.cuda, "graph_pool_handle", made.handle)
        patch.setattr(arena, "_ARENAS", {})
        patch.setattr(BUDGET, "arenas", {})
        patch.setattr(engine, "driver", lambda: types.SimpleNamespace(recording=recording))
        yield made


@pytest.fixture
def pools():
    with allocator() as made:
        yield made


class Graph:
    handle = 1


@contextlib.contextmanager
def recording(stream):
    yield Graph()


PROGRAM = host_program(
    Artifact(
        "k" * 8,
        "",
        host_lines=(
            Inputs(()),
            Call(("a = take()",), (), ("a",)),
            Call(("b = take()",), (), ("b",)),
            Call(("c = take()", "go_on()"), (), ("c",)),
            Free(("a", "c")),
            Return(("b",), ("b",)),
        ),
    ),
    namespace := {},
)


def record(pools, shared, fails=False):
    """A recording of scratch memory, then some that it returns, then scratch memory again."""
    namespace.update(take=pools.take, go_on=lambda: 1 / 0 if fails else None)
    return engine._by_driver(PROGRAM, [], 0, 5, shared)


def test_what_is_returned_comes_from_a_pool_of_the_recordings_own(pools):
    first, second = (record(pools, Arena.entered(0, 7)) for _ in range(2))
    scratch, own, again, *others = pools.taken
    assert scratch == again and others[::2] == [scratch] * 2 and len({scratch, own, others[1]}) == 3
    assert not pools.entered and pools.alive == {scratch, own, others[1]}
    del first
    assert pools.alive == {scratch, others[1]}
    del second
    assert not pools.alive and not arena._ARENAS


def test_a_recording_without_the_arena_has_one_pool(pools):
    made = record(pools, None)
    assert len(set(pools.taken)) == 1 and len(pools.alive) == 1
    del made
    assert not pools.alive


def test_streams_and_devices_have_arenas_of_their_own(pools):
    places = [(0, 7), (0, 8), (1, 7), (0, 7)]
    made = [record(pools, Arena.entered(*place)) for place in places]
    scratch = pools.taken[::3]
    assert scratch[0] == scratch[3] and len(set(scratch)) == 3
    del made[:]


def test_an_arena_that_ended_is_not_entered_again(pools):
    for _ in range(3):
        record(pools, Arena.entered(0, 7))
        assert not pools.alive
    assert len(set(pools.taken)) == 6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["record", "fail", "alone", "drop"]), st.integers(0, 5)), max_size=30))
def test_any_order(steps):
    with allocator() as made:
        alive = []
        for word, number in steps:
            if word == "drop":
                del alive[number : number + 1]
            elif word == "fail":
                with pytest.raises(ZeroDivisionError):
                    record(made, Arena.entered(0, number % 2), fails=True)
            else:
                alive.append(record(made, None if word == "alone" else Arena.entered(0, number % 2)))
            assert not made.entered and bool(made.alive) == bool(alive)
        alive.clear()
        assert not made.alive and not arena._ARENAS


def test_what_lies_in_the_arena_is_seen(pools, monkeypatch):
    shared, inside, outside = Arena.entered(0, 7), torch.ones(8), torch.ones(8)
    monkeypatch.setattr(_torch, "pool_parts", lambda pool: [(inside.data_ptr(), 32)] if pool == shared.pool else [])
    assert shared.holds((None, 3, outside, inside[2:])) and not shared.holds((None, outside))
    assert shared.bytes == 32 and BUDGET.bytes(0) >= 32
    shared.leave()
    assert not BUDGET.arenas


@pytest.mark.skipif(not hasattr(torch._C, "_cuda_memorySnapshot"), reason="a torch without CUDA has no snapshots")
def test_snapshots_leave_the_numbers_of_a_pool_alone():
    """torch gives up references to them that it does not have: the pool's name would be freed while it is used."""
    pool = int("4" * 15), int("5" * 15)
    gc.collect()  # garbage of other tests holds False, too
    before, of_false = [sys.getrefcount(number) for number in pool], sys.getrefcount(False)
    for _ in range(1000):
        assert _torch.pool_parts(pool) == []
    assert [sys.getrefcount(number) for number in pool] == before
    assert abs(sys.getrefcount(False) - of_false) < 500, "one in two calls"
