"""products.md has each field of each product."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from tracework_aotautograd import FunctionalProgram
from tracework_capture import CapturedGraph
from tracework_inductor import KernelPlan
from tracework_primops import PrimGraph
from tracework_runtime import Artifact

from docs.tests.documents import ROOT


@pytest.mark.parametrize("product", [CapturedGraph, FunctionalProgram, PrimGraph, KernelPlan, Artifact], ids=lambda c: c.__name__)
def test_fields_are_named(product: Any) -> None:
    page = (ROOT / "docs" / "products.md").read_text()
    section = page.partition(f"\n## {product.__name__}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(product))
