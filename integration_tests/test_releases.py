"""The tools of releases: what is refused, and with what advice; and that this tree's own metadata fit together."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

import changelog
import distributions
import oldest_siblings
import public_api
import release
import wheels

ROOT = distributions.ROOT
PROJECT = """
[project]
name = "{name}"
dependencies = [{needs}]

[tool.hatch.version]
path = "src/{module}/_version.py"
"""
LOW, HIGH = "packages/low", "packages/high"
VERSION, CODE = "src/things_low/_version.py", "src/things_low/code.py"


def git(root, *arguments):
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.org")
    subprocess.run(["git", "-C", root, *identity, *arguments], check=True, capture_output=True, timeout=60)


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def commit(root, message="a change"):
    git(root, "add", "-A")
    git(root, "commit", "-m", message)


@pytest.fixture
def root(tmp_path):
    """A repository of two packages, `high` upon `low`, at 0.2.0, all of it as it has to be."""
    for name, needs in (("low", '"torch>=2"'), ("high", '"things-low>=0.2,<0.3"')):
        put(
            tmp_path,
            f"packages/{name}/pyproject.toml",
            PROJECT.format(name=f"things-{name}", module=f"things_{name}", needs=needs),
        )
        put(tmp_path, f"packages/{name}/src/things_{name}/_version.py", '__version__ = "0.2.0"\n')
        put(tmp_path, f"packages/{name}/src/things_{name}/__init__.py", '__all__ = ["one"]\n')
        put(tmp_path, f"packages/{name}/public_api.txt", "one\n")
        put(tmp_path, f"packages/{name}/CHANGELOG.md", "# Changelog\n\n## 0.2.0 (2026-01-01)\n")
    put(tmp_path, f"{LOW}/{CODE}", "x = 1\n")
    git(tmp_path, "init", "-b", "main")
    commit(tmp_path)
    return tmp_path


DAMAGES = {
    "nothing": ({}, ["things-low-v0.2.0", "things-high-v0.2.0"], []),
    "another version": ({}, ["things-low-v0.3.0"], ["_version.py says 0.2.0; tag it things-low-v0.2.0"]),
    "another spelling": ({}, ["things-low-v0.2"], ["tag it things-low-v0.2.0"]),
    "no version": ({}, ["things-low-vnext"], ["tag it things-low-v0.2.0"]),
    "no v": ({}, ["things-low-0.2.0"], ["no distribution is called '"]),
    "no such package": (
        {},
        ["things-v0.2.0"],
        ["no distribution is called 'things'; a tag is NAME-vVERSION, NAME one of things-high, "],
    ),
    "dirty": ({f"{LOW}/{CODE}": "x = 2\n"}, ["things-low-v0.2.0"], [f"commit or remove what git status shows:\n M {LOW}/{CODE}"]),
    "untracked": ({"notes": "x"}, ["things-low-v0.2.0"], ["commit or remove what git status shows:\n?? notes"]),
}


@pytest.mark.parametrize(("written", "tags", "reasons"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_releases_are_refused(root, written, tags, reasons):
    for path, text in written.items():
        put(root, path, text)
    found = distributions.read(root)
    named, wrong = release.of_tags(tags, found)
    wrong += release.problems(root, found, named)
    assert len(wrong) == len(reasons) and all(reason in text for reason, text in zip(reasons, wrong, strict=True))


WRONG = {
    "a sibling beyond the range": (
        {f"{LOW}/{VERSION}": '__version__ = "0.3.0"\n', f"{LOW}/CHANGELOG.md": "## 0.3.0 (2026-02-01)\n"},
        ["packages/high/pyproject.toml needs things-low<0.3,>=0.2, and things-low is 0.3.0; correct the range"],
    ),
    "no section": (
        {f"{LOW}/CHANGELOG.md": "## 0.2 (2026-01-01)\n"},
        [f"{LOW}/CHANGELOG.md has no section 0.2.0; write it, from the fr"],
    ),
    "a section of another": ({f"{LOW}/CHANGELOG.md": "## 0.2.01\n\ntext 0.2.0\n"}, [f"{LOW}/CHANGELOG.md has no section 0.2.0"]),
}


@pytest.mark.parametrize(("written", "reasons"), WRONG.values(), ids=WRONG)
def test_wrong_releases_are_refused(root, written, reasons):
    for path, text in written.items():
        put(root, path, text)
    commit(root)
    found = distributions.read(root)
    wrong = release.problems(root, found, found.values())
    assert len(wrong) == len(reasons) and all(text.startswith(reason) for reason, text in zip(reasons, wrong, strict=True))


def test_many_changes_are_not_all_listed(root):
    for number in range(30):
        put(root, f"notes{number}", "")
    (wrong,) = release.problems(root, distributions.read(root), [])
    assert wrong.count("\n") < 15 and wrong.endswith("...")


def test_a_plan_knows_what_is_released(root):
    put(root, f"{HIGH}/changelog.d/+x.feature.md", "Text.\n")
    commit(root)
    lines, unreleased = release.plan(root, distributions.read(root))
    assert [d.project for d in unreleased] == ["things-low", "things-high"]
    assert lines == ["1. things-low 0.2.0", "2. things-high 0.2.0; fragments that stay for the version after it: 1"]
    git(root, "tag", "things-low-v0.2.0")
    lines, unreleased = release.plan(root, distributions.read(root))
    assert [d.project for d in unreleased] == ["things-high"] and lines[0].endswith("is released, and nothing has come since")


def test_a_plan_drafts_what_comes_after_a_release(root):
    pytest.importorskip("towncrier")
    put(root, f"{LOW}/changelog.d/+x.feature.md", "A thing that is new.\n")
    put(root, f"{HIGH}/{VERSION.replace('low', 'high')}", '__version__ = "0.4.0"\n')
    commit(root)
    git(root, "tag", "things-low-v0.2.0")
    lines, unreleased = release.plan(root, distributions.read(root))
    assert (
        lines[0] == "1. things-low 0.2.0 is released; the next is 0.3.0, to be written to _version.py:"
        and "- A thing" in lines[1]
    )
    assert lines[2] == "2. things-high 0.4.0, of which the changelog would say:" and lines[3].startswith("## 0.4.0 (")
    assert [d.project for d in unreleased] == ["things-high"]


@pytest.mark.parametrize(
    ("version", "kinds", "following"),
    [
        ("0.2.0", {"bugfix"}, "0.2.1"),
        ("0.2.3", {"bugfix", "feature"}, "0.3.0"),
        ("0.2.3", {"removal"}, "0.3.0"),
        ("1.2.3", {"feature"}, "1.3.0"),
        ("1.2.3", {"removal", "bugfix"}, "2.0.0"),
    ],
)
def test_versions_follow(version, kinds, following):
    assert release.next_version(Version(version), kinds) == Version(following)


NEW, OTHERS = {f"{LOW}/changelog.d/+x.bugfix.md": "Text.\n"}, {f"{HIGH}/changelog.d/+x.bugfix.md": "Text.\n"}
CHANGE = {f"{LOW}/{CODE}": "x = 2\n"}
RELEASE = {
    f"{LOW}/{VERSION}": '__version__ = "0.2.1"\n',
    f"{LOW}/CHANGELOG.md": "## 0.2.1 (2026-02-01)\n\n## 0.2.0 (2026-01-01)\n",
}
CHANGES = {
    "nothing": ({}, "m", True, True),
    "tests": ({f"{LOW}/tests/test_x.py": ""}, "m", True, True),
    "a source": (CHANGE, "m", True, False),
    "a new source": ({f"{LOW}/src/things_low/new.py": ""}, "m", True, False),
    "a new source, not committed": ({f"{LOW}/src/things_low/new.py": ""}, "m", False, False),
    "a source, and a fragment": (CHANGE | NEW, "m", True, True),
    "a source, and a fragment, not committed": (CHANGE | NEW, "m", False, True),
    "a source, and another package's fragment": (CHANGE | OTHERS, "m", True, False),
    "a source, and no fragment but a file": (CHANGE | {f"{LOW}/changelog.d/.gitkeep": ""}, "m", True, False),
    "a source, unseen": (CHANGE, "m\n\nChangelog: none", True, True),
    "a source, unseen and not committed": (CHANGE, "m\n\nChangelog: none", False, False),
    "a source, of which the text speaks": (CHANGE, "m\n\nThe changelog: none is there.", True, False),
    "a release": (CHANGE | RELEASE, "m", True, True),
    "a version without a section": (CHANGE | {f"{LOW}/{VERSION}": '__version__ = "0.2.1"\n'}, "m", True, False),
}


@pytest.mark.parametrize(("written", "message", "committed", "right"), CHANGES.values(), ids=CHANGES)
def test_changes_of_sources_have_a_fragment(root, written, message, committed, right):
    git(root, "checkout", "-b", "work")
    for path, text in written.items():
        put(root, path, text)
    if committed and written:
        commit(root, message)
    base = changelog.base_of(root)
    wrong = changelog.missing(root, base)
    assert (
        wrong == [] if right else len(wrong) == 1 and wrong[0].startswith(f"{LOW}/src differs from {base[:10]}, and no fragment")
    )


def test_sources_that_go_are_changes_and_fragments_that_go_are_none(root):
    put(root, *next(iter(NEW.items())))
    commit(root)
    git(root, "checkout", "-b", "work")
    for path in (*NEW, f"{LOW}/{CODE}"):
        (root / path).unlink()
    assert len(changelog.missing(root, changelog.base_of(root))) == 1


def test_one_unseen_commit_speaks_for_itself_alone(root):
    git(root, "checkout", "-b", "work")
    for number, message in enumerate(("m\n\nChangelog: none", "m")):
        put(root, f"{LOW}/{CODE}", f"x = {number + 5}\n")
        commit(root, message)
    assert len(changelog.missing(root, changelog.base_of(root))) == 1


def test_without_main_there_is_no_base(root):
    git(root, "branch", "-m", "main", "trunk")
    assert changelog.base_of(root) is None


def test_drafts_are_rendered_and_misnamed_fragments_refused(root):
    pytest.importorskip("towncrier")
    put(root, f"{LOW}/changelog.d/+x.feature.md", "A thing that is new.\n")
    low = distributions.read(root)["low"]
    text = changelog.draft(low, Version("0.3.0"))
    assert text.startswith("## 0.3.0 (") and "### New\n\n- A thing that is new." in text
    put(root, f"{LOW}/changelog.d/+y.featrue.md", "Misnamed.\n")
    with pytest.raises(
        RuntimeError, match=r"(?s)y\.featrue\.md.*A fragment is packages/low/changelog\.d/\+WORDS\.removal|feature|bugfix"
    ):
        changelog.draft(low, Version("0.3.0"))


def test_the_oldest_sibling_is_a_tag_or_a_commit(root):
    low, specifier = distributions.read(root)["low"], SpecifierSet(">=0.2,<0.3")
    head = distributions.git(root, "rev-parse", "HEAD")
    for version in ("0.2.1", "0.3.0"):
        put(root, f"{LOW}/{VERSION}", f'__version__ = "{version}"\n')
        commit(root)
        git(root, "tag", f"things-low-v{version}")
    assert oldest_siblings.oldest(root, low, SpecifierSet("==0.2.0")) == (Version("0.2.0"), head, False)
    assert oldest_siblings.oldest(root, low, specifier) == (Version("0.2.1"), "things-low-v0.2.1", True)
    with pytest.raises(LookupError, match=r"no commit has a version of things-low in >=0\.5: commit the version, or correct"):
        oldest_siblings.oldest(root, low, SpecifierSet(">=0.5"))
    distributions.export(root, head, root / "there", LOW)
    assert (root / "there" / LOW / VERSION).read_text() == '__version__ = "0.2.0"\n' and not (root / "there" / HIGH).exists()


def test_names_that_come_and_go_are_told(root):
    assert public_api.differences(root) == []
    put(root, f"{LOW}/src/things_low/__init__.py", '__all__ = ["two"]\n')
    assert public_api.differences(root) == ["low: two is not on record", "low: one is on record and not in __all__"]


def test_a_wheel_that_is_not_there_or_twice_is_refused(root):
    low = distributions.read(root)["low"]
    for names, count in (((), 0), (("things_low-0.2.0-py3-none-any.whl", "things_low-0.2.0-1-py3-none-any.whl"), 2)):
        for name in names:
            put(root, f"dist/{name}", "")
        with pytest.raises(FileNotFoundError, match=f"has {count} wheels things_low-0.2.0-.* build them anew"):
            wheels.wheel(root / "dist", low)


def test_this_trees_metadata_fit_together():
    found = distributions.read()
    tables = {}
    for call in ast.walk(ast.parse((ROOT / "noxfile.py").read_text())):
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "Package":
            tables[ast.literal_eval(call.args[0])] = set(ast.literal_eval(call.args[1])) if len(call.args) > 1 else set()
    assert {name: set(d.siblings) for name, d in found.items()} == tables
    assert {name: distributions.needed(name, found)[:-1] for name in found} == {
        n: [m for m in found if m in tables[n]] for n in found
    }
    assert all(changelog.has_section(d, d.version) for d in found.values())
    assert {(d.folder / "LICENSE").read_text() for d in found.values()} == {(ROOT / "LICENSE").read_text()}
    ranges = [(d.project, name) for d in found.values() for name, r in d.siblings.items() if found[name].version not in r]
    assert ranges == [] and public_api.differences() == []


def test_generated_code_is_compared_without_folders_and_keys():
    from kernel_diff import normalised

    text = (
        f"# artifact {'0a' * 32}\n# /home/me/my-code/models.py:12 in f, /usr/lib/x.py\n#include <a/b.h>\nx = a / b  # 1/2 of f.py"
    )
    assert normalised(text) == "# artifact DIGEST\n# models.py:12 in f, x.py\n#include <a/b.h>\nx = a / b  # 1/2 of f.py"


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_generated_code_is_of_both_targets(target, tmp_path, monkeypatch):
    from kernel_diff import TARGETS

    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path))
    (artifact,) = TARGETS[target]("llama", False)
    assert {kernel.language for kernel in artifact.kernels} == {{"cpu": "cpp", "gpu": "triton"}[target]}
