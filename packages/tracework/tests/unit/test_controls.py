"""tracework.compiler's controls: the names of torch.compiler are there, and those with a front end of their own take names."""

import os
import subprocess
import sys

import pytest
import torch
import tracework
from tracework import compiler, config

# Not ours: saved caches and functions belong to torch's own runtime, the collective guards to process groups.
ELSEWHERE = {
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "load_cache_artifacts",
    "load_compiled_function",
    "save_cache_artifacts",
    "set_enable_guard_collectives",
    "wrap_numpy",
}


def test_every_name_of_torch_compiler_is_there_or_listed():
    assert set(torch.compiler.__all__) - set(compiler.__all__) <= ELSEWHERE
    assert not ELSEWHERE & set(compiler.__all__)


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
    theirs = torch.compiler.set_stance
    with tracework.replace_torch_compile():
        assert torch.compile is tracework.compile and torch.compiler.set_stance is compiler.set_stance
    assert torch.compiler.set_stance is theirs and torch.compile is not tracework.compile


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


def test_importing_the_front_door_imports_no_code_generator():
    """What a backend needs is imported when compile() is first asked for it."""
    code = "import sys, tracework; print(sorted({m.partition('.')[0] for m in sys.modules if m.startswith('tracework_')}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tracework_capture']"


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


@pytest.mark.parametrize("variable", ["TRACEWORK_DYNAMISM", "TRACEWORK_JOB_ID", "TORCH_COMPILE_JOB_ID"])
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
        subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True).stdout.strip()
        for _ in range(2)
    ]
    assert runs == ["2", "1"]


def test_cuts_are_kept_on_disk(tmp_path):
    """Two runs of one program: the second neither solves nor imports the solver."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch, tracework\n"
        "x = torch.ones(8, 8, requires_grad=True)\n"
        "tracework.compile(lambda x: (x * 2).tanh() * (x + 1))(x).sum().backward()\n"
        "print('scipy' in sys.modules)\n"
    )
    environment = {**os.environ, "TRACEWORK_CACHE_DIR": str(tmp_path / "cache")}
    runs = [
        subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    ]
    assert [done.stdout.strip() for done in runs] == ["True", "False"]
