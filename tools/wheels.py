"""Builds distributions, installs their wheels in an environment that has torch and nothing else, and tries what a user does.

    python tools/wheels.py DIST --torch FOLDER [NAME]

DIST is where they are built, FOLDER a site-packages that has torch. With a NAME, the wheel and the sdist of one distribution and
the wheels of the siblings that it needs: the wheel, made from the sdist, is installed and imported, and the Python of its README
is run. Without, all distributions, each so, and then together, with the demo of the command line. Third parties come from the
index, siblings never do. The environment that runs this has build, hatchling and cibuildwheel.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from distributions import ROOT, Distribution, needed, read

__all__ = ["alone", "blocks", "build", "together", "try_all", "wheel"]


def build(dist: Path, distribution: Distribution, *what: str) -> None:
    """The sdist and, from it, the wheel, or what an option of build's names; says which wheels cibuildwheel makes of C."""
    for old in dist.glob(f"{distribution.module}-*"):
        old.unlink()
    command = ["build", "--no-isolation", str(distribution.folder), "--outdir", str(dist), *what]
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    if (distribution.folder / "csrc").exists():
        command = ["cibuildwheel", "--platform", "linux", "--print-build-identifiers", str(distribution.folder)]
        done = subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE, text=True)
        print("cibuildwheel:", distribution.project, *done.stdout.split(), flush=True)


def wheel(dist: Path, distribution: Distribution) -> Path:
    """The wheel of a distribution's version for this Python; an error where there is not one."""
    pattern = f"{distribution.module}-{distribution.version}-*.whl"
    found = [
        file
        for file in dist.glob(pattern)
        if f"-cp{sys.version_info.major}{sys.version_info.minor}-" in file.name or "-py3-" in file.name
    ]
    if len(found) != 1:
        raise FileNotFoundError(f"{dist} has {len(found)} wheels {pattern} for this Python: build them anew into an empty folder")
    return found[0].absolute()


def blocks(readme: str) -> str:
    """The Python that a README shows, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL))


class Bare:
    """An environment below a folder that has torch, by a line in a .pth file, and what is installed into it."""

    def __init__(self, folder: Path, torch: Path):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        self.folder = folder
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "torch.pth").write_text(f"{torch.absolute()}\n")

    def run(self, *arguments: str, silent: bool = False) -> None:
        """python ARGUMENTS, away from the source tree; silent, what it prints is left out."""
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        environment["TRACEWORK_CACHE_DIR"] = str(self.folder / "cache")
        output = subprocess.DEVNULL if silent else None
        command = [str(self.folder / "bin" / "python"), *arguments]
        subprocess.run(command, check=True, cwd=self.folder, env=environment, stdout=output)

    def install(self, *requirements: str) -> None:
        """By pip, in the versions of constraints.txt."""
        self.run("-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *requirements)
        self.run("-m", "pip", "check", silent=True)


def _try(bare: Bare, distribution: Distribution) -> None:
    """Imports what was installed, looks whether its version and place are those of the wheel, and runs what its README shows."""
    module = distribution.module
    test = f"m.__version__ == {str(distribution.version)!r} and m.__file__.startswith({str(bare.folder)!r})"
    bare.run("-c", f"import {module} as m; assert {test}, (m.__version__, m.__file__)")
    example = bare.folder / f"{distribution.name}_readme.py"  # a file: capture reads the source of what it captures
    example.write_text(blocks((distribution.folder / "README.md").read_text()))
    bare.run(str(example), silent=True)
    print(distribution.project, distribution.version, "is imported, its README's Python runs", flush=True)


def alone(dist: Path, torch: Path, name: str, distributions: Mapping[str, Distribution]) -> None:
    """One distribution with the siblings that it needs."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Bare(Path(folder), torch)
        bare.install(*(str(wheel(dist, distributions[n])) for n in needed(name, distributions)))
        _try(bare, distributions[name])


def together(dist: Path, torch: Path, distributions: Mapping[str, Distribution]) -> None:
    """All distributions, the READMEs and the demo."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Bare(Path(folder), torch)
        bare.install(*(f"{wheel(dist, d)}{'[demo]' if name == 'tracework' else ''}" for name, d in distributions.items()))
        for distribution in distributions.values():
            _try(bare, distribution)
        bare.run("-m", "tracework", "demo")


def try_all(dist: Path, torch: Path, distributions: Mapping[str, Distribution]) -> None:
    """All of them built, each tried alone, then together."""
    for distribution in distributions.values():
        build(dist, distribution)
    for name in distributions:
        alone(dist, torch, name, distributions)
    together(dist, torch, distributions)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--torch", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    distributions = read()
    if given.name is None:
        try_all(given.dist, given.torch, distributions)
        return
    for sibling in needed(given.name, distributions)[:-1]:
        build(given.dist, distributions[sibling], "--wheel")
    build(given.dist, distributions[given.name])
    alone(given.dist, given.torch, given.name, distributions)


if __name__ == "__main__":
    main()
