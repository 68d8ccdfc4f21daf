"""tracework.compiler's controls: the names of torch.compiler are there, and those with a front end of their own take names."""

import contextlib
import copy
import functools
import gc
import operator
import os
import pickle
import subprocess
import sys

import numpy
import pytest
import torch
import torch._dynamo as dynamo
import tracework
from tracework import compiler, config
from tracework_capture.errors import ControlMisuse, RecompileError


def test_every_name_of_torch_compiler_is_there():
    assert set(torch.compiler.__all__) <= set(compiler.__all__)


def plus_one(x):
    return x + 1


def test_stances_take_backends_by_name():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    call = tracework.compile(plus_one, backend=backend)
    with compiler.set_stance(force_backend="eager"):
        call(torch.ones(3))
    assert not graphs
    with compiler.set_stance("aot_eager_then_compile"):
        call(torch.ones(3))
        assert not graphs
        assert torch.equal(call(torch.ones(3)), torch.full((3,), 2.0))
    assert len(graphs) == 1
    with pytest.raises(tracework.UnknownName, match="Did you mean 'eager'"):
        compiler.set_stance(force_backend="eagr")


def test_torchs_set_stance_is_ours_while_we_stand_in():
    call = tracework.compile(lambda x: x + 1, backend="eager")
    with tracework.replace_torch_compile(), torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError):
        call(torch.ones(2))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 2),
        ({"dynamic_sources": "x"}, 1),
        ({"dynamic_sources": "L['x']:0"}, 1),
        ({"dynamic_sources": "x:1"}, 2),
        ({"dynamic_values": "3"}, 1),
        ({"static_sources": "x:0"}, 4),
        ({"unbacked_sources": "x:0"}, 1),
        ({"dynamic_sources": ".*:0"}, 1),
        ({"dynamic_sources": "[xyz]:0"}, 1),
        ({"dynamic_sources": r"L\['x.*'\]:0"}, 1),
        ({"dynamic_sources": "y.*"}, 2),
        ({"static_sources": ".*"}, 4),
        ({"unbacked_sources": r"L\['.'\]:0"}, 1),
    ],
    ids=str,
)
def test_sizes_are_chosen_by_name_or_value(options, count):
    graphs = []

    @tracework.register_backend(name=f"counting {options}")
    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    call = tracework.compile(plus_one, backend=backend, options=options)
    for n in (3, 4, 5, 6):
        assert torch.equal(call(torch.ones(n, 2)), torch.full((n, 2), 2.0))
    assert len(graphs) == count


def test_a_number_may_be_chosen_by_name(monkeypatch):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    monkeypatch.setenv("TRACEWORK_DYNAMIC_SOURCES", "n")
    call = tracework.compile(lambda x, n: x + n, backend=backend)
    for n in (3, 4, 5):
        assert torch.equal(call(torch.ones(2), n), torch.full((2,), 1.0 + n))
    assert len(graphs) == 1
    with pytest.raises(tracework.InvalidArgument, match="comma-separated integers"):
        tracework.compile(plus_one, options={"dynamic_values": "three"})
    with pytest.raises(tracework.InvalidArgument, match="neither a name nor a regular expression"):
        tracework.compile(plus_one, options={"dynamic_sources": "x["})


def test_importing_the_front_door_imports_no_code_generator():
    """What a backend needs is imported when compile() is first asked for it."""
    loaded = "print(sorted({m.partition('.')[0] for m in sys.modules if m.startswith(('tracework_', 'torch.'))}))"
    code = f"import sys, tracework; {loaded}; import torch; tracework.compile; {loaded}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == ["[]", "['torch', 'tracework_capture']"]


