"""guard_filter_fn: what the ready-made filters drop, and that torch's own filters work unchanged."""

import counted_graphs
import pytest
import torch
import tracework_capture as capture
from tracework_capture import errors
from tracework_capture.guards.filters import TYPES
from tracework_capture.guards.kinds import GUARD_KINDS


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.scale = "two"

    def forward(self, x):
        return self.inner(x) * len(self.scale) + len(NAMES)


NAMES = ["a"]


def compiled(module, choose, dynamic=None):
    return counted_graphs.compiled(lambda x: module(x), guard_filter_fn=choose, dynamic=dynamic)


def change_scale(net):
    net.scale = "three"


def change_linear(net):
    net.inner.training = net.inner.__dict__["in_features"] = 7
    net.inner.register_forward_hook(lambda *args: None)


def change_global(net):
    NAMES.append("b")


CHANGES = {"scale": change_scale, "linear": change_linear, "global": change_global, "state": None, "size": None}
# filter -> the changes that it still notices
FILTERS = {
    "skip_guard_on_inbuilt_nn_modules_unsafe": {"scale", "global", "state", "size"},
    "skip_guard_on_all_nn_modules_unsafe": {"global", "state", "size"},
    "keep_tensor_guards_unsafe": {"size"},
    "skip_guard_on_globals_unsafe": {"scale", "linear", "state", "size"},
    "skip_all_guards_unsafe": set(),
    "keep_portable_guards_unsafe": {"state", "size"},
}


def notices(choose, change):
    """Whether a change makes a second entry."""
    net, x = Net(), torch.ones(2, 3)
    call, graphs = compiled(net, choose)
    call(x)
    if change == "state":
        with torch.no_grad():
            call(x)
    elif change == "size":
        call(torch.ones(4, 3))
    else:
        CHANGES[change](net)
        call(x)
    return len(graphs) == 2


@pytest.mark.parametrize("owner", [capture, torch.compiler], ids=["ours", "torch's"])
@pytest.mark.parametrize("name", FILTERS)
def test_ready_made_filters(name, owner):
    del NAMES[1:]
    try:
        noticed = set()
        for change in CHANGES:
            del NAMES[1:]
            if notices(getattr(owner, name), change):
                noticed.add(change)
        assert noticed == FILTERS[name]
    finally:
        del NAMES[1:]


def test_parameters_are_kept_on_request():
    net = Net()
    call, graphs = compiled(net, lambda entries: capture.keep_tensor_guards_unsafe(entries, keep_parameters=True))
    call(torch.ones(2, 3))
    net.inner.weight.requires_grad_(False)
    call(torch.ones(2, 3))
    assert len(graphs) == 2


def test_conditions_on_sizes_are_an_entry_of_their_own():
    def f(x):
        return x + 1 if x.shape[0] > 5 else x - 1

    graphs = []
    backend = lambda gm, inputs: graphs.append(gm) or gm.forward
    call = capture.optimize(backend, dynamic=True, guard_filter_fn=lambda es: [e.guard_type != "SHAPE_ENV" for e in es])(f)
    assert torch.equal(call(torch.ones(9)), torch.full((9,), 2.0))
    assert torch.equal(call(torch.ones(3)), torch.full((3,), 2.0)) and len(graphs) == 1


def test_entries_show_names_and_values():
    seen = []
    net, x = Net(), torch.ones(2, 3)
    compiled(net, lambda entries: [seen.append(e) or True for e in entries])[0](x)
    by_name = {(e.name, e.guard_type): e for e in seen}
    assert by_name["x", "TENSOR_MATCH"].value is x and not by_name["x", "TENSOR_MATCH"].is_global
    assert any(e.is_global and e.value is NAMES for e in seen)
    assert any(e.value is net.inner.weight and e.orig_guard.source.is_unspecialized_builtin_nn_module() for e in seen)
    assert seen[-1].guard_type == "SHAPE_ENV"


def test_an_answer_of_the_wrong_length_is_refused():
    with pytest.raises(errors.ControlMisuse, match="one bool for each entry"):
        compiled(Net(), lambda entries: [True])[0](torch.ones(2, 3))


def test_every_kind_of_guard_has_a_name():
    assert set(TYPES) == {*GUARD_KINDS, "SAME", "DISTINCT", "RELATION", "CONDITIONS"}
