"""The pages of packages list the files of all folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.module_list import files_of, first_sentence, package_folder
from docs.tests.documents import PAGES, ROOT, name_of

PACKAGE_PAGES = [page for page in PAGES if page.parent.name == "packages"]


def test_every_package_has_a_page() -> None:
    assert {page.stem for page in PACKAGE_PAGES} == {folder.name for folder in (ROOT / "packages").iterdir() if folder.is_dir()}


@pytest.mark.parametrize("page", PACKAGE_PAGES, ids=name_of)
def test_all_folders_are_listed(page: Path) -> None:
    package = page.stem
    listed = set(re.findall(r"^```\{modules\} (\S+)$", page.read_text(), re.MULTILINE))
    root = package_folder(package)
    folders = [root, *(folder for folder in root.rglob("*") if folder.is_dir())]
    wanted = {"/".join((package, *folder.relative_to(root).parts)) for folder in folders if len(files_of(folder)) > 1}
    wanted |= {f"{package}/csrc"} if (ROOT / "packages" / package / "csrc").is_dir() else set()
    assert listed == wanted


def test_a_first_sentence() -> None:
    assert first_sentence(package_folder("primops") / "families.py").startswith("The eleven families of ops; every folder")
    assert first_sentence(ROOT / "packages" / "capture" / "csrc" / "eval_frame.c").startswith(
        "The PEP 523 evaluator: run an entry"
    )
