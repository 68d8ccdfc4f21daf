"""Programs as they come to users, and are changed between two processes: by an editable install, another version, a second copy, a zip file, a
notebook. What a process finds stored serves it where nothing has changed, and gives eager's values in any case."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# forks for each line of its input, so that torch is imported once
FORKER = """
import itertools, json, linecache, os, runpy, site, sys, traceback, types
import torch, tracework
from tracework_capture.hook import compile_frame, stored

tracework.compile(lambda x: torch.relu(x) * 2 + x.cumsum(0))(torch.ones(4))  # what the compiler imports
stored.PROCESS = "forker"

def run(paths, sites, cells, path, module):
    sys.path[:0] = paths
    for folder in sites:
        site.addsitedir(folder)
    if cells:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        for name, text in cells:
            linecache.cache[name] = len(text), None, text.splitlines(True), name
            exec(compile(text, name, "exec"), vars(main))
    elif path:
        runpy.run_path(path, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)

for number, line in enumerate(sys.stdin):
    child = os.fork()
    if not child:
        stored.PROCESS = str(number)
        try:
            run(**json.loads(line))
        except BaseException:
            print(json.dumps(traceback.format_exc()))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""
PART = """
import functools

ROWS = 2
RATE = 1

def helper(x):
    return x * 3

def twice(function):
    @functools.wraps(function)
    def inside(x):
        return function(x) * 2
    return inside
"""
PROGRAM = """
import torch
from parts import part

class Layer(torch.nn.Module):
    def forward(self, x):
        return part.helper(x) + 1

lib = torch.library.Library("installed_programs", "DEF")
lib.define("rows(Tensor x) -> Tensor")
lib.impl("rows", lambda x: x.repeat(part.ROWS), "CPU")

@torch.library.register_fake("installed_programs::rows", lib=lib)
def _(x):
    return x.new_empty(x.shape[0] * part.ROWS)

def gradient_of(ctx, gradient):
    return gradient.view(part.ROWS, -1).sum(0) * part.RATE

torch.library.register_autograd("installed_programs::rows", gradient_of, lib=lib)

def called(x):
    return torch.ops.installed_programs.rows(x).cumsum(0)

@part.twice
def decorated(x):
    return torch.relu(x)
"""
MAIN = """
import json, torch, tracework
from tracework_capture.hook import compile_frame

count = 0
real = compile_frame.capture_frame
def counted(given, *rest):
    global count
    count += given.code.co_name != "_audit_fork_safety"
    return real(given, *rest)
compile_frame.capture_frame = counted
x = torch.linspace(-1, 1, 4)
captured, wrong = [], []

def step(function):
    leaf = x.clone().requires_grad_()
    y = function(leaf)
    y.sum().backward()
    return torch.cat([y.detach(), leaf.grad])

for name, function in {"model": Layer(), "operator": called, "decorated": decorated}.items():
    before = count
    if not torch.equal(step(tracework.compile(function)), step(function)):
        wrong.append(name)
    if count > before:
        captured.append(name)
print(json.dumps([captured, wrong]))
"""
FINDER = """
import importlib.util, os, sys

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "parts":
            return importlib.util.spec_from_file_location(name, os.path.join({folder!r}, "parts", "__init__.py"))

sys.meta_path.append(Finder)
"""
Ran = dict[str, Any]
"""What FORKER is told."""


def written(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def package(part: str, program: str) -> dict[str, str]:
    return {"parts/__init__.py": "", "parts/part.py": part, "parts/program.py": program + MAIN}


def in_a_folder(folder: Path, part: str, program: str) -> Ran:
    return {"paths": [str(written(folder, package(part, program)))], "module": "parts.program"}


def run_by_path(folder: Path, part: str, program: str) -> Ran:
    return {**in_a_folder(folder, part, program), "path": str(folder / "parts" / "program.py")}


def editable(folder: Path, part: str, program: str) -> Ran:
    source = written(folder / "source", package(part, program))
    return {"sites": [str(written(folder / "site", {"__editable__.parts-1.0.pth": str(source)}))], "module": "parts.program"}


def editable_by_a_finder(folder: Path, part: str, program: str) -> Ran:
    source = written(folder / "source", package(part, program))
    texts = {"__editable___parts_finder.py": FINDER.format(folder=str(source)), "parts.pth": "import __editable___parts_finder"}
    return {"sites": [str(written(folder / "site", texts))], "module": "parts.program"}


def installed(folder: Path, part: str, program: str) -> Ran:
    """Another text is another version of the package."""
    shutil.rmtree(folder, ignore_errors=True)
    version = f"parts-{len(part) + len(program)}.dist-info/METADATA"
    return {"sites": [str(written(folder, {**package(part, program), version: ""}))], "module": "parts.program"}


def zipped(folder: Path, part: str, program: str) -> Ran:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "parts.zip", "w") as file:
        for name, text in package(part, program).items():
            file.writestr(name, text)
    return {"paths": [str(folder / "parts.zip")], "module": "parts.program"}


