"""Operators by name, and what libraries say of theirs."""

import torch
from tracework_capture._torch import operators


@torch.library.custom_op("tracework_test_names::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x):
    return torch.empty_like(x)


def test_names_lead_to_operators():
    assert operators.named_operator("aten::add", "Tensor") is torch.ops.aten.add.Tensor
    assert operators.named_operator("aten::add", None) is torch.ops.aten.add
    assert operators.named_operator("aten::of_no_torch", None) is None
    assert "add" in operators.operator_names()


def test_overloads():
    assert operators.overloads_of(torch.ops.aten.sin.default) == [torch.ops.aten.sin.default]
    assert torch.ops.aten.sin.default in operators.overloads_of(torch.ops.aten.sin)


def test_what_a_custom_operator_is_made_of():
    overload = torch.ops.tracework_test_names.double.default
    assert operators.custom_operator(overload) is double and operators.custom_operator(torch.ops.aten.sin) is None
    assert operators.function_of_custom_operator(overload).__name__ == "double"
    assert len(operators.rules_of_custom_operator(double)) == 1 and operators.program_of_triton_operator(double) is None
    assert operators.schema_of_custom_operator(double).startswith("tracework_test_names::double(Tensor x) -> Tensor")
    assert not operators.has_gradient(torch.ops.aten.sin.out) or operators.has_gradient(torch.ops.aten.sin.default)
