"""Guards as JSON: round trips, refusals, and a check in another process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import stored_programs
import torch
import tracework_capture as capture
from tracework_capture import errors
from tracework_capture.guards import store
from tracework_capture.guards.access import Scope
from tracework_capture.guards.guard import Guard
from tracework_capture.hook import cache
from tracework_capture.sources import Const, DictItem, Global, Local

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        "text",
        2.5,
        float("inf"),
        -0.0,
        1 + 2j,
        b"\x00a",
        (1, (2.0, "x")),
        [1, None],
        frozenset({1, 2}),
        torch.float16,
        torch.strided,
        torch.device("cpu"),
        torch,
        torch.nn.Linear,
        torch.relu,
        torch.nn.functional.relu,
        len,
        Local("x"),
        DictItem(Global("table"), "a"),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_values_come_back(value):
    found = store.decode(json.loads(json.dumps(store.encode(value))))
    assert type(found) is type(value) and (found == value) and repr(found) == repr(value)


def test_a_namespace_comes_back_as_the_modules():
    source = DictItem(Const(vars(torch.nn.functional), "F"), "relu")
    assert store.decode(store.encode(source)).base.value is vars(torch.nn.functional)


def entry(module, x, **options):
    cache.reset(stored_programs.call.__code__)
    call = capture.optimize(lambda gm, inputs: gm.forward, **options)(stored_programs.call)
    call(module, x)
    (made,) = cache.entries_of(stored_programs.call.__code__)
    return made


def scope(module, x):
    return Scope({"module": module, "x": x, "scale": (1, 2.0)}, vars(stored_programs))


def test_stored_guards_say_the_same_and_build_a_program():
    module, x = stored_programs.Net(), torch.ones(3, 5, 4)
    made = entry(module, x, dynamic=True)
    stored = store.loads(store.dumps(made.info.program))
    assert len(stored.guards) == len(made.info.program.guards) and stored.conditions
    native = stored.program(stored_programs.call.__code__).native
    others = {
        "same": (stored_programs.Net(), torch.ones(7, 2, 4)),
        "other dtype": (module, x.double()),
        "other width": (module, torch.ones(3, 5, 6)),
    }
    frame = lambda module, x: ((module, x, (1, 2.0)), vars(stored_programs), None)
    for name, arguments in others.items():
        fits = name == "same"
        assert (stored.failure(scope(*arguments)) is None) == fits
        assert isinstance(native.run(*frame(*arguments)), tuple) == fits
    odd = stored_programs.Net()
    odd.kind = "odd"
    assert "'odd', was 'plain'" in stored.failure(scope(odd, x))


def test_another_process_checks_them():
    module, x = stored_programs.Net(), torch.ones(3, 5, 4)
    text = store.dumps(entry(module, x, dynamic=True).info.program)
    code = """
import sys, torch, stored_programs
from tracework_capture.guards import store
from tracework_capture.guards.access import Scope
stored = store.loads(sys.stdin.read())
def failure(module, x, scale=(1, 2.0)):
    return stored.failure(Scope({"module": module, "x": x, "scale": scale}, vars(stored_programs)))
print(failure(stored_programs.Net(), torch.ones(2, 9, 4)))
print(failure(stored_programs.Net(), torch.ones(2, 9, 4), (1, 3.0)))
print(failure(stored_programs.Net(), torch.ones(2, 9, 4), (1, "3")))
print(failure(stored_programs.Net(), torch.ones(2, 9, 4).double()))
stored_programs.Net.forward = lambda self, x: x
print(failure(stored_programs.Net(), torch.ones(2, 9, 4)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True, cwd=HERE, timeout=300
    )
    same, scale, text, dtype, method = done.stdout.splitlines()
    assert same == scale == "None", "under dynamic=True numbers are open, too"
    assert "str" in text and "has dtype torch.float64, had torch.float32" in dtype and "methods of the classes" in method


def test_what_means_nothing_elsewhere_is_refused_or_left_out():
    thing = stored_programs.Net()
    guards = [Guard("IDENTITY", Local("module"), thing), Guard("CONSTANT", Local("x"), 3)]
    program = store.program_of(guards, (), (), {}, stored_programs.call.__code__)
    with pytest.raises(store.NotPortable, match=r"portable_only=True[\s\S]*IDENTITY module"):
        store.dumps(program)
    assert [g.kind for g in store.loads(store.dumps(program, portable_only=True)).guards] == ["CONSTANT"]


def test_another_format_or_a_missing_name_is_told():
    with pytest.raises(errors.GuardBuildError, match="this version reads 1"):
        store.loads('{"format": 99}')
    text = json.dumps(
        {
            "format": 1,
            "guards": [
                {"kind": "TYPE", "source": store.encode(Local("x")), "payload": {"object": "no_such_module:f"}, "origin": ""}
            ],
            "conditions": [],
            "symbols": {},
            "collect": [],
        }
    )
    with pytest.raises(errors.GuardBuildError, match="no_such_module"):
        store.loads(text)


def test_every_entry_of_a_function_can_be_stored():
    call = capture.optimize(lambda gm, inputs: gm.forward)(stored_programs.call)
    cache.reset(stored_programs.call.__code__)
    module = stored_programs.Net()
    for x in (torch.ones(3, 5, 4), torch.ones(3, 5, 4, dtype=torch.float64)):
        module.to(x.dtype)
        call(module, x)
    newest, oldest = map(capture.load_guards, capture.dump_guards(call))
    assert newest.failure(scope(module, torch.ones(3, 5, 4, dtype=torch.float64))) is None
    assert "float64, had torch.float32" in oldest.failure(scope(module, torch.ones(3, 5, 4, dtype=torch.float64)))
    with pytest.raises(errors.CaptureError, match="optimize"):
        capture.dump_guards(stored_programs.call)
