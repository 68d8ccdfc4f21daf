import pytest
import torch
from tracework_capture.formulas import ComputedNumber
from tracework_capture.graph.changed_inputs import in_modes, with_changed_inputs


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("boxed", [False, True])
def test_what_a_graph_gets(boxed):
    got = []
    call = with_changed_inputs(
        (lambda given: got.extend(given)) if boxed else (lambda *given: got.extend(given)),
        ((0, "float"), (1, "computed"), (3, "plain")),
        boxed,
        ((2, lambda generator: generator + 1),),
    )
    given = [0.5, ComputedNumber("2 * a", "a", (0,)), 6, torch.ones(1).as_subclass(Own)]
    call(given) if boxed else call(*given)
    assert got[:3] == [torch.tensor(0.5, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64), torch.tensor(7)]
    assert [x.dtype for x in got[:3]] == [torch.float64, torch.float64, torch.int64]
    assert type(got[3]) is torch.Tensor and got[3].data_ptr() == given[3].data_ptr() and type(given[3]) is Own


def test_nothing_to_do():
    assert with_changed_inputs(print, (), True) is print and in_modes(print, ()) is print
