"""Changes after compilation that a compiled function must notice: each is made, and the result compared with plain Python's."""

import pytest
import torch
import torch.nn.functional as F
import tracework_capture as capture


def activation(x):
    return torch.relu(x)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.drop = torch.nn.Dropout(1.0)
        self.scale = 2.0
        self.kind = "plain"
        self.extra = [1, 2]
        self.table = {"a": 1}
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x):
        y = activation(self.linear(self.norm(x))) * self.scale + self.offset
        if self.kind == "odd":
            y = -y
        return self.drop(y) + len(self.extra) + self.table["a"]


class Other(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * 3


def set_(name, value):
    return lambda m: setattr(m, name, value)


def new_parameter(m):
    m.linear.weight = torch.nn.Parameter(torch.full((4, 4), 0.5))


def in_place(m):
    with torch.no_grad():
        m.linear.weight.mul_(2)


def data(m):
    m.linear.weight.data = torch.full((4, 4), 0.25)


def data_of_another_dtype(m):
    for p in (*m.parameters(), *m.buffers()):
        p.data = p.data.double()


def hook(m):
    m.linear.register_forward_hook(lambda module, args, out: out + 10)


def pre_hook(m):
    m.norm.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def patch_function(m):
    globals()["activation"] = F.softplus


def patch_method(m):
    Block.forward = lambda self, x: x * 0


def patch_instance(m):
    m.norm.forward = lambda x: x


def swap_module(m):
    m.linear = Other(4, 4)


def freeze(m):
    m.linear.weight.requires_grad_(False)


CHANGES = {
    "attribute": set_("scale", 5.0),
    "string": set_("kind", "odd"),
    "list": lambda m: m.extra.append(3),
    "dict": lambda m: m.table.update(a=7),
    "buffer": set_("offset", torch.zeros(4)),
    "new parameter": new_parameter,
    "in place": in_place,
    "data": data,
    "data of another dtype": data_of_another_dtype,
    "hook": hook,
    "pre hook": pre_hook,
    "function": patch_function,
    "method": patch_method,
    "method of an instance": patch_instance,
    "module": swap_module,
    "module removed": lambda m: m.__setattr__("norm", torch.nn.Identity()),
    "mode": lambda m: m.train(),
    "requires_grad": freeze,
    "class of a part": lambda m: setattr(m.linear, "__class__", Other),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("warm", [1, 4], ids=["after one call", "after many"])
def test_a_change_is_noticed(change, warm, monkeypatch):
    """After many calls guards compare versions of what they saw instead of walking."""
    monkeypatch.setitem(globals(), "activation", activation)
    monkeypatch.setattr(Block, "forward", Block.forward)
    torch.manual_seed(0)
    module = Block().eval()
    call = capture.optimize(lambda gm, inputs: gm.forward)(lambda x: module(x))
    x = torch.randn(2, 4)
    for _ in range(warm):
        before = call(x)
    CHANGES[change](module)
    x = x.to(module.linear.weight.dtype)
    for _ in range(2):
        found, wanted = call(x), module(x)
        assert torch.equal(found, wanted) and found.requires_grad == wanted.requires_grad
    assert torch.equal(before, call(x)) == (change in ("requires_grad",))


def test_fifty_sizes_compile_twice():
    """Batch times sequence: the second size makes both dims of the tokens symbols."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    table, linear = torch.nn.Embedding(10, 8), torch.nn.Linear(8, 8)

    def model(tokens):
        batch, length = tokens.shape
        x = table(tokens) + torch.arange(length).unsqueeze(-1)
        mask = torch.ones(length, length).tril()
        return (mask @ linear(x)).view(batch * length, -1).sum(-1).view(batch, length)

    call = capture.optimize(backend)(model)
    for batch in (2, 3, 4, 7, 8):
        for length in (2, 5, 8, 16, 17, 31, 32, 33, 64, 100):
            tokens = torch.zeros(batch, length, dtype=torch.int64)
            assert torch.equal(call(tokens), model(tokens))
    assert len(graphs) == 2


FEATURES = torch.nn.Linear(6, 6)
MIX = torch.nn.Linear(7, 7)
OVER_SIZES = {
    "sequences of features": (lambda x: torch.softmax(FEATURES(x), 1), lambda b, n: (b, n, 6), 2),
    "signals": (lambda x: x.cumsum(1) / x.shape[1], lambda b, n: (b, n), 2),
    "rows that meet a weight": (lambda x: FEATURES(x).relu(), lambda b, n: (b * n, 6), 2),
    "channels that meet a weight": (lambda x: MIX(x.transpose(1, 2)), lambda b, n: (b, 7, n), 2),
}


@pytest.mark.parametrize("name", OVER_SIZES)
def test_batch_and_length_open_together(name):
    """First only the batch changes, then the length; a dim that meets a weight stays a number."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    function, shape, wanted = OVER_SIZES[name]
    call = capture.optimize(backend)(function)
    for length in (5, 8, 16, 17, 31):
        for batch in (2, 3, 4, 7, 8):
            x = torch.randn(shape(batch, length), generator=torch.Generator().manual_seed(batch))
            torch.testing.assert_close(call(x), function(x))
    assert len(graphs) == wanted
    held = [
        node
        for node in graphs[1].graph.nodes
        if node.op == "placeholder" and isinstance(node.meta["example_value"], torch.SymInt)
    ]
    assert len(held) == (1 if name == "rows that meet a weight" else 2)
