"""Private names of torch: only `_torch.py` of each package uses them, and those that it uses are there in this torch.

`nox -s matrix` runs this on each torch of SUPPORTED.md.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

PACKAGES = Path(__file__).parent.parent / "packages"
FILES = {path.parent.parent.parent.name: path for path in sorted(PACKAGES.glob("*/src/*/_torch.py"))}
MISSING = object()
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
ONLY_IN = {
    "torch.fx._symbolic_trace._is_fx_tracing_flag": lambda release: release < (2, 14),
    "torch._C._cuda_memorySnapshot": lambda release: torch.version.cuda is not None,
}
"""Name -> the torches that have it, of names that are asked for only where another one is missing."""


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
    tree = ast.parse(path.read_text())
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


USED = sorted({name for path in FILES.values() for name, _ in private_names(path)})


def test_the_files_are_read():
    assert {*FILES} == {"aotautograd", "capture", "inductor", "primops", "runtime", "tracework"}
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
def test_private_names_are_in_one_file(package):
    paths = [path for path in sorted((PACKAGES / package / "src").rglob("*.py")) if path.name != "_torch.py"]
    found = [f"{path.relative_to(PACKAGES)}:{line} {name}" for path in paths for name, line in private_names(path)]
    assert paths and not found
