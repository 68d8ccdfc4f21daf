"""Private names of torch: only `_torch` of each package, a file or a folder, uses them, and those that it uses are there in this torch.

`nox -s matrix` runs this on each torch of SUPPORTED.md.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

PACKAGES = Path(__file__).parent.parent / "packages"
FILES = {
    package.name: sorted(path for form in ("_torch.py", "_torch/*.py") for path in package.glob(f"src/*/{form}"))
    for package in sorted(PACKAGES.iterdir())
    if (package / "src").is_dir()
}
MISSING = object()
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
ONLY_IN = {
    "torch.fx._symbolic_trace._is_fx_tracing_flag": lambda release: release < (2, 14),
    "torch._C._cuda_memorySnapshot": lambda release: torch.version.cuda is not None,
}
"""Name -> the torches that have it, of names that are asked for only where another one is missing."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def names_of_torch(tree: ast.Module) -> dict[str, str]:
    """What the imports of a file name from torch: name in the file -> its place."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or "torch": a.name if a.asname else "torch" for a in node.names if a.name.split(".")[0] == "torch"}
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        around = dotted(node.value, known)
        return around and f"{around}.{node.attr}"
    return None


def private_names(path: Path) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of each private name of torch that a file uses; special methods do not count."""
    tree = parsed(path)
    known = names_of_torch(tree)
    imported = [(place, 0) for place in known.values()]
    used = [(dotted(node, known), node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for name, line in (*imported, *used):
        if name and re.search(r"\._(?!_)", name):
            yield name, line


def resolve(name: str) -> Any:
    """The object with a dotted name. A module is preferred to a function of its name. Raises AttributeError where there is none."""
    found: Any = torch
    parts = name.split(".")
    for place, part in enumerate(parts[1:], 2):
        around, found = found, getattr(found, part, MISSING)
        if isinstance(around, types.ModuleType) and (found is MISSING or place < len(parts)):
            with contextlib.suppress(ImportError):
                found = importlib.import_module(".".join(parts[:place]))
        if found is MISSING:
            raise AttributeError(name)
    return found


USED = sorted({name for paths in FILES.values() for path in paths for name, _ in private_names(path)})


def others(package: str) -> list[Path]:
    """The files of a package's source that are not its `_torch`."""
    return [path for path in sorted((PACKAGES / package / "src").rglob("*.py")) if path not in FILES[package]]


def test_the_files_are_read():
    assert {*FILES} == {"aotautograd", "capture", "inductor", "primops", "runtime", "tracework"} and all(FILES.values())
    assert {"torch._C._is_tracing", "torch._ops.OpOverload", "torch.fx._symbolic_trace"} < {*USED}


@pytest.mark.parametrize("name", USED)
def test_a_private_name_is_there(name):
    known = ONLY_IN.get(name)
    if known is None or known(RELEASE):
        resolve(name)
    else:
        with pytest.raises(AttributeError):
            resolve(name)


@pytest.mark.parametrize("package", FILES)
def test_private_names_are_in_one_place(package):
    paths = others(package)
    found = [f"{path.relative_to(PACKAGES)}:{line} {name}" for path in paths for name, line in private_names(path)]
    assert paths and not found


TOLD = {"runtime/src/tracework_runtime/key.py", "tracework/src/tracework/cli.py"}
"""Files that pass torch's version on, to a cache's key and to a reader, and decide nothing by it."""


def releases_told_apart(path: Path) -> Iterator[tuple[str, int]]:
    """(what, line) of what in a file asks which torch it is: the version, a comparison with a release, and whether torch has a name, where
    that is fixed or decides at import what a table has. Names that a program gives are another matter."""
    tree = parsed(path)
    known = names_of_torch(tree)
    inside = {n for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for b in _body(f) for n in ast.walk(b)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"torch\.(__version__|version\.\w+)$", dotted(node, known) or ""):
            yield ast.unparse(node), node.lineno
        elif (
            isinstance(node, ast.Compare)
            and any(map(_is_release, node.comparators))
            and not isinstance(node.ops[0], (ast.In, ast.NotIn))
            and not isinstance(node.left, ast.Tuple)
        ):
            yield ast.unparse(node), node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            asks = node.func.id == "hasattr" or node.func.id == "getattr" and len(node.args) == 3
            if asks and dotted(node.args[0], known) and (node not in inside or isinstance(node.args[1], ast.Constant)):
                yield ast.unparse(node), node.lineno


def _body(function: ast.FunctionDef | ast.Lambda) -> list[Any]:
    return function.body if isinstance(function, ast.FunctionDef) else [function.body]


def _is_release(node: ast.AST) -> bool:
    return isinstance(node, ast.Tuple) and ast.unparse(node).startswith("(2, ") and len(node.elts) == 2


ASKING = {
    "import torch\nNEW = torch.__version__ >= '2.14'": ["torch.__version__"],
    "from torch import version\ndef f(): return version.cuda": ["version.cuda"],
    "def f(x): return x.ndim in (2, 3)": [],
    "def f(x, y): return (x.ndim, y.ndim) == (2, 4)": [],
    "import torch\ndef f(): return torch.version.hip": ["torch.version.hip"],
    "RELEASE = f()\nOLD = RELEASE < (2, 13)": ["RELEASE < (2, 13)"],
    "import sys\nOLD = sys.version_info < (3, 12)": [],
    "import torch\ndef f(): return hasattr(torch.Tensor, 'names')": ["hasattr(torch.Tensor, 'names')"],
    "import torch\ndef f(): return getattr(torch, 'uint4', None)": ["getattr(torch, 'uint4', None)"],
    "import torch\nALL = [n for n in 'a b'.split() if hasattr(torch, n)]": ["hasattr(torch, n)"],
    "import torch.nn.functional as F\n@f(getattr(F, 'rms_norm', None))\ndef g(): pass": ["getattr(F, 'rms_norm', None)"],
    "import torch\ndef f(name): return getattr(torch, name, None), getattr(torch, 'sum')": [],
    "def f(x): return hasattr(x, 'shape')": [],
}


@pytest.mark.parametrize("text", ASKING)
def test_what_asks_is_found(text, tmp_path):
    path = tmp_path / "asks.py"
    path.write_text(text)
    assert [what for what, _ in releases_told_apart(path)] == ASKING[text]


@pytest.mark.parametrize("package", FILES)
def test_releases_of_torch_are_told_apart_in_one_place(package):
    paths = others(package)
    places = [(path.relative_to(PACKAGES).as_posix(), line, what) for path in paths for what, line in releases_told_apart(path)]
    found = [f"{place}:{line} {what}" for place, line, what in places if place not in TOLD]
    assert paths and not found
