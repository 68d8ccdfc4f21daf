"""Golden text of Triton kernels, and completeness of the text table.

After a wanted change: `python packages/inductor/tests/unit/codegen/triton/test_triton_text.py` writes the files anew.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[3]
sys.path.insert(0, str(TESTS))

import pytest  # noqa: E402
from tracework_inductor.codegen.triton import TritonRenderer  # noqa: E402
from tracework_inductor.codegen.triton.text_rules import TRITON_TEXT  # noqa: E402
from tracework_inductor.ir.scalar_ops import SCALAR_OPS  # noqa: E402
from triton_samples import SAMPLES  # noqa: E402

GOLDEN = TESTS / "golden" / "triton"
NAMES = (
    "pointwise",
    "transposed",
    "softmax",
    "softmax split",
    "layer norm",
    "attention decode",
    "column sum",
    "gather",
    "gathered sum long",
    "dynamic rows",
    "top three",
)


def text_of(name: str) -> str:
    rendered = TritonRenderer().render(SAMPLES[name]().kernel)
    facts = "".join(f"# {key}: {value}\n" for key, value in rendered.launch)
    return f"# {' '.join(rendered.signature)}\n{facts}{rendered.source}"


@pytest.mark.parametrize("name", NAMES)
def test_golden(name):
    assert text_of(name) == (GOLDEN / f"{name.replace(' ', '_')}.txt").read_text()


def test_every_scalar_op_has_a_text():
    assert set(SCALAR_OPS) - set(TRITON_TEXT) == set()


@pytest.mark.parametrize("name", NAMES)
def test_text_has_no_names_of_buffers(name):
    source = TritonRenderer().render(SAMPLES[name]().kernel).source
    compile(source, name, "exec")
    assert "KERNEL_NAME(" in source


if __name__ == "__main__":
    for one in NAMES:
        (GOLDEN / f"{one.replace(' ', '_')}.txt").write_text(text_of(one))
