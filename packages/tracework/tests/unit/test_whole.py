"""Functions compiled as a whole: eager's results from a file, what changes and what is fixed, and what cannot be carried."""

import collections
import copy
import dataclasses
import functools
import io

import pytest
import torch
import tracework
from torch.export import Dim
from torch.utils._pytree import tree_leaves
from tracework import compiler
from tracework_runtime import InputError, ProgramFileError
from tracework_runtime.device import cpu

BATCH = Dim("batch", max=64)
Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Given:
    a: object
    b: object = 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.tied = self.one

    def forward(self, x, k=2, *, flag=None):
        return {"y": torch.relu(self.norm(self.tied(self.one(x)))) * k, "n": x.shape[0], "flag": flag}


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        self.count.add_(x.sum(0))
        x.mul_(2)
        return self.count * 1, x


def x(*sizes):
    torch.manual_seed(0)
    return torch.randn(*(sizes or (3, 4)))


def again(program):
    """The program from its file."""
    file = io.BytesIO()
    tracework.save(program, file)
    return tracework.load(file)


def views(x):
    y = x * 2
    return y, y.t(), y[0], x.view(-1), torch.split(x, 2, 1), x, y


def with_random_numbers(x):
    return torch.nn.functional.dropout(x) + torch.rand_like(x)


FUNCTIONS = {
    "a function": (lambda x: x.sin() + 1, (x(),), {}),
    "defaults and names": (lambda x, k=2, *, flag=None: (x * k, flag), (x(),), {"flag": "on"}),
    "rests": (lambda a, *r, **o: {"s": a + sum(r), **{n: v * 2 for n, v in o.items()}}, (x(), x(), x()), {"z": x()}),
    "containers": (lambda a: [a["x"][0] + 1, a["x"][1]], ({"x": (x(), 2)},), {}),
    "a named tuple": (lambda p: Pair(p.a + 1, p.b), (Pair(x(), 3),), {}),
    "a dataclass": (lambda g: Given(g.a + 1, [g.b]), (Given(x(), 3),), {}),
    "views": (views, (x(),), {}),
    "results of torch": (lambda x: x.max(1), (x(),), {}),
    "other constants": (lambda x, d: (x.to(d), x.dtype, x.device, x.shape, 1.5, ...), (x(), torch.float64), {}),
    "random numbers": (with_random_numbers, (x(),), {}),
    "not contiguous": (lambda x: x + 1, (x(4, 3).t(),), {}),
    "a method": (Net().eval().one.forward, (x(),), {}),
    "no operations": (lambda x, y: {"y": y, "x": (x, 3)}, (x(), x()), {}),
    "nothing": (lambda x: None, (x(),), {}),
    "what a module gives back": (torch.nn.Identity().forward, (x(),), {}),
    "packed weights": (torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU()), (x(2, 3, 16, 16),), {}),
    "both arms": (lambda x: torch.where(x.sum() > 0, x, -x), (x(),), {}),
    "one tensor twice": (lambda x, y: x + y, (x(),) * 2, {}),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_file_has_eagers_results(case):
    function, args, kwargs = FUNCTIONS[case]
    program = tracework.aot_compile(function, args, kwargs)
    for call in (program, again(program)):
        torch.manual_seed(1)
        expected = function(*args, **kwargs)
        torch.manual_seed(1)
        found = call(*args, **kwargs)
        assert type(found) is type(expected)
        (tensors, others), (wanted, wanted_others) = parts(found), parts(expected)
        torch.testing.assert_close(tensors, wanted)
        assert others == wanted_others


def parts(value):
    """The tensors of a result, and all else."""
    leaves = tree_leaves(dataclasses.astuple(value) if dataclasses.is_dataclass(value) else value)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return tensors, [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]


def test_aliasing_is_eagers():
    made, args = tracework.aot_compile(views, (x(),)), (x(),)
    y, turned, row, flat, parts, same, y_again = made(*args)
    assert same is args[0] and y_again is y and all(p._base is args[0] for p in (flat, *parts)) and turned._base is row._base is y