def test_each_name_comes_from_its_home():
    homes = {**tracework.HOMES, **tracework.ALONE}
    assert {*homes, "compiler", "__version__"} == {*tracework.__all__} <= {*dir(tracework)}
    for name in homes:
        assert getattr(tracework, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        print(tracework.compil)


def test_torchs_variables_count_where_ours_are_not_set():
    found = config.current({"TORCH_COMPILE_DYNAMIC_SOURCES": "x", "TORCH_COMPILE_JOB_ID": "a", "TRACEWORK_JOB_ID": "b"})
    assert (found.dynamic_sources, found.job_id) == ("x", "b")


@pytest.mark.parametrize("decorator", [torch.compiler.nested_compile_region, compiler.nested_compile_region])
def test_nested_regions_are_part_of_the_graph(decorator):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    region = decorator(plus_one)
    call = tracework.compile(lambda x: region(x) * region(x + 1), backend=backend, fullgraph=True)
    assert torch.equal(call(torch.ones(2)), torch.full((2,), 6.0)) and len(graphs) == 1
    assert compiler.nested_compile_region(max_reuse_entries=2)(plus_one) is plus_one


@pytest.mark.parametrize("variable", ["TRACEWORK_DYNAMISM", "TORCH_COMPILE_JOB_ID"])
def test_dynamism_is_kept_in_a_file(tmp_path, variable):
    """Two runs of one program: the second knows from the start which sizes change."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, tracework\n"
        "graphs = []\n"
        "call = tracework.compile(lambda x: x + 1, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)\n"
        "for n in (3, 4, 5):\n"
        "    call(torch.ones(n))\n"
        "print(len(graphs))\n"
    )
    environment = {**os.environ, variable: str(tmp_path / "seen" / "dynamism.json"), "TRACEWORK_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True, timeout=300
        ).stdout.strip()
        for _ in range(2)
    ]
    assert runs == ["2", "1"]


def test_cuts_are_kept_on_disk(tmp_path):
    """Two runs of one program: the second solves nothing. Neither imports what tracing and small cuts can do without."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch, tracework\n"
        "from tracework_aotautograd import flow\n"
        "solve = flow.source_side\n"
        "flow.source_side = lambda *problem: print('solved', end=' ') or solve(*problem)\n"
        "x = torch.ones(8, 8, requires_grad=True)\n"
        "tracework.compile(lambda x: (x * 2).tanh() * (x + 1))(x).sum().backward()\n"
        "print([name for name in ('scipy', 'sympy', 'triton', 'rich', 'torch._dynamo') if name in sys.modules])\n"
    )
    environment = {**os.environ, "TRACEWORK_CACHE_DIR": str(tmp_path / "cache")}
    runs = [
        subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, env=environment, timeout=300)
        for _ in range(2)
    ]
    assert [done.stdout.strip() for done in runs] == ["solved []", "[]"]


def test_shapes_may_be_declared_where_the_function_is():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    class Scaled(torch.nn.Module):
        @compiler.dynamic_spec({"x": ["batch", None]})
        def forward(self, x):
            return x * 2

    declared = compiler.dynamic_spec({"x": ["batch", None]})(plus_one)
    for call in (tracework.compile(declared, backend=backend), tracework.compile(Scaled(), backend=backend)):
        graphs.clear()
        for n in (3, 4, 1, 0):
            call(torch.ones(n, 2))
        assert len(graphs) == 3  # sizes 0 and 1 are compiled by themselves
    for other in ({"shapes_spec": {}}, {"dynamic": True}):
        with pytest.raises(tracework.InvalidArgument, match="has a dynamic_spec"):
            tracework.compile(declared, **other)


def count_graphs():
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return backend, graphs


def test_a_disabled_module_is_copied_with_its_own_parameters():
    module = compiler.disable(torch.nn.Linear(2, 2))
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    assert not module(torch.ones(2)).any() and all(made(torch.ones(2)).any() for made in copies)


class Doubling:
    def __init__(self, x):
        self.x = x * 2

    def __call__(self, x):
        return self.x + x


class Silent:
    pass


def test_a_disabled_class_makes_and_calls_instances_as_plain_python():
    backend, graphs = count_graphs()
    kind = compiler.disable(type("Copy", (Doubling,), {}))
    call = tracework.compile(lambda x: kind(x + 1)(x) + 1, backend=backend)
    assert torch.equal(call(torch.ones(2)), torch.full((2,), 6.0))
    assert [len(g.graph.find_nodes(op="call_function", target=operator.add)) for g in graphs] == [1, 1]
    assert not callable(compiler.disable(type("Copy", (Silent,), {}))())


@pytest.mark.parametrize("thing", [plus_one, torch.nn.ReLU()], ids=["function", "module"])
def test_disabling_what_is_compiled_leaves_it_uncompiled(thing):
    backend, graphs = count_graphs()
    call = compiler.disable(tracework.compile(thing, backend=backend))
    assert torch.equal(call(torch.ones(2)), thing(torch.ones(2))) and not graphs


def in_torchs_region(x):
    compiler.graph_break()
    return x + 1


@pytest.mark.parametrize("inside", [False, True])
def test_torchs_regions_count_around_calls_and_functions(inside):
    backend, _ = count_graphs()
    strict = dynamo.error_on_graph_break(True)
    call = tracework.compile(strict(in_torchs_region) if inside else in_torchs_region, backend=backend)
    with pytest.raises(Exception, match="error_on_graph_break"), contextlib.nullcontext() if inside else strict:
        call(torch.ones(2))
    assert torch.equal(tracework.compile(in_torchs_region, backend=backend)(torch.ones(2)), torch.full((2,), 2.0))


