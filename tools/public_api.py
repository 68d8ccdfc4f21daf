"""Compares the public names on record, packages/*/public_api.txt, with each package's `__all__`.

    python tools/public_api.py            # says which names came and went; 1 where any did
    python tools/public_api.py --write    # puts the names on record

Nothing is imported: `__all__` is a list of texts in the package's __init__.py.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

__all__ = ["differences", "public_names"]

ROOT = Path(__file__).resolve().parent.parent


def public_names(package: Path) -> list[str]:
    """The names in `__all__` of the package in a folder of packages/, sorted."""
    (file,) = package.glob("src/*/__init__.py")
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == ["__all__"]:
            return sorted(ast.literal_eval(statement.value))
    raise ValueError(f"{file} has no __all__")


def differences(root: Path = ROOT) -> list[str]:
    """A line for each name that is not on record, or is and has gone."""
    lines = []
    for package in sorted((root / "packages").iterdir()):
        recorded, found = set((package / "public_api.txt").read_text().split()), set(public_names(package))
        lines += [f"{package.name}: {name} is not on record" for name in sorted(found - recorded)]
        lines += [f"{package.name}: {name} is on record and not in __all__" for name in sorted(recorded - found)]
    return lines


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the names of the tree on record")
    if parser.parse_args().write:
        for package in (ROOT / "packages").iterdir():
            (package / "public_api.txt").write_text("\n".join(public_names(package)) + "\n")
    lines = differences()
    print("\n".join(lines or ["public names are those on record"]))
    if lines:
        print(
            "If that is meant: python tools/public_api.py --write, and a fragment in the package's changelog.d", file=sys.stderr
        )
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
