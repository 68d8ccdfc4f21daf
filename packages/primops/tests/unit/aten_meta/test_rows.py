"""How rules of ATen ops are filed: what eager refuses, and which arguments a rule gets."""

import inspect
from pathlib import Path

import pytest
import torch
from tracework_primops import FakeMode
from tracework_primops.aten_meta import rows
from tracework_primops.aten_meta.rows import REFUSALS, Refused, check, demand, refuses, row, same_sizes
from tracework_primops.spec import TensorSpec

aten = torch.ops.aten


@pytest.fixture
def empty(monkeypatch):
    monkeypatch.setattr(rows, "REFUSALS", {})
    monkeypatch.setattr(rows, "ATEN_META", {})


def test_what_is_refused_raises_as_eager_does():
    mode = FakeMode()
    x = torch.arange(6.0).view(2, 3).t()
    calls = (lambda x: x.select(0, 5), lambda x: x.expand(4, 2), lambda x: x.view(6), lambda x: x.clone().fill_(torch.ones(1)))
    for call in calls:
        with pytest.raises(Exception) as expected:
            call(x)
        with mode, pytest.raises(expected.type) as found:
            call(mode.from_real(x))
        assert str(found.value) == str(expected.value)


def test_where_eager_is_not_asked_the_error_names_the_operator_and_its_arguments():
    mode = FakeMode()
    x = mode.make(TensorSpec(torch.float32, torch.device("cuda", 0), (2, 3)))
    with mode, pytest.raises(IndexError, match=r"aten.select.int: eager refuses f32\[2, 3\] cuda:0, 0, 5"):
        x.select(0, 5)
    with mode, pytest.raises(RuntimeError, match=r"aten.view.default: eager refuses f32\[1000000000\], \[7\]"):
        mode.make(TensorSpec(torch.float32, torch.device("cpu"), (10**9,))).view(7)


def test_check_has_a_class():
    check(True, IndexError)
    with pytest.raises(Refused) as found:
        check(False, IndexError)
    assert found.value.error is IndexError


def test_everything_that_is_demanded_of_an_operator_holds(empty):
    demand(lambda x, *rest: x > 0, "neg.default")
    demand(lambda x, *rest: x < 3, "neg.default", error=IndexError)
    refuses("neg.default")(lambda x, *rest: NotImplemented if x == 2 else None)
    demand(lambda x, *rest: True, "neg.default", "an operator that no torch has.default")
    (refuse,) = rows.REFUSALS.values()
    assert refuse(1) is None
    assert refuse(2) is NotImplemented
    for given, error in ((0, RuntimeError), (3, IndexError)):
        with pytest.raises(Refused) as found:
            refuse(given)
        assert found.value.error is error


def test_a_rule_gets_the_arguments_that_it_reads(empty):
    row("avg_pool2d.default", reads="ceil_mode kernel_size stride divisor_override")(lambda *given: given)
    (rule,) = rows.ATEN_META.values()
    assert rule("x", [2, 2]) == (False, [2, 2], [], None)
    assert rule("x", [2, 2], ceil_mode=True, divisor_override=3) == (True, [2, 2], [], 3)
    with pytest.raises(KeyError):
        row("neg.default", reads="other")(lambda *given: given)


def test_sizes_beside_one():
    assert same_sizes((2, 3), (2, 3)) and same_sizes((2, 3), (2, 4), beside=1)
    assert not same_sizes((2, 3), (2, 4)) and not same_sizes((2, 3), (2, 3, 1)) and not same_sizes((2, 3), (2, 3, 1), beside=2)


def test_refusals_keep_the_place_of_their_condition():
    files = {Path(inspect.unwrap(rule).__code__.co_filename) for rule in REFUSALS.values()}
    assert {f.parent.name for f in files} == {"aten_meta"} and "rows.py" not in {f.name for f in files}
