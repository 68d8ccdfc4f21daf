"""Ranks stand as threads over one store of torch.distributed; two processes are in integration_tests/test_distributed.py."""

import threading

import pytest
import torch.distributed as dist
from tracework_runtime import RankLost, RanksApart, agreement
from tracework_runtime.agreement import Agreement


def at_once(ranks, holds, names=("f", "f", "f")):
    found = {}

    def work(number):
        try:
            found[number] = ranks[number].all_hold(holds[number], names[number])
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(holds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [found[number] for number in range(len(holds))]


@pytest.fixture
def ranks(monkeypatch):
    monkeypatch.setattr(agreement, "BEAT", 0.05)
    monkeypatch.setattr(agreement, "DEAD", 0.3)
    store = dist.HashStore()
    return [Agreement(store, store, rank, 3) for rank in range(3)]


def test_it_holds_where_it_does_on_all(ranks):
    rounds = [(True, True, True), (True, False, True), (False, False, False), (True, True, True)]
    assert [at_once(ranks, holds) for holds in rounds] == [[all(holds)] * 3 for holds in rounds]
    store = ranks[0]._store
    again = [Agreement(store, store, rank, 3) for rank in range(3)]  # another group over the store
    assert at_once(again, (False, True, True)) == [False] * 3
    assert (
        store.num_keys() <= 3 * 2 + 3 + 1 + 3 + 3
    )  # two rounds, beats and the number of those that joined; the last one's rounds and beats


def test_a_rank_that_does_not_come_is_named(ranks):
    at_once(ranks, (True, True, True))
    ranks[2]._beats = None  # it ends
    ranks[2]._store.delete_key("0/beat/2")
    found = at_once(ranks, (True, True))
    assert all(isinstance(error, RankLost) and "rank 2 of 3 is gone" in str(error) for error in found)


def test_ranks_at_different_places_are_told(ranks):
    found = at_once(ranks, (True, True, True), ("f", "f", "g"))
    assert all(isinstance(error, RanksApart) for error in found)
    assert "rank 2 calls g, and rank 0 calls f" in str(found[0])


def test_a_store_that_is_gone(ranks):
    class Gone:
        def add(self, *given):
            raise RuntimeError("connection reset")

    with pytest.raises(RankLost, match="connection reset"):
        Agreement(Gone(), None, 0, 2).all_hold(True, "f")


def test_one_process_decides_alone():
    assert agreement.all_hold(True, "f") and not agreement.all_hold(False, "f")
