"""Passes of a program of its own, at each place where compile() takes them, and a partitioner: as a package of a user has them."""

import dataclasses
import time

import pytest
import torch
import tracework
from tracework_aotautograd.partition import PARTITIONERS
from tracework_capture.hook import stored

aten = torch.ops.aten


def f(x, w):
    return (torch.sin(x) * w).sum()


def inputs():
    return [torch.arange(12.0).reshape(3, 4).requires_grad_(), torch.full((3, 4), 0.5, requires_grad=True)]


class Seen:
    """Notes what it is given; its identity is what it was made with."""

    def __init__(self, identity=None):
        self.identity, self.products = identity, []

    def __call__(self, product):
        self.products.append(product)

    def uuid(self):
        return self.identity


def of_role(seen):
    def change(graph, role):
        seen.append(role)

    return change


def test_functional_graphs_are_told_apart():
    seen = []
    call = tracework.compile(f, backend="aot_eager", options={"post_grad_custom_post_pass": of_role(seen)})
    call(*inputs()).backward()
    with torch.no_grad():
        call(*inputs())
    assert seen == ["forward", "backward", "inference"]


def cosines(graph):
    """A graph of prims with cos for each sin."""
    from tracework_primops import parse_graph

    return parse_graph(graph.text().replace(" sin(", " cos("))


def fewer(program):
    """Loops without what nobody reads, of which there is none: another object with the same loops."""
    return dataclasses.replace(program, nodes=tuple(program.nodes))


@pytest.mark.parametrize("option", ["prims_custom_pass", "loops_custom_pass"])
def test_what_it_gives_is_compiled(option, tmp_path):
    seen = Seen()
    change = {"prims_custom_pass": cosines, "loops_custom_pass": fewer}[option]
    call = tracework.compile(torch.sin, options={option: [change, seen], "cache_dir": str(tmp_path)})
    x = torch.linspace(0, 1, 5)
    torch.testing.assert_close(call(x), x.cos() if change is cosines else x.sin())
    assert len(seen.products) == 1


def broken(product):
    raise KeyError("mine")


@pytest.mark.parametrize("option", ["prims_custom_pass", "loops_custom_pass"])
def test_one_that_fails_is_named(option):
    with pytest.raises(tracework.CompileError, match=f"option {option} .*KeyError: 'mine'"):
        tracework.compile(f, options={option: broken})(*inputs())


def plus_one(x):
    return torch.sin(x) + 1


@pytest.mark.parametrize(
    "option", ["pre_grad_custom_pass", "post_grad_custom_pre_pass", "prims_custom_pass", "loops_custom_pass"]
)
@pytest.mark.parametrize("identity", [None, "first"])
def test_with_an_identity_what_is_made_is_kept(option, identity, tmp_path, caplog):
    def run(name):
        tracework.compiler.reset()
        stored.PROCESS = str(time.perf_counter_ns())  # of another process
        seen = Seen(name)
        call = tracework.compile(plus_one, options={option: seen, "cache_dir": str(tmp_path)})
        torch.testing.assert_close(call(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
        return len(seen.products)

    with caplog.at_level("INFO", "tracework.capture.stored"):
        assert run(identity) == 1
        assert run(identity) == (0 if identity else 1)
        assert run("second") == 1
    said = [record for record in caplog.records if option in record.getMessage()]
    assert bool(said) is (identity is None)


def keeps_all(joint, parts, options):
    """All that the backward reads, but what it may not keep."""
    keeps_all.calls += 1
    return PARTITIONERS["default"](joint, parts, options)


def test_a_partitioner():
    keeps_all.calls = 0
    found = []
    for call in (f, tracework.compile(f, backend="aot_eager", options={"partitioner": keeps_all})):
        given = inputs()
        call(*given).backward()
        found.append([x.grad for x in given])
    torch.testing.assert_close(*found)
    assert keeps_all.calls == 1
    with pytest.raises(tracework.InvalidArgument, match="a name or a function"):
        tracework.compile(f, options={"partitioner": 3})
