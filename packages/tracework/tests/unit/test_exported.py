"""The modules of programs that torch.export made, compiled as one graph for all sizes; and what is compiled, exported."""

import copy
import functools
import io
import warnings

import pytest
import torch
import tracework
from torch._higher_order_ops.map import map as map_steps
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_leaves

BATCH = torch.export.Dim("batch", min=2, max=64)


class Program(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))


class Counting(Program):
    def forward(self, x):
        self.count.add_(x.detach().sum(0))
        return {"y": self.linear(x) + self.count, "n": x.shape[0]}


class Writing(Program):
    def forward(self, x):
        x.mul_(2)
        return self.linear(x)


class Elements(Program):
    def forward(self, x):
        found = x.nonzero()
        torch._check(found.shape[0] > 0)
        return found.float().sum(0), x[x > 0] * 2


class Numbers(Program):
    def forward(self, x):
        n = (x > 0).sum().item()
        torch._check(n >= 0)
        torch._check(n < 1000)
        return torch.ones(n) * 2, x.sum() / (n + 1)


class Arms(Program):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda t: self.linear(t), lambda t: t * 2 + self.count, (x,))


class Rounds(Program):
    def forward(self, x):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, self.linear(a)), (torch.tensor(0), x))


class Scanned(Program):
    def forward(self, x):
        return scan(lambda c, a: (c + a, (c * a, a.sum() + self.count.sum())), torch.zeros(3), x)


class Mapped(Program):
    def forward(self, x):
        return map_steps(lambda a, y: a.sin() + y.sum(0), x, x.cos())


class WithoutHistory(Program):
    def forward(self, x):
        with torch.no_grad():
            y = self.linear(x)
        return self.linear(x) + y


class UnderAutocast(Program):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float() + x


CLASSES = [Counting, Writing, Elements, Numbers, Arms, Rounds, Scanned, Mapped, WithoutHistory, UnderAutocast]


@functools.cache
def exported(cls, strict=False):
    """The program, of which module() makes new modules with the same buffers."""
    torch.manual_seed(0)
    return torch.export.export(cls(), (torch.randn(4, 3),), dynamic_shapes=({0: BATCH},), strict=strict)


def stored(program):
    data = io.BytesIO()
    torch.export.save(program, data)
    data.seek(0)
    return torch.export.load(data)


def numbers(n):
    return torch.randn(n, 3) + 0.1


def graphs_of(module, backend=None, compile=tracework.compile):
    """How many graphs the compiled module is, whose results, buffers and writes are the module's own."""
    graphs, expected_from = [], copy.deepcopy(module)
    compiled = compile(module, backend=backend or (lambda m, examples: graphs.append(m) or m.forward), fullgraph=True)
    for n in (4, 6, 7, 2, 64):
        x = numbers(n)
        given = x.clone()
        found, expected = compiled(given), expected_from(x)
        torch.testing.assert_close([*tree_leaves(found), given], [*tree_leaves(expected), x])
    for name, buffer in compiled.named_buffers():
        torch.testing.assert_close(buffer, expected_from.get_buffer(name))
    return len(graphs)


@pytest.mark.parametrize("way", ["not strict", "strict", "stored", "without guards", "inductor", "drop-in"])
@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_one_graph_for_all_sizes(cls, way):
    if way == "strict" and cls is UnderAutocast:
        pytest.skip("torch's own module raises: the dtype that it asserts is float32")
    program = exported(cls, strict=way == "strict")
    program = stored(program) if way == "stored" else program
    module = program.module(check_guards=False) if way == "without guards" else program.module()
    if way == "drop-in":
        with tracework.replace_torch_compile():
            assert graphs_of(module, compile=torch.compile) <= 2
    else:
        assert graphs_of(module, "inductor" if way == "inductor" else None) <= 2


def error_of(call, *args):
    try:
        call(*args)
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("warm", [False, True], ids=["at the first call", "later"])
def test_wrong_inputs_raise_as_the_module_does(warm):
    program = exported(Counting)
    module, compiled = program.module(), tracework.compile(program.module(), backend="eager")
    if warm:
        compiled(numbers(4))
        compiled(numbers(5))
    for wrong in ((numbers(4), numbers(4)), (torch.randn(4, 9),), (numbers(70),), (numbers(4).double(),), ()):
        expected = error_of(module, *wrong)
        assert expected is not None
        assert error_of(compiled, *wrong) == expected
    assert error_of(compiled, numbers(5)) is None


class Around(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


def in_place():
    net = torch.nn.Linear(3, 3)
    net.compile(backend="eager")
    return net


COMPILED = {
    "module": lambda: tracework.compile(torch.nn.Linear(3, 3), backend="eager"),
    "module inside": lambda: Around(tracework.compile(torch.nn.Linear(3, 3), backend="eager")),
    "in place": in_place,
    "in place inside": lambda: Around(in_place()),
    "function": lambda: Around(tracework.compile(torch.sin, backend="eager")),
    "compiled while it runs": lambda: Around(lambda x: tracework.compile(torch.sin, backend="eager")(x)),
}


@pytest.mark.parametrize("warm", (False, True), ids=("cold", "warm"))
@pytest.mark.parametrize("kind", COMPILED)
def test_what_is_compiled_is_exported_as_its_operators(kind, warm):
    x = torch.rand(2, 3)
    with tracework.replace_torch_compile(), warnings.catch_warnings():
        warnings.simplefilter("error", tracework.UncompiledWarning)
        module = COMPILED[kind]()
        if warm:
            module(x)
        exported = torch.export.export(module, (x,))
        expected = module(x)
    operators = {node.target for node in exported.graph.nodes if node.op == "call_function"}
    assert operators and all(isinstance(operator, torch._ops.OpOverload) for operator in operators)
    torch.testing.assert_close(exported.module()(x), expected)
