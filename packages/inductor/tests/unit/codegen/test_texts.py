"""Each scalar operation has its C++ text; codegen/triton/test_triton_text.py asks the same of Triton's."""

from tracework_inductor.codegen.cpp.text_rules import CPP_TEXT
from tracework_inductor.ir.scalar_ops import SCALAR_OPS


def test_every_scalar_op_has_a_text():
    assert set(SCALAR_OPS) ^ set(CPP_TEXT) == set()
