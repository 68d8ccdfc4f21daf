"""The oldest siblings that a package claims to work with, as source trees: for `nox -s minimums` to install and test against.

    python tools/oldest_siblings.py NAME FOLDER

writes FOLDER/packages/SIBLING for each, from the tag of the oldest version in the range that NAME's pyproject.toml has. Where no
version in the range has a tag, that is said, and the oldest commit whose version is in the range is taken.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from distributions import ROOT, Distribution, export, git, read, version_of
from packaging.specifiers import SpecifierSet
from packaging.version import Version

__all__ = ["oldest"]


def oldest(root: Path, sibling: Distribution, specifier: SpecifierSet) -> tuple[Version, str, bool]:
    """The oldest version in a range, its revision, and whether that is a tag."""
    start = f"{sibling.project}-v"
    tags = (git(root, "tag", "--list", f"{start}*") or "").split()
    if found := [version for tag in tags if (version := Version(tag.removeprefix(start))) in specifier]:
        return min(found), f"{start}{min(found)}", True
    file = (sibling.source / "_version.py").relative_to(root)
    for commit in (git(root, "log", "--reverse", "--format=%H", "--", str(file)) or "").split():
        version = version_of(git(root, "show", f"{commit}:{file}") or "")
        if version in specifier:
            return version, commit, False
    raise LookupError(f"no commit has a version of {sibling.project} in {specifier}: commit the version, or correct the range")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    distributions = read()
    shutil.rmtree(given.folder / "packages", ignore_errors=True)
    for name, specifier in distributions[given.name].siblings.items():
        version, revision, tagged = oldest(ROOT, distributions[name], specifier)
        print(
            f"{distributions[name].project}{specifier}: {version} of {revision}"
            + ("" if tagged else ", the oldest commit; there is no tag")
        )
        export(ROOT, revision, given.folder, f"packages/{name}")


if __name__ == "__main__":
    main()
