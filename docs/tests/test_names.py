"""What the pages name in code font exists: files and folders, `file:name` and names of our packages."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest
import typer.main
from tracework.cli import app
from tracework.config import ENVIRONMENT
from tracework.logs import LOGS
from tracework.where import places

from docs.tests.documents import DOCUMENTS, PAGES, ROOT, code_spans, name_of

PACKAGES = tuple(sorted(p.name for p in (ROOT / "packages").iterdir() if p.is_dir()))
SOURCES = (".py", ".c", ".h", ".def", ".md", ".txt", ".toml", ".ini", ".jsonl")
PLACEHOLDERS = ("NAME", "WORD")
PATH = re.compile(r"(?P<path>[\w.*-]+(?:/[\w.*-]+)*/?)(?::(?P<name>[A-Za-z_][\w.]*))?")


def homes(path: str) -> list[Path]:
    """Where a path of a page may lie: below the root, or, where it begins with a package's name, in that package."""
    package, _, rest = path.partition("/")
    found = [ROOT / path]
    if package in PACKAGES:
        folder = ROOT / "packages" / package
        found += [folder / "src" / ("tracework" if package == "tracework" else f"tracework_{package}") / rest, folder / rest]
    return found


def looks_like_a_path(span: str) -> bool:
    """A file with a suffix of ours below a folder or alone, or a folder, written with its slash."""
    path = span.partition(":")[0]
    return bool(PATH.fullmatch(span)) and (
        path.endswith(SOURCES) or (path.endswith("/") and path.split("/")[0] in (*PACKAGES, "packages"))
    )


@cache
def names_in(file: Path) -> frozenset[str]:
    """What a file defines: of Python its functions, classes, methods and constants, of C every word."""
    if file.suffix != ".py":
        return frozenset(re.findall(r"\w+", file.read_text()))
    found: set[str] = set()

    def add(body: list[ast.stmt], inside: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(inside + node.name)
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{inside}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            found.update(inside + t.id for t in targets if isinstance(t, ast.Name))

    add(ast.parse(file.read_text()).body, "")
    return frozenset(found)


def complaint(span: str) -> str | None:
    """What is wrong with a path; None where there is such a thing."""
    match = PATH.fullmatch(span)
    assert match
    there = [p for p in homes(match["path"]) if p.exists()] or (
        [*ROOT.glob(f"packages/**/{match['path']}")] if "/" not in match["path"] else []
    )
    if not there:
        return f"there is no {match['path']}"
    if match["name"] and not any(p.is_file() and match["name"] in names_in(p) for p in there):
        return f"{match['path']} defines no {match['name']}"
    return None


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module, or what importing the modules of its path gives."""
    parts = dotted.split(".")
    found: object = None
    for n, part in enumerate(parts):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(".".join(parts[: n + 1]))
        except ImportError:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_exist(page: Path) -> None:
    spans = filter(looks_like_a_path, code_spans(page.read_text()))
    assert not {span: wrong for span in spans if (wrong := complaint(span))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_of_packages_exist(page: Path) -> None:
    # loggers have such names, too, and say so: "tracework.fallbacks" is written as the log `fallbacks`
    spans = re.findall(r"`(tracework(?:_\w+)?(?:\.\w+)+)(?:\(.*?\))?`", page.read_text())
    assert not [span for span in spans if not is_there(span)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_settings_exist(page: Path) -> None:
    spans = code_spans(page.read_text())
    asked = [span.removeprefix("tracework where ").strip('"') for span in spans if span.startswith("tracework where ")]
    assert not [word for word in asked if word not in PLACEHOLDERS and not places(word)]
    wanted = [name for span in spans if span.startswith("TRACEWORK_LOGS=") for name in span.partition("=")[2].split(",")]
    assert not [name for name in wanted if name not in (*LOGS, "all")]
    given = [variable for span in spans for variable in re.findall(r"TRACEWORK_[A-Z_]+", span)]
    assert not [variable for variable in given if variable not in ENVIRONMENT]


def written_commands(text: str) -> set[str]:
    """What follows `tracework` where a command is written: in code font, and at the beginning of a line of a block, or behind -m."""
    lines = [
        *code_spans(text),
        *(
            line
            for block in re.findall(r"^```(?:sh)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()
        ),
    ]
    return {found[1] for line in lines if (found := re.match(r"(?:torchrun .*|python )?(?:-m )?tracework ([a-z][\w-]*)", line))}


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_commands_exist(page: Path) -> None:
    assert written_commands(page.read_text()) <= typer.main.get_group(app).commands.keys()


def test_commands_are_found() -> None:
    assert written_commands("`tracework run x`\n```sh\ntracework doctor  # x\ntorchrun -m tracework nothing\n```\n") == {
        "run",
        "doctor",
        "nothing",
    }


def test_what_is_not_there_is_found() -> None:
    assert (
        complaint("capture/hook/compile_frame.py:capture_frame") is None
        and complaint("capture/csrc/eval_frame.c:run_entry") is None
    )
    assert complaint("capture/hook/nothing.py") and complaint("capture/hook/compile_frame.py:nothing")
    assert complaint("capture/plan.py:Plan.after") is None and complaint("inductor/schedule/") is None
    assert looks_like_a_path("constraints.txt") and not looks_like_a_path("x/2") and not looks_like_a_path("a.b")
    assert is_there("tracework_runtime.KEY_PARTS") and not is_there("tracework.nothing")
