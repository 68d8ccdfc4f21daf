"""error_on_graph_break, and torch's own managers over a break."""

import pytest
import torch
import torch._dynamo as dynamo
import tracework_capture as capture
from counted_graphs import compiled
from tracework_capture import errors
from tracework_capture.regions import regions

X = torch.arange(3.0)
W = torch.ones(3, requires_grad=True)


@pytest.fixture(autouse=True)
def no_region_is_left():
    yield
    assert regions() == ()


def breaks_in_an_error_region(x):
    with capture.error_on_graph_break(True):
        x = x * 2
        capture.graph_break()
    return x


def breaks_in_torchs_region(x):
    with dynamo.error_on_graph_break(True):
        x = x * 2
        capture.graph_break()
    return x


@capture.error_on_graph_break(True)
def strict(x):
    capture.graph_break()
    return x


def calls_a_strict_function(x):
    capture.graph_break()
    return strict(x + 1)


@pytest.mark.parametrize("function", [breaks_in_an_error_region, breaks_in_torchs_region, calls_a_strict_function])
def test_a_break_in_the_region_is_an_error(function):
    with pytest.raises(errors.Unsupported, match="error_on_graph_break"):
        compiled(function)[0](X)


def test_a_region_around_the_call_counts():
    call, _ = compiled(lambda x: (capture.graph_break(), x + 1)[1])
    with pytest.raises(errors.Unsupported), capture.error_on_graph_break(True):
        call(X)
    assert torch.equal(call(X), X + 1)


def allowed_inside(x):
    with capture.error_on_graph_break(True):
        x = lenient(x + 1)
    return x * 2


@capture.error_on_graph_break(False)
def lenient(x):
    x = x * 3
    capture.graph_break()
    return (x + 1) * 2  # a single operation would be left to plain Python


def breaks_in_an_allowing_region(x):
    x = x + 1
    with capture.error_on_graph_break(False):
        x = x * 2
        capture.graph_break()
        x = x + 3
    with capture.error_on_graph_break(True):
        return x + 1


@pytest.mark.parametrize(("function", "count"), [(breaks_in_an_allowing_region, 2), (allowed_inside, 4)])
def test_the_innermost_region_counts(function, count):
    call, graphs = compiled(function)
    for _ in range(5):
        assert torch.equal(call(X), function(X))
    assert len(graphs) == count


def test_misuse():
    with pytest.raises(errors.ControlMisuse, match="@error_on_graph_break"):
        capture.error_on_graph_break(lambda x: x)


def in_no_grad(x):
    with torch.no_grad():
        x = x * 2
        capture.graph_break()
        x = x + W
    return x + W


def in_set_grad_enabled(x):
    with torch.set_grad_enabled(False):
        x = x * 2
        capture.graph_break()
        x = x + W
    return x * W


def in_autocast(x):
    x = torch.outer(x, x)
    with torch.autocast("cpu"):
        x = x @ x
        capture.graph_break()
        x = x @ x
    return x.float() @ x.float()


@pytest.mark.parametrize(("function", "count"), [(in_no_grad, 2), (in_set_grad_enabled, 2), (in_autocast, 2)])
def test_a_break_inside_of_a_torch_manager_is_compiled_once(function, count):
    """A manager is made anew at each call: its identity must not be guarded."""
    call, graphs = compiled(function)
    wanted = function(X)
    for _ in range(4):
        found = call(X)
        assert torch.equal(found, wanted) and found.requires_grad == wanted.requires_grad
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert len(graphs) == count


class Noted:
    """A manager of the program's."""

    def __init__(self, notes):
        self.notes = notes

    def __enter__(self):
        self.notes.append("in")

    def __exit__(self, kind, error, traceback):
        self.notes.append(kind.__name__)


def fails_late_in_blocks(x, notes):
    with torch.no_grad(), Noted(notes), capture.error_on_graph_break(False):
        x = x * 2
        capture.graph_break()
        with capture.error_on_graph_break(True):
            x = x + notes.count("in")
            capture.graph_break()
    return x


def test_blocks_that_plain_python_entered_end_where_the_rest_cannot_be_captured():
    call, _ = compiled(fails_late_in_blocks)
    for _ in range(2):
        notes = []
        with pytest.raises(errors.Unsupported, match="error_on_graph_break"):
            call(X, notes)
        assert notes == ["in", "Unsupported"] and torch.is_grad_enabled() and regions() == ()


def test_blocks_end_where_a_backend_fails():
    def function(x):
        y = x * 2
        capture.graph_break()
        with torch.no_grad():
            z = y * 2
            capture.graph_break()
            return (z + 1) * x

    def late(graph_module, example_inputs):
        made.append(graph_module)
        if len(made) == 3:
            raise OSError("no room")
        return graph_module.forward

    made = []
    with pytest.raises(errors.BackendError, match="OSError: no room"):
        capture.optimize(late)(function)(X)
    assert torch.is_grad_enabled()


def test_blocks_end_where_the_stance_refuses():
    def function(x, scale):
        with torch.no_grad():
            x = x * 2
            capture.graph_break()
            return (x + 1) * scale

    call, _ = compiled(function)
    call(X, 2.0)
    with capture.set_stance("fail_on_recompile"), pytest.raises(errors.RecompileError):
        call(X, W)
    assert torch.is_grad_enabled()
