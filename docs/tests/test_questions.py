"""What a new user asks is answered within two clicks of the front page: a page, or a part of one, that the front page or a page that it links has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.tests.documents import ROOT

DOCS = ROOT / "docs"
QUESTIONS = {
    "how do I install it": "guides/first_steps.md#install",
    "is it faster, by how much": "index.md#how-fast",
    "how do I measure that": "guides/first_steps.md#is-it-faster",
    "why is my model slow": "guides/slow.md",
    "why does the first call take a minute": "guides/slow.md#the-first-call",
    "why does it compile again": "guides/slow.md#recompiles",
    "what breaks": "breaks.md#reasons",
    "this break: what do I write instead": "breaks/data_dependent_branch.md#instead",
    "is it right": "guides/first_steps.md#is-it-right",
    "how near to eager's bits": "guides/numerics.md",
    "what if a result differs": "guides/when_it_goes_wrong.md#diff-which-stage-operator-and-line",
    "it raises an error, what now": "guides/when_it_goes_wrong.md#cases",
    "dynamic sizes": "guides/sizes_and_numbers.md#saying-which",
    "training": "guides/training.md",
    "my optimizer": "guides/training.md#optimizers",
    "mixed precision": "guides/training.md#mixed-precision",
    "Trainer, Lightning, accelerate": "guides/training.md#trainers",
    "it takes too much memory": "guides/training.md#memory",
    "several GPUs: what works": "guides/distributed.md#what-works",
    "several GPUs: what does not": "guides/distributed.md#what-does-not",
    "serving": "guides/serving.md#a-model-in-a-service",
    "decoding on a GPU server": "guides/serving.md#decoding",
    "CUDA graphs": "guides/cuda_graphs.md#turning-it-on",
    "why is no CUDA graph recorded": "guides/cuda_graphs.md#when-it-does-not-record",
    "ship it without a compiler": "guides/shipping.md#a-program-as-one-file",
    "caches in a Docker image": "guides/shipping.md#in-a-docker-image",
    "how do I see the generated code": "guides/looking_inside.md#the-generated-code",
    "which options exist": "tables/options.md",
    "which environment variables exist": "tables/options.md#environment-variables",
    "which commands exist": "tables/commands.md",
    "an operator of my own": "guides/custom_operators.md",
    "add a prim, a decomposition, a lowering": "contributing.md#a-prim",
    "write a backend": "research/index.md#write-a-backend",
    "write a fusion rule": "research/index.md#write-a-fusion-rule",
    "add a target": "research/index.md#add-a-target",
    "coming from torch.compile": "guides/in_place_of_torch_compile.md",
    "is this option of torch.compile known": "tables/from_torch.md",
    "is this operator supported": "tables/operators.md",
    "which versions of torch and Python": "tables/supported.md",
}


def text_of(page: str) -> str:
    """A page with what it includes; of a page about a break, which the site writes, what it is written from."""
    if page.startswith("breaks/"):
        from tracework.break_pages import break_page

        return break_page(Path(page).stem)
    text = (DOCS / page).read_text()
    included = re.findall(r"^```\{include\} (\S+)$", text, re.MULTILINE)
    return text + "".join(((DOCS / page).parent / name).read_text() for name in included)


def linked(page: str) -> set[str]:
    """The pages that a page links, from the folder of the documentation, its contents included."""
    text, folder = text_of(page), Path(page).parent
    names = re.findall(r"\]\(([\w./]+\.md)", text) + re.findall(r"^([\w/]+)$", text, re.MULTILINE)
    names += [f"breaks/{reason}.md" for reason in reasons()] if "{table-of} breaks" in text else []
    found = (name if name.endswith(".md") else f"{name}.md" for name in names)
    paths = {(DOCS / folder / name).resolve() for name in found}
    return {str(path.relative_to(DOCS)) for path in paths if path.is_relative_to(DOCS)}


def reasons() -> list[str]:
    from tracework_capture import BREAK_REASONS

    return list(BREAK_REASONS)


def anchors(page: str) -> set[str]:
    """Of the headings, as MyST makes them."""
    text = re.sub(r"^(`{3,})(?!\{include).*?^\1$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_within_two_clicks(question: str) -> None:
    page, _, anchor = QUESTIONS[question].partition("#")
    first = linked("index.md") | {"index.md"}
    assert page in first or any(page in linked(each) for each in first if (DOCS / each).is_file())
    assert not anchor or anchor in anchors(page)


def test_pages_are_told_apart() -> None:
    assert "guides/slow.md" in linked("index.md") and "guides/nothing.md" not in linked("index.md")
    assert "install" in anchors("guides/first_steps.md") and "nothing" not in anchors("guides/first_steps.md")
    assert "tables/from_torch.md" in linked("guides/in_place_of_torch_compile.md")