def test_what_torch_compiled_is_part_of_the_graph():
    backend, graphs = count_graphs()
    inner = torch.compile(lambda x: x * 2, backend="eager")
    assert torch.equal(
        tracework.compile(lambda x: inner(x + 1) + 1, backend=backend, fullgraph=True)(torch.ones(2)), torch.full((2,), 5.0)
    )
    assert len(graphs) == 1


def test_wrappers_around_what_torch_compiled_are_traced():
    @functools.wraps(inner := torch.compile(lambda x: x * 2, backend="eager"))
    def around(x):
        return inner(x) + 10

    assert torch.equal(tracework.compile(lambda x: around(x) + 1, backend="eager")(torch.ones(2)), torch.full((2,), 13.0))


@pytest.mark.parametrize("decorator", [dynamo.dont_skip_tracing, dynamo.disable_nested_graph_breaks])
def test_options_of_torch_compile_around_a_function_change_nothing(decorator):
    inner = decorator(lambda x: x * 2)
    backend, graphs = count_graphs()
    call = tracework.compile(lambda x: inner(x + 1) + 1, backend=backend, fullgraph=True)
    assert torch.equal(call(torch.ones(2)), torch.full((2,), 5.0)) and len(graphs) == 1


def test_a_step_of_torchs_cuda_graphs_begins_after_the_graph(monkeypatch):
    steps = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", torch.compiler.cudagraph_mark_step_begin)
    trees = pytest.importorskip("torch._inductor.cudagraph_trees")
    monkeypatch.setattr(trees, "mark_step_begin", lambda: steps.append(1))
    backend, graphs = count_graphs()

    def step(x):
        torch.compiler.cudagraph_mark_step_begin()
        return x * 2 + 1

    call = tracework.compile(step, backend=backend, fullgraph=True)
    for count in (1, 2):
        assert torch.equal(call(torch.ones(2)), torch.full((2,), 3.0)) and len(steps) == count
    assert len(graphs) == 1


def test_functions_of_arrays_compile_with_gradients():
    @compiler.wrap_numpy
    def energy(pair, scale):
        return {"sum": numpy.sum(pair[0] * pair[1] * scale), "parts": [numpy.sin(pair[0])]}

    x = torch.arange(3.0)
    plain = energy((x, x), 2.0)
    assert type(plain["sum"]) is torch.Tensor and type(plain["parts"][0]) is torch.Tensor
    leaf = x.clone().requires_grad_()
    found = tracework.compile(energy, backend="aot_eager", fullgraph=True)((leaf, x), 2.0)
    torch.testing.assert_close(found["sum"], plain["sum"])
    torch.testing.assert_close(found["parts"][0], plain["parts"][0])
    (found["sum"] + found["parts"][0].sum()).backward()
    torch.testing.assert_close(leaf.grad, 2 * x + x.cos())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_nonstrict_functions_reach_tensors_by_themselves(backend):
    """They are inputs of the graph: backends that trace see what they hold at each call, and gradients reach them."""
    model, weight = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.full((3,), 2.0))

    @compiler.nonstrict_trace
    def loose(x):
        return model(x) * weight

    call = tracework.compile(lambda x: loose(x + 1) * 2, backend=backend, fullgraph=True)
    x = torch.arange(3.0)
    for change in (0.0, 1.5):
        with torch.no_grad():
            weight.add_(change)
        found, wanted = call(x), loose(x + 1) * 2
        torch.testing.assert_close(found, wanted)
        reached = [weight, *model.parameters()]
        pairs = zip(torch.autograd.grad(found.sum(), reached), torch.autograd.grad(wanted.sum(), reached), strict=True)
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs)


