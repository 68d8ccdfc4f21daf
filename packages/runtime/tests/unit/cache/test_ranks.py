"""Ranks stand as threads over one store of torch.distributed; two processes are in cpu/cache/test_two_ranks.py."""

import threading
import time

import pytest
import torch.distributed as dist
from tracework_runtime import Artifact, counters, reset_counters
from tracework_runtime.cache import ranks
from tracework_runtime.cache.memory import Cache
from tracework_runtime.cache.ranks import Ranks
from tracework_runtime.cache.seal import Seal
from tracework_runtime.cache.store import MemoryStore, warn_once

NAMES = [f"cpp/{n}" for n in range(6)]


class Rank:
    """What one rank makes and gets."""

    def __init__(self, store, key=b"k" * 32):
        self.ranks = Ranks(store, Seal(key))
        self.made, self.got = [], {}

    def make(self, names):
        self.made += names
        time.sleep(0.05)
        return {name: name.encode() for name in names}

    def take(self, name, content):
        if content is not None:
            self.got[name] = content
        return content is not None


def at_once(*works):
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_each_is_made_once_and_sent():
    store = dist.HashStore()
    some = [Rank(store) for _ in range(3)]
    reset_counters()
    at_once(*(lambda r=r, n=n: r.ranks.share(NAMES[n:] + NAMES[:n], r.make, r.take) for n, r in enumerate(some)))
    assert sorted(sum((r.made for r in some), [])) == NAMES
    assert all({*r.made, *r.got} == {*NAMES} and r.got == {n: n.encode() for n in r.got} for r in some)
    late = Rank(store)
    late.ranks.share(NAMES, late.make, late.take)
    assert not late.made and len(late.got) == len(NAMES)
    assert counters()["ranks.made"] == len(NAMES)


def test_what_cannot_be_used_is_made_here(monkeypatch):
    store = dist.HashStore()
    one, other_key = Rank(store), Rank(store, b"o" * 32)
    one.ranks.share(NAMES[:1], one.make, one.take)
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="ranks have different keys"):
        other_key.ranks.share(NAMES[:1], other_key.make, other_key.take)
    monkeypatch.setattr(ranks, "MOST_BYTES", 0)
    third = Rank(store)
    one.ranks.share(NAMES[1:2], one.make, one.take)
    third.ranks.share(NAMES[1:2], third.make, third.take)
    assert (other_key.made, third.made) == (NAMES[:1], NAMES[1:2])


def test_an_error_is_each_ranks_own():
    store = dist.HashStore()
    one, other = Rank(store), Rank(store)

    def fails(names):
        raise ValueError("no")

    for rank in (one, other):
        with pytest.raises(ValueError, match="no"):
            rank.ranks.share(NAMES[:1], fails, rank.take)
    third = Rank(store)
    third.ranks.share(NAMES[:1], third.make, third.take)
    assert third.made == NAMES[:1]


def test_of_those_that_wait_for_one_that_is_gone_one_makes_it(monkeypatch):
    monkeypatch.setattr(ranks, "DEAD", 0.3)
    monkeypatch.setattr(ranks, "BEAT", 0.05)
    store = dist.HashStore()
    Rank(store).ranks._claim(NAMES[0], 0)
    some = [Rank(store) for _ in range(3)]
    at_once(*(lambda r=r: r.ranks.share(NAMES[:1], r.make, r.take) for r in some))
    assert sum((r.made for r in some), []) == NAMES[:1]


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(ranks, "PATIENCE", 0.0)
    monkeypatch.setattr(ranks, "DEAD", 0.2)
    store = dist.HashStore()
    with Rank(store).ranks._beating():
        Rank(store).ranks._claim(NAMES[0], 0)
        rank = Rank(store)
        rank.ranks.share(NAMES[:1], rank.make, rank.take)
    assert rank.made == NAMES[:1]


class Broken:
    """A store that keeps nothing, as torch's fake one does, or is gone."""

    def __init__(self, answer):
        self.answer = answer

    def compare_set(self, *given):
        if self.answer is None:
            raise RuntimeError("connection reset")
        return self.answer


@pytest.mark.parametrize("answer", [None, b""])
def test_without_a_store_each_makes_its_own(answer, monkeypatch):
    monkeypatch.setattr(ranks, "open_ranks", lambda key: Ranks(Broken(answer), Seal(b"k" * 32)))
    made = []
    ranks.shared(None, "cpp", NAMES, lambda names: made.extend(names) or {}, lambda name, content: False)
    assert made == NAMES


def test_a_fetched_artifact_that_cannot_be_loaded_is_made_here():
    store, host = dist.HashStore(), "def call(args):\n    return ()\n"
    caches = [Cache(MemoryStore(), share=Ranks(store, Seal(b"k" * 32)).share) for _ in range(2)]
    made = []

    def make():
        made.append(1)
        return Artifact("k1", host)

    caches[0].get_or_make("k1", make)
    assert caches[1].get_or_make("k1", make) == caches[0].get("k1") and len(made) == 1

    def load(artifact):
        if len(made) == 1:
            raise ValueError("cannot be loaded")
        return artifact

    assert caches[1].loaded(lambda: caches[1].get_or_make("k1", make), load).key == "k1" and len(made) == 2
