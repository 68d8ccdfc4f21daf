"""The distributions as their pyproject.toml files have them, lowest first, and git: what the tools of releases share."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

__all__ = ["ROOT", "Distribution", "export", "git", "needed", "read", "version_of"]

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Distribution:
    """One distribution: its short name, its folder, its name for pip, its version, and the ranges of the siblings that it needs."""

    name: str
    folder: Path
    project: str
    version: Version
    siblings: Mapping[str, SpecifierSet]

    @property
    def module(self) -> str:
        """What is imported."""
        return self.project.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of the module."""
        return self.folder / "src" / self.module

    @property
    def tag(self) -> str:
        """The git tag of this version."""
        return f"{self.project}-v{self.version}"


def version_of(text: str) -> Version:
    """The version that the text of a _version.py has."""
    found = re.search(r'__version__ = "(.*)"', text)
    if found is None:
        raise ValueError(f"no version: {text!r}")
    return Version(found[1])


def read(root: Path = ROOT) -> dict[str, Distribution]:
    """Short name -> distribution, each after those that it needs."""
    projects = {file.parent: tomllib.loads(file.read_text()) for file in root.glob("packages/*/pyproject.toml")}
    short = {content["project"]["name"]: folder.name for folder, content in projects.items()}
    found = {}
    for folder, content in projects.items():
        given = [Requirement(text) for text in content["project"]["dependencies"]]
        siblings = {short[r.name]: r.specifier for r in given if r.name in short}
        version = version_of((folder / content["tool"]["hatch"]["version"]["path"]).read_text())
        found[folder.name] = Distribution(folder.name, folder, content["project"]["name"], version, siblings)
    order = TopologicalSorter({name: sorted(found[name].siblings) for name in sorted(found)})
    return {name: found[name] for name in order.static_order()}


def needed(name: str, distributions: Mapping[str, Distribution]) -> list[str]:
    """A distribution behind all siblings that it needs, also through others, lowest first."""
    wanted, left = {name}, [name]
    while left:
        new = set(distributions[left.pop()].siblings) - wanted
        wanted |= new
        left += new
    return [n for n in distributions if n in wanted]


def git(root: Path, *arguments: str, allowed: Iterable[int] = (0,)) -> str | None:
    """What a command of git prints; None where it ends with another status, which has to be one of those allowed."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if done.returncode and done.returncode not in allowed:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return None if done.returncode else done.stdout.rstrip()


def export(root: Path, revision: str, folder: Path, *paths: str) -> None:
    """Writes what a revision has of these paths, or all of it, below a folder."""
    done = subprocess.run(["git", "-C", str(root), "archive", revision, *paths], check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
