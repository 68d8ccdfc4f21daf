"""Classes that captured code derives from existing ones: what changes there is noticed, and the trace leaves them no subclasses."""

import gc

import pytest
import torch
import tracework_capture as capture


class Base:
    factor = 2

    def scaled(self, x):
        return x * self.factor


class Slotted:
    __slots__ = ("kept",)


def derived(x):
    class Further(Base):
        def scaled(self, x):
            return super().scaled(x) + 1

    return Further().scaled(x)


def test_changes_of_a_base_are_noticed(monkeypatch):
    graphs = []
    compiled = capture.optimize(lambda gm, _: graphs.append(gm) or gm.forward)(derived)
    x = torch.arange(3.0)
    for change in (("factor", 3), ("scaled", lambda self, x: x - 9), ("other", 1)):
        for _ in range(2):
            assert torch.equal(compiled(x), derived(x))
        monkeypatch.setattr(Base, *change, raising=False)
    assert torch.equal(compiled(x), derived(x))
    assert len(graphs) == 3


def test_existing_classes_have_no_subclasses_of_the_trace():
    gc.disable()
    try:
        before = len(Base.__subclasses__())
        assert torch.equal(capture.optimize(lambda gm, _: gm.forward)(derived)(torch.ones(2)), torch.full((2,), 3.0))
        assert len(Base.__subclasses__()) == before
    finally:
        gc.enable()


def test_bases_that_have_to_know_are_left_to_plain_python():
    def slotted(x):
        class Further(Slotted):
            pass

        made = Further()
        made.kept = x + 1
        return made.kept

    with pytest.raises(capture.Unsupported, match="Slotted would know of a subclass"):
        capture.optimize(lambda gm, _: gm.forward, fullgraph=True)(slotted)(torch.ones(2))
    assert torch.equal(capture.optimize(lambda gm, _: gm.forward)(slotted)(torch.ones(2)), torch.full((2,), 2.0))