def notebook(folder: Path, part: str, program: str) -> Ran:
    cells = [(f"<ipython-input-{n}-{zlib.crc32(text.encode())}>", text) for n, text in enumerate((program, MAIN))]
    return {"paths": [str(written(folder, package(part, program)))], "cells": cells}


def notebook_with_a_kernel(folder: Path, part: str, program: str) -> Ran:
    """Names of cells have the number of the process."""
    ran, process = notebook(folder, part, program), next(PROCESSES)
    return {**ran, "cells": [(f"/tmp/ipykernel_{process}/{name[1:-1]}.py", text) for name, text in ran["cells"]]}


PROCESSES = itertools.count(100)
WAYS = (in_a_folder, run_by_path, editable, editable_by_a_finder, installed, zipped, notebook, notebook_with_a_kernel)
EDITS = {
    # what is written in place of something in the part or in the program -> what is captured again
    "a function and the program": ({"x * 3": "x * 5", "torch.relu(x)": "torch.abs(x)"}, ["model", "decorated"]),
    "a constant": ({"ROWS = 2": "ROWS = 4"}, ["operator"]),
    "a gradient": ({"RATE = 1": "RATE = 2"}, ["operator"]),
    "a decorator": ({"function(x) * 2": "function(x) * 7"}, ["decorated"]),
}
CASES = [(way, "a function and the program") for way in WAYS] + [(in_a_folder, name) for name in list(EDITS)[1:]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Ran], list[str]]]:
    """Runs a program in a process of its own and gives what it captured; its values have to be eager's."""
    folder = tmp_path_factory.mktemp("installed")
    environment = {
        **os.environ,
        "TRACEWORK_CACHE_DIR": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with (
        open(folder / "errors", "w") as errors,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", FORKER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as forker,
    ):
        assert forker.stdin is not None and forker.stdout is not None
        to, back = forker.stdin, forker.stdout

        def run(given: Ran) -> list[str]:
            print(json.dumps({"paths": [], "sites": [], "cells": [], "path": "", "module": "", **given}), file=to, flush=True)
            line = back.readline()
            found = json.loads(line) if line else (folder / "errors").read_text()
            assert isinstance(found, list), found
            captured, wrong = found
            assert not wrong
            return list(captured)

        yield run
        to.close()
        forker.wait(timeout=60)


@pytest.mark.parametrize(("way", "edit"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_what_is_edited_is_captured_again(
    run: Callable[[Ran], list[str]], tmp_path: Path, way: Callable[..., Ran], edit: str
) -> None:
    edits, expected = EDITS[edit]
    part, program = PART, PROGRAM
    for old, new in edits.items():
        part, program = part.replace(old, new), program.replace(old, new)
    folder = tmp_path / "program"
    assert run(way(folder, PART, PROGRAM)) == ["model", "operator", "decorated"]
    if "cells" in way(folder, part, program):  # another text is another cell
        expected = ["model", "operator", "decorated"]
    assert run(way(folder, part, program)) == expected
    assert run(way(folder, PART, PROGRAM)) == []


def test_a_second_copy_is_captured(run: Callable[[Ran], list[str]], tmp_path: Path) -> None:
    run(in_a_folder(tmp_path / "one", PART, PROGRAM))
    other = in_a_folder(tmp_path / "two", PART.replace("ROWS = 2", "ROWS = 3"), PROGRAM)
    for _ in range(2):
        captured = run({**other, "paths": [*other["paths"], str(tmp_path / "one")]})
    assert captured == []
    assert run({**other, "paths": [str(tmp_path / "one"), *other["paths"]]}) == []