def test_a_module_of_open_sizes():
    net = Net().eval()
    program = again(tracework.aot_compile(net, (x(),), dynamic_shapes={"x": {0: BATCH}}))
    for n in (1, 2, 7, 64):
        with torch.no_grad():
            torch.testing.assert_close(program(x(n, 4)), net(x(n, 4)))
    assert set(program.state_dict()) == {n for n in net.state_dict() if "num_batches" not in n}
    other = Net().eval()
    program.load_state_dict(other.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(program(x()), other(x()))
    with pytest.raises(InputError, match=r"x\.size\(0\) <= 64 does not hold: x\.size\(0\) is 65"):
        program(x(65, 4))


def test_writes_to_arguments_and_buffers():
    net, expected = Counting(), Counting()
    program = again(tracework.aot_compile(net, (x(),)))
    for _ in range(2):
        one, other = x(), x()
        torch.testing.assert_close(program(one), expected(other))
        assert torch.equal(one, other) and one._version == other._version
    assert not net.count.any() and torch.equal(program.state_dict()["count"], expected.count)


class Remembering(torch.nn.Module):
    """Writes where an argument says, twice."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(5, 4))
        self.register_buffer("values", torch.zeros(5, 4))

    def forward(self, x, at, there):
        x.add_(1)
        self.keys[at] = x
        self.values.index_add_(0, there[None], x[None])
        return self.keys + self.values


def test_writes_at_places_that_are_given():
    module, eager = Remembering(), Remembering()
    program = again(tracework.aot_compile(module, (x(4), torch.tensor(0), torch.tensor(0))))
    for at, there in ((1, 2), (1, 9), (9, 2), (3, 1)):
        given, expected = x(4), x(4)
        places = torch.tensor(at), torch.tensor(there)
        if 9 in (at, there):  # nothing is written
            with pytest.raises(IndexError, match="out of range"):
                program(given, *places)
        else:
            torch.testing.assert_close(program(given, *places), eager(expected, *places))
        torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.RNN, torch.nn.LSTM])
def test_recurrent_layers(kind):
    layer = kind(4, 3, num_layers=2, batch_first=True)
    program = again(tracework.aot_compile(layer, (x(2, 5, 4),)))
    torch.testing.assert_close(tree_leaves(program(x(2, 5, 4))), [t.detach() for t in tree_leaves(layer(x(2, 5, 4)))])


def test_what_runs_as_it_is_is_named():
    with pytest.raises(tracework.CannotCarry, match="it has gru, which runs as it is .*rnn.py"):
        tracework.aot_compile(torch.nn.GRU(4, 3), (x(5, 2, 4),), dynamic_shapes={"input": {0: Dim("steps")}})


def test_statistics_of_batches_are_kept():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).train()
    program = again(tracework.aot_compile(net, (x(),)))
    for _ in range(2):
        torch.testing.assert_close(program(x()), net(x()).detach())
    assert program.state_dict()["1.num_batches_tracked"] == 2
    torch.testing.assert_close({n: t.detach() for n, t in net.state_dict().items()}, dict(program.state_dict()))


SPECS = {
    "by names": {"a": {0: BATCH, 1: Dim.DYNAMIC}, "rest": [{0: BATCH}, None]},
    "by places": ([BATCH, Dim.AUTO], [[BATCH, None], [None, None]]),
}


@pytest.mark.parametrize("spec", SPECS)
def test_sizes_as_torch_export_spells_them(spec):
    program = tracework.aot_compile(lambda a, rest: (a + 1, rest[0] * rest[1]), (x(), [x(), x(1, 4)]), dynamic_shapes=SPECS[spec])
    a, rest = x(5, 9), [x(5, 4), x(1, 4)]
    torch.testing.assert_close(program(a, rest), (a + 1, rest[0] * rest[1]))
    with pytest.raises(InputError, match=r"does not hold|sizes"):  # of one group
        program(x(6, 9), rest)


def test_numbers_that_change():
    program = tracework.aot_compile(lambda x, k: x[:, :k] * k, (x(), 2), dynamic_shapes={"k": Dim("k", min=1, max=3)})
    assert torch.equal(program(x(), 3), x()[:, :3] * 3)
    with pytest.raises(InputError, match="k <= 3 does not hold: k is 4"):
        program(x(), 4)


def test_marks_open_sizes_and_stay():
    given = x()
    compiler.mark_dynamic(given, 0)
    program = tracework.aot_compile(lambda x: x + 1, (given,))
    assert torch.equal(program(x(9, 4)), x(9, 4) + 1) and given._dynamo_dynamic_indices == {0}


WRONG_SPECS = {
    "names 'q', which is no parameter: they are x": {"q": None},
    "a tensor of 2 dims": {"x": {2: BATCH}},
    "give a dict by dims": {"x": BATCH},
    "computed from another size": {"x": {0: 2 * BATCH}},
    "takes a torch.export.Dim": {"x": {0: "batch"}},
    "has 2 items": (None, None),
    "by the names of parameters": 3,
    "dim 0 of x is declared in dynamic_shapes, but the program fixes it to 3": {"x": {0: BATCH}},
}


@pytest.mark.parametrize("message", WRONG_SPECS)
def test_wrong_sizes(message):
    with pytest.raises(tracework.InvalidArgument, match=message):
        tracework.aot_compile(lambda x: x + torch.ones(3, 1), (x(),), dynamic_shapes=WRONG_SPECS[message])


SCALE, TENSOR, SEEN = 3.0, torch.ones(4), []


class Plain:
    def __init__(self):
        self.t = torch.ones(4)


def closing_over(held):
    return lambda x: x * held


def prints(x):
    print("x")
    return x + 1


def under_autocast(x):
    with torch.autocast("cpu"):
        return tracework.aot_compile(torch.sin, (x,))


REFUSED = {
    r"reads the global SCALE, which is 3\.0 now.* \(at .*test_whole\.py:\d+ in .*\); pass it as an argument": lambda x: x * SCALE,
    "takes the tensor TENSOR": lambda x: x * TENSOR,
    r"reads the closure's variable held, which is 2\.5 now": closing_over(2.5),
    "takes the tensor held": closing_over(torch.ones(4)),
    "calls print": prints,
    "changes what is in .*SEEN": lambda x: SEEN.append(1) or x + 1,
    "computes its result outside of the graph": lambda x: (x + 1).numpy(),
    "takes the tensor c's default.t": lambda x, c=Plain(): x * c.t,  # noqa: B008
    "takes .* by its rng": lambda x, g=torch.Generator(): torch.rand(4, generator=g) + x,  # noqa: B008
    "its result has a .*Plain": lambda x: (x + 1, PLAIN),
}
PLAIN = Plain()


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_carried(message):
    with pytest.raises(tracework.CannotCarry, match=message):
        tracework.aot_compile(REFUSED[message], (x(),))
    assert not SEEN


def test_what_is_looked_into():
    with pytest.raises(tracework.CannotCarry, match="looks into c, a Plain"):
        tracework.aot_compile(lambda x, c: x * c.t, (x(), Plain()))


def keywords_only_once(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **{"k": 3, **kwargs})

    return wrapper


def test_arguments_stay_as_they_were_given():
    function = keywords_only_once(lambda x, j=1, k=2: x * k + j)
    program = tracework.aot_compile(function, (x(),))
    for call in (lambda: program(x()), lambda: program(x=x()), lambda: program(x(), 1), lambda: program(x(), j=1)):
        assert torch.equal(call(), x() * 3 + 1)
    with pytest.raises(InputError, match="j: expected 1, which it was compiled with, got 2"):
        program(x(), 2)


def test_states_that_are_refused():
    with torch.autocast("cpu"), pytest.raises(tracework.CannotCarry, match="autocast is on"):
        tracework.aot_compile(lambda x: x + 1, (x(),))
    with torch.inference_mode(), pytest.raises(tracework.CannotCarry, match="inference_mode"):
        tracework.aot_compile(lambda x: x + 1, (x(),))


LAYER = torch.nn.Linear(4, 2)


def test_modules_that_a_function_holds_are_weights():
    program = again(tracework.aot_compile(lambda x: LAYER(x) * 2, (x(),)))
    assert sorted(program.state_dict()) == ["LAYER.bias", "LAYER.weight"]
    torch.testing.assert_close(program(x()), (LAYER(x()) * 2).detach())


def test_one_tensor_that_was_passed_twice():
    program = tracework.aot_compile(lambda x, y: x + y, (x(),) * 2)
    with pytest.raises(InputError, match="one tensor expected, two given"):
        program(x(), x())


def test_exported_programs():
    net = Net().eval()
    exported = torch.export.export(net, (x(),), dynamic_shapes={"x": {0: BATCH}})
    program = again(tracework.aot_compile(exported))
    with torch.no_grad():
        torch.testing.assert_close(program(x(6, 4)), net(x(6, 4)))


class Reads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor([1, 2]))

    def forward(self, x):
        return x.view(self.n.tolist()[0], -1) + 1


def test_data_that_is_read_while_tracing():
    with pytest.raises(tracework.CannotCarry, match="depends on what self.n holds"):
        tracework.aot_compile(Reads(), (x(),))


def test_options_are_taken():
    seen = []
    options = {"post_grad_custom_post_pass": lambda graph: seen.append(len(graph.nodes))}
    tracework.aot_compile(lambda x: x * 5 - 2, (x(),), options=options)
    assert seen
    with pytest.raises(tracework.InvalidArgument, match="mode='lite'"):
        tracework.aot_compile(torch.sin, (x(),), mode="lite")


def test_one_file_is_for_several_cpus(tmp_path):
    net, file = Net().eval(), tmp_path / "m.tw"
    tracework.save(tracework.aot_compile(net, (x(),), targets=("avx2", "avx512")), file)
    expected = net(x())["y"].detach()
    for level in (None, cpu.LEVELS["avx2"]):
        with cpu.assumed(level):
            loaded = tracework.load(file)
        torch.testing.assert_close(loaded(x())["y"], expected)
        assert loaded.state_dict().keys() == net.state_dict().keys() - {"norm.num_batches_tracked"}
    assert [t["machine"]["vector_bits"] for t in loaded._contents.manifest["targets"]] == [512, 256]
    assert {name.split("/")[1] for name in loaded._contents.members} == {"0"}  # those of AVX2 alone were read
    with cpu.assumed(cpu.Level("x86-64", frozenset())):
        with pytest.raises(ProgramFileError, match="built for a CPU with"):
            tracework.load(file)
        elsewhere = tracework.aot_compile(net, (x(),), targets=("avx2",))
    with pytest.raises(InputError, match="made for other machines"):
        elsewhere(x())
    tracework.save(elsewhere, file)
    torch.testing.assert_close(tracework.load(file)(x())["y"], expected)
    with pytest.raises(tracework.InvalidArgument, match="Did you mean 'avx512'"):
        tracework.aot_compile(net, (x(),), targets=("avx-512",))
    for none in ("avx2", (), None):
        with pytest.raises(tracework.InvalidArgument, match="takes several names"):
            tracework.aot_compile(net, (x(),), targets=none)
    twice = tracework.aot_compile(net, (x(),), targets=("avx2", "avx2"))
    assert len(twice._contents.manifest["targets"]) == 1
    with pytest.raises(tracework.InvalidArgument, match="no tensors on a GPU"):
        tracework.aot_compile(net, (x(),), targets=("sm_80",))


def test_how_many_threads_there_are_is_not_fixed():
    program, before = tracework.aot_compile(lambda x: x.sum(1), (x(64, 512),)), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.testing.assert_close(program(x(64, 512)), x(64, 512).sum(1))
    finally:
        torch.set_num_threads(before)


def test_the_names_of_torch_compile(tmp_path):
    net = Net().eval()
    compiled = tracework.compile(lambda x: x.sin() + 1, fullgraph=True).aot_compile(((x(),), {}))
    compiled.save_compiled_function(tmp_path / "f.tw")
    with open(tmp_path / "f.tw", "rb") as file:
        torch.testing.assert_close(compiler.load_compiled_function(file)(x()), x().sin() + 1)
    several = tracework.compile(net).aot_compile([((x(),), {}), ((x(5, 4),), {"flag": True})])
    with torch.no_grad():
        torch.testing.assert_close([several(x()), several(x(5, 4), flag=True)], [net(x()), net(x(5, 4), flag=True)])
    spec = tracework.compile(torch.nn.Linear(4, 4), shapes_spec={"input": ["n", None]}).aot_compile(((x(),), {}))
    assert spec(x(9, 4)).shape == (9, 4)


def test_precompile(tmp_path):
    name, model = tmp_path / "p.tw", torch.nn.Linear(4, 2)
    with compiler.precompile.capture(lambda model, x: model(x) * 2, artifact_path=name, cache_path=None) as captured:
        assert torch.equal(captured(model, x()), model(x()) * 2)
    loaded, other = compiler.precompile.load(name), torch.nn.Linear(4, 2)
    torch.testing.assert_close(loaded(other, x()), (other(x()) * 2).detach())
    with pytest.raises(InputError, match=r"model\.weight: sizes: expected float32\[2, 4\]"):
        loaded(torch.nn.Linear(4, 3), x())
    with (
        pytest.raises(compiler.PrecompileError, match="nothing was called"),
        compiler.precompile.capture(torch.sin, artifact_path=name),
    ):
        pass
    for wrong in (lambda: compiler.precompile.load(tmp_path / "none"), lambda: compiler.load_compiled_function(io.BytesIO(b"1"))):
        with pytest.raises(compiler.PrecompileError, match="load_compiled_function"):
            wrong()
    with pytest.raises(compiler.PrecompileError, match="one backend"):
        compiler.precompile.capture(torch.sin, artifact_path=name, backend="eager")


SAVED_AFTER_CALLS = {
    "a function": (lambda x, k=2: x * k + x.shape[0], ()),
    "containers": (lambda d, r: {"y": d["x"] + r[0], "r": r[1]}, ({"x": x()}, [x(), "text"])),
}


@pytest.mark.parametrize("case", SAVED_AFTER_CALLS)
def test_a_compiled_function_is_saved_after_calls(case, tmp_path):
    function, args = SAVED_AFTER_CALLS[case]
    compiled = tracework.compile(function)
    for n in (3, 5):
        compiled(*(args or (x(n, 4),)))
    tracework.save(compiled, tmp_path / "m.tw")
    for given in [args] if args else [(x(n, 4),) for n in (3, 5, 9)]:
        found, expected = parts(tracework.load(tmp_path / "m.tw")(*given)), parts(function(*given))
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1]


def test_a_compiled_module_is_saved_after_calls(tmp_path):
    net = Net().eval()
    compiled = tracework.compile(net)
    with pytest.raises(tracework.InvalidArgument, match="has no entries"):
        tracework.save(compiled, tmp_path / "m.tw")
    with torch.no_grad():
        compiled(x(3, 4), flag="on")
        compiled(x(5, 4), flag="on")
        tracework.save(compiled, tmp_path / "m.tw")
        found, expected = (parts(call(x(9, 4), flag="on")) for call in (tracework.load(tmp_path / "m.tw"), net))
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1]


class Cached(torch.nn.Module):
    """Attention over what was seen before; by_index: how keys are put into their cache."""

    def __init__(self, by_index):
        super().__init__()
        self.by_index, self.project = by_index, torch.nn.Linear(16, 48)
        self.register_buffer("keys", torch.zeros(1, 2, 16, 8))
        self.register_buffer("values", torch.zeros(1, 2, 16, 8))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x, places):
        q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        if self.by_index:
            self.keys.index_copy_(2, places, k), self.values.index_copy_(2, places, v)
        else:
            self.keys[:, :, places], self.values[:, :, places] = k, v
        self.seen += 1
        mask = torch.arange(16) <= places[:, None]
        y = torch.nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return y.transpose(1, 2).flatten(2), self.seen + 0


@pytest.mark.parametrize("by_index", [True, False])
def test_decoding_with_a_cache_in_buffers(by_index, tmp_path):
    """Places may be out of range, which nobody can run again: the error is eager's, and nothing is written then."""
    plain = Cached(by_index).eval()
    program = tracework.aot_compile(copy.deepcopy(plain), (torch.randn(1, 1, 16), torch.tensor([0])))
    tracework.save(program, tmp_path / "decoder.tw")
    loaded = tracework.load(tmp_path / "decoder.tw")
    with torch.no_grad():
        for place in (0, 1, 2, 7):
            token, places = torch.randn(1, 1, 16), torch.tensor([place])
            torch.testing.assert_close(loaded(token, places), plain(token, places))
        with pytest.raises(IndexError):
            loaded(token, torch.tensor([16]))
        torch.testing.assert_close(loaded(token, places), plain(token, places))
