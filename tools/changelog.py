"""Changes of a package's sources have a fragment in its changelog.d; towncrier renders all of them.

    python tools/changelog.py [--against REVISION]

compares the tree with a revision, by default with where the branch left main. A package whose src/ differs has a fragment that is
new or changed since, or is a release: its CHANGELOG.md has a section for a version that _version.py did not have then. A commit
that no user sees says so by a line `Changelog: none` at its end; where all commits that touch the sources do, and all is
committed, no fragment is asked for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from distributions import ROOT, Distribution, git, read
from packaging.version import Version

__all__ = ["base_of", "draft", "fragments", "has_section", "missing"]

KINDS = ("removal", "feature", "bugfix")
"""The types of towncrier.toml, the greatest change first."""


def fragments(distribution: Distribution) -> list[Path]:
    """The fragments that no release has consumed."""
    return sorted((distribution.folder / "changelog.d").glob("*.md"))


def has_section(distribution: Distribution, version: Version) -> bool:
    """Whether the changelog tells of a version."""
    text = (distribution.folder / "CHANGELOG.md").read_text()
    return any(line.split()[:2] == ["##", str(version)] for line in text.splitlines())


def draft(distribution: Distribution, version: Version) -> str:
    """The section that towncrier would write; an error where it refuses a fragment's name."""
    project = ("--dir", str(distribution.folder), "--name", distribution.project, "--version", str(version))
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--config", str(ROOT / "towncrier.toml"), *project]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        name, kinds = distribution.name, "|".join(KINDS)
        raise RuntimeError(f"{name}: {done.stderr.strip()}\nA fragment is packages/{name}/changelog.d/+WORDS.{kinds}.md.")
    return done.stdout


def base_of(root: Path) -> str | None:
    """Where the branch left main, here or at the origin; None where neither is known."""
    for main in ("origin/main", "main"):
        found = git(root, "merge-base", "HEAD", main, allowed=(1, 128))
        if found:
            return found
    return None


def _changed(root: Path, base: str, folder: str, *options: str) -> list[str]:
    """Files below a folder that differ from a revision, committed or not; of those that git knows only what its options choose."""
    tracked = git(root, "diff", "--name-only", *options, base, "--", folder) or ""
    untracked = git(root, "ls-files", "--others", "--exclude-standard", "--", folder) or ""
    return [*tracked.splitlines(), *untracked.splitlines()]


def _unseen(root: Path, base: str, folder: str) -> bool:
    """Whether all is committed, and every commit says that no user sees it."""
    if git(root, "status", "--porcelain", "--", folder):
        return False
    trailers = "--format=%H %(trailers:key=Changelog,valueonly,separator=%x2C)"
    commits = git(root, "log", "--no-merges", trailers, f"{base}..HEAD", "--", folder) or ""
    return all(line.split()[1:] == ["none"] for line in commits.splitlines())


def missing(root: Path, base: str) -> list[str]:
    """What is wrong, an entry a package: its sources differ from the revision's and its changelog does not say so."""
    wrong = []
    for name, distribution in read(root).items():
        folder = f"packages/{name}"
        if not _changed(root, base, f"{folder}/src"):
            continue
        new = [file for file in _changed(root, base, f"{folder}/changelog.d", "--diff-filter=d") if file.endswith(".md")]
        version_file = distribution.source.relative_to(root) / "_version.py"
        released = has_section(distribution, distribution.version) and _changed(root, base, str(version_file))
        if not new and not released and not _unseen(root, base, f"{folder}/src"):
            wrong.append(
                f"{folder}/src differs from {base[:10]}, and no fragment says how: write {folder}/changelog.d/+WORDS."
                f"{'|'.join(KINDS)}.md, a sentence for users; or, if they see nothing of it, end the commit with 'Changelog: none'"
            )
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", help="what the tree is compared with")
    given = parser.parse_args()
    base = given.against or base_of(ROOT)
    wrong = missing(ROOT, base) if base else []
    for distribution in read().values():
        try:
            draft(distribution, distribution.version)
        except RuntimeError as error:
            wrong.append(str(error))
        print(f"{distribution.project}: fragments since {distribution.version}: {len(fragments(distribution))}")
    if base is None:
        print("no branch main to compare with: whether changes have fragments was not looked at (--against REVISION does)")
    elif not wrong:
        print(f"what changed since {base[:10]} has its fragments")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
