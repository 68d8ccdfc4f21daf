"""Whether this tree may be released, and as what; nothing is written, tagged or sent.

    python tools/release.py              # the order, the versions to be, drafts of changelogs, the commands that tag
    python tools/release.py --tag TAG... # whether these tags may be put on this tree

A refusal says what to do, and the exit status is 1. With --dist DIST --torch FOLDER, as `nox -s release` says, the distributions
are built and tried as tools/wheels.py does, before the commands that tag are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from changelog import draft, fragments, has_section
from distributions import ROOT, Distribution, git, read
from packaging.version import InvalidVersion, Version
from wheels import try_all

__all__ = ["next_version", "of_tags", "plan", "problems"]

FEW = 10
"""So many files are named of those that are not committed."""


def next_version(version: Version, kinds: Iterable[str]) -> Version:
    """The version behind one, for these types of fragments: new or gone is a minor step, from 1.0 on gone is a major one."""
    major, minor, patch = version.release
    breaks, adds = "removal" in kinds, "feature" in kinds
    if major and breaks:
        return Version(f"{major + 1}.0.0")
    return Version(f"{major}.{minor + 1}.0" if breaks or adds else f"{major}.{minor}.{patch + 1}")


def of_tags(tags: Sequence[str], distributions: dict[str, Distribution]) -> tuple[list[Distribution], list[str]]:
    """The distributions that tags name, and what is wrong with the tags."""
    projects = {distribution.project: distribution for distribution in distributions.values()}
    named, wrong = [], []
    for tag in tags:
        project, _, version = tag.rpartition("-v")
        found = projects.get(project)
        if found is None:
            wrong.append(
                f"{tag}: no distribution is called {project!r}; a tag is NAME-vVERSION, NAME one of {', '.join(sorted(projects))}"
            )
            continue
        named.append(found)
        try:
            fits = Version(version) == found.version and tag == found.tag
        except InvalidVersion:
            fits = False
        if not fits:
            file = found.source.relative_to(found.folder.parents[1]) / "_version.py"
            wrong.append(f"{tag}: {file} says {found.version}; tag it {found.tag}, or write the tag's version there and commit")
    return named, wrong


def problems(root: Path, distributions: dict[str, Distribution], released: Iterable[Distribution]) -> list[str]:
    """Why the tree may not be released: what is not committed, ranges that hold no sibling, versions that no changelog has."""
    wrong = []
    if changes := (git(root, "status", "--porcelain") or "").splitlines():
        few = "\n".join([*changes[:FEW], *["..."] * (len(changes) > FEW)])
        wrong.append(f"not all is committed; commit or remove what git status shows:\n{few}")
    for distribution in distributions.values():
        for name, specifier in distribution.siblings.items():
            if (version := distributions[name].version) not in specifier:
                project = distributions[name].project
                wrong.append(
                    f"packages/{distribution.name}/pyproject.toml needs {project}{specifier}, and {project} is {version}; "
                    "correct the range"
                )
    for distribution in released:
        if not has_section(distribution, distribution.version):
            where = f"--dir packages/{distribution.name} --name {distribution.project} --version {distribution.version}"
            wrong.append(
                f"packages/{distribution.name}/CHANGELOG.md has no section {distribution.version}; write it, from the fragments by "
                f"towncrier build --config towncrier.toml {where}, and commit"
            )
    return wrong


def plan(root: Path, distributions: dict[str, Distribution]) -> tuple[list[str], list[Distribution]]:
    """What a release now would be, as lines, and the distributions whose version has no tag yet."""
    tags = set((git(root, "tag", "--list") or "").split())
    lines, unreleased = [], []
    for number, distribution in enumerate(distributions.values(), 1):
        pending = fragments(distribution)
        start = f"{number}. {distribution.project} {distribution.version}"
        if distribution.tag in tags and not pending:
            lines.append(f"{start} is released, and nothing has come since")
        elif distribution.tag in tags:
            version = next_version(distribution.version, {file.stem.partition(".")[2] for file in pending})
            lines += [f"{start} is released; the next is {version}, to be written to _version.py:", draft(distribution, version)]
        elif has_section(distribution, distribution.version):
            unreleased.append(distribution)
            lines.append(start + f"; fragments that stay for the version after it: {len(pending)}" * bool(pending))
        else:
            unreleased.append(distribution)
            lines += [f"{start}, of which the changelog would say:", draft(distribution, distribution.version)]
    return lines, unreleased


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", nargs="+", default=[], metavar="TAG", help="tags that are to be put on this tree")
    parser.add_argument("--dist", type=Path, help="a folder for wheels and sdists")
    parser.add_argument("--torch", type=Path, metavar="FOLDER", help="a site-packages that has torch")
    given = parser.parse_args()
    distributions = read()
    lines, released = plan(ROOT, distributions)
    wrong = []
    if given.tag:
        released, wrong = of_tags(given.tag, distributions)
    else:
        print("\n".join(lines), flush=True)
    wrong += problems(ROOT, distributions, released)
    if wrong:
        print("\n".join(("this tree may not be released:", *wrong)), file=sys.stderr)
        return 1
    if given.dist:
        try_all(given.dist, given.torch, distributions)
    print("\n".join(("to tag, in this order:", *(f"git tag -a {d.tag} -m '{d.project} {d.version}'" for d in released))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
