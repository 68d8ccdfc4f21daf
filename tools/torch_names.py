"""Writes packages/tracework/src/tracework/torch_names.txt: what can be set of torch.compile, from the source text of releases of torch.

python tools/torch_names.py FOLDER_OF_TORCH...

Each folder is a `torch` that is installed or unpacked; nothing of it is imported. A line of the file is a kind, a name, what else belongs
to it, and, unless it is in all of them, the releases that have it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "packages" / "tracework" / "src" / "tracework" / "torch_names.txt"
CONFIGS = {
    "option": "_inductor/config.py",
    "dynamo": "_dynamo/config.py",
    "compiler": "compiler/config.py",
    "functorch": "_functorch/config.py",
    "fx": "fx/experimental/_config.py",
}
READ_FROM_THE_ENVIRONMENT = re.compile(
    r"(TORCHINDUCTOR|TORCHDYNAMO|TORCH_INDUCTOR|TORCH_DYNAMO|TORCH_COMPILE|TORCH_COMPILER|TORCH_LOGS|TORCH_TRACE|TORCH_CUDAGRAPH)(_[A-Z0-9_]+)?"
)
SOURCES_OF_VARIABLES = (
    "_inductor",
    "_dynamo",
    "_functorch",
    "_logging",
    "compiler",
    "__init__.py",
    "fx/experimental",
    "_guards.py",
)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def settings(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.expr | None]]:
    """Every name that a config module assigns, those of its classes as "triton.cudagraphs", with the expression that is its default."""
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).endswith("Enum") for base in node.bases):
                continue  # values of a setting
            inherited = [
                n for base in node.bases if isinstance(base, ast.Name) and base.id in classes for n in classes[base.id].body
            ]
            yield from settings([*node.body, *inherited], f"{prefix}{node.name}.")
        elif isinstance(node, ast.If):
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                yield from settings([*node.body, *node.orelse], prefix)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id, node.value
        elif isinstance(node, ast.Assign):
            yield from ((prefix + t.id, node.value) for t in node.targets if isinstance(t, ast.Name))


def is_setting(name: str) -> bool:
    return not name.startswith("__") and not name.rpartition(".")[2].startswith("__")


def words(tree: ast.AST | None) -> set[str]:
    """The names of environment variables in an expression."""
    constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)) if tree is not None else ()
    return {c for c in constants if isinstance(c, str) and READ_FROM_THE_ENVIRONMENT.fullmatch(c)}


def defaults(value: ast.expr | None) -> str:
    """The default as text where it is a literal; empty where it is computed."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "Config":
        value = next((k.value for k in value.keywords if k.arg == "default"), None)
    try:
        literal = ast.literal_eval(value) if value is not None else None
    except ValueError:
        return ""
    text = "{" + ", ".join(map(repr, sorted(literal))) + "}" if isinstance(literal, set) and literal else repr(literal)
    return text.replace(" ", "") if value is not None else ""


def found_in(folder: Path) -> dict[tuple[str, str], str]:
    """(kind, name) -> what else belongs to it: the default of a setting, the option that a variable sets."""
    found: dict[tuple[str, str], str] = {}
    variables: dict[str, str] = {}
    for kind, file in CONFIGS.items():
        for name, value in settings(parsed(folder / file).body):
            if not is_setting(name):
                continue
            found.setdefault((kind, name), defaults(value))
            for variable in words(value):
                variables.setdefault(variable, f"{kind}:{name}")
    for place in SOURCES_OF_VARIABLES:
        path = folder / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if READ_FROM_THE_ENVIRONMENT.search(file.read_text()):
                variables |= dict.fromkeys(words(parsed(file)) - variables.keys(), "")
    found |= {("variable", name): setting for name, setting in variables.items()}
    for node in ast.walk(parsed(folder / "_logging" / "_registrations.py")):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("register_log", "register_artifact"):
            found["log", ast.literal_eval(node.args[0])] = ""
    for node in parsed(folder / "compiler" / "__init__.py").body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            found |= {("name", name): "" for name in ast.literal_eval(node.value)}
    return found


def release_of(folder: Path) -> str:
    version = re.search(r"__version__ = '(\d+\.\d+)", (folder / "version.py").read_text())
    if version is None:
        raise SystemExit(f"{folder} is no folder of torch: its version.py says no version")
    return version[1]


def table(folders: list[Path]) -> str:
    """The text of the file."""
    per_release = {release_of(folder): found_in(folder) for folder in folders}
    releases = sorted(per_release, key=lambda r: tuple(map(int, r.split("."))))
    lines = [f"# tools/torch_names.py wrote this from the sources of torch {', '.join(releases)}"]
    for kind, name in sorted({key for found in per_release.values() for key in found}):
        having = [r for r in releases if (kind, name) in per_release[r]]
        what = per_release[having[-1]][kind, name]
        lines.append("\t".join((kind, name, what, "" if having == releases else " ".join(having))).rstrip("\t"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(table([Path(folder) for folder in sys.argv[1:]]))