SEEN = []
LEAVES = [compiler.leaf_function, pytest.param(getattr(dynamo.decorators, "leaf_function", None), id="torch")]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("mark", LEAVES)
def test_leaf_functions_run_themselves_with_gradients(mark, backend):
    if mark is None:
        pytest.skip("this version of torch has no leaf_function")

    @mark
    def measured(module, pair, scale):
        SEEN.append(pair["x"].sum().item())  # data, and an effect
        if SEEN[-1] > 0:
            return [module(pair["x"]) * scale, pair["y"].argmax()], 7
        return [module(-pair["x"]), pair["y"].argmin()], 7

    @measured.register_fake
    def _(module, pair, scale):
        return [module(pair["x"]), pair["y"].argmax()], 7

    def program(module, x, y):
        (found, place), number = measured(module, {"x": x + 1, "y": y * 2}, 3.0)
        return found * number + place + 1

    module, y = torch.nn.Linear(3, 3), torch.tensor([1.0, 3.0, 2.0])
    call = tracework.compile(program, backend=backend, fullgraph=True)
    for x in (torch.ones(3), torch.full((3,), -4.0)):
        results = []
        for run in (call, program):
            SEEN.clear()
            leaf = x.clone().requires_grad_()
            result = run(module, leaf, y)
            assert SEEN == [(x + 1).sum().item()]
            results.append((result, torch.autograd.grad(result.sum(), [leaf, *module.parameters()], retain_graph=True)))
            if run is call:
                assert torch.equal(torch.autograd.grad(result.sum(), leaf)[0], results[0][1][0]) and len(SEEN) == 1
        torch.testing.assert_close(*results)
        with torch.no_grad():
            torch.testing.assert_close(call(module, x, y), program(module, x, y))


def leaves():
    gc.collect()
    return [each for each in gc.get_objects() if type(each).__qualname__ == "_Leaf"]


def test_leaf_functions_keep_nothing_and_say_what_is_wrong():
    others = leaves()

    @compiler.leaf_function
    def doubled(x):
        return x * 2 if len(SEEN) < 100 else x[0]

    call = tracework.compile(lambda x: doubled(x) + 1, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ControlMisuse, match="register_fake"):
        call(x)
    assert torch.equal(doubled(x), x * 2)
    doubled.register_fake(lambda x: x * 2)

    def recorded():
        return sum(len(leaf.kept) for leaf in leaves() if all(leaf is not other for other in others))

    result = call(x)
    before = recorded()
    del result
    assert recorded() == before - 1
    (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    assert not first.requires_grad
    SEEN[:] = range(100)
    with pytest.raises(RuntimeError, match="other tensors than its fake says"):
        call(x)
    SEEN.clear()
    with pytest.raises(ControlMisuse, match="no parameter of"):
        compiler.leaf_function(lambda x: x, mutates_args={"y"})


def test_leaf_functions_that_write_run_as_plain_python():
    @compiler.leaf_function(mutates_args={"total"})
    def added(x, total):
        total.add_(x)
        return (x * 2,)

    added.register_fake(lambda x, total: (x * 2,))
    total = torch.zeros(2)
    call = tracework.compile(lambda x, total: added(x + 1, total)[0] + 1, backend="eager")
    for count in (1, 2):
        assert torch.equal(call(torch.ones(2), total), torch.full((2,), 5.0)) and torch.equal(
            total, torch.full((2,), 2.0 * count)
        )


class Adds(torch.nn.Module):
    def forward(self, x):
        return x + 1, compiler.is_compiling()


COMPILED = {
    "function": lambda compile: compile(lambda x: (x + 1, compiler.is_compiling())),
    "module": lambda compile: compile(Adds()),
    "method": lambda compile: compile(Adds().forward),
    "decorated": lambda compile: compile(torch.no_grad()(lambda x: (x + 1, compiler.is_compiling()))),
}


@pytest.mark.parametrize("disable", [compiler.disable, torch.compiler.disable])
@pytest.mark.parametrize(("kind", "recursive"), [*((kind, True) for kind in COMPILED), ("function", False), ("method", False)])
def test_what_is_compiled_and_then_disabled_runs_plainly(kind, disable, recursive):
    """By itself and in other compiled code, whichever disable it is."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    call = COMPILED[kind](functools.partial(tracework.compile, backend=backend))
    plain = disable(call, recursive=recursive)
    x = torch.ones(3)
    result, compiling = plain(x)
    assert not compiling and not graphs and result.tolist() == [2.0] * 3
    around = tracework.compile(lambda x: (plain(x * 2)[1], x * 3), backend=backend)
    assert around(x)[0] is False and len(graphs) == 2


class Grows(torch.nn.Module):
    def forward(self, x):
        return x * 2


@pytest.mark.parametrize("in_place", [True, False])
def test_messages_on_compiled_modules_name_the_program(in_place):
    module = Grows()
    if in_place:
        tracework.compile_in_place(module, backend="eager")
    else:
        module = tracework.compile(module, backend="eager")
    module(torch.ones(3))
    place = f"{__file__}:{Grows.forward.__code__.co_firstlineno}"
    with compiler.set_stance("fail_on_recompile"), pytest.raises(RecompileError) as error:
        module(torch.ones(3, 2))
    assert f"Grows.__call__ ({place})" in str(error.value) and "compiled_module.py" not in str(error.value)
    assert f"has 2 dims, had 1  ({place} in call_Grows)" in str(error.value)
