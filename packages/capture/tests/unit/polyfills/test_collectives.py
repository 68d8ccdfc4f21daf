"""What polyfills of collectives call reductions and ranks, and what they give for async_op=True."""

import pytest
import torch
import torch.distributed as dist
from tracework_capture.polyfills.collectives import Done, facts_of_group, root_in_group, text_of_operation


@pytest.mark.parametrize("name", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split())
def test_reductions_have_the_names_of_functional_collectives(name):
    assert text_of_operation(getattr(dist.ReduceOp, name)) == name.lower()


def test_reductions_with_a_factor_have_none():
    assert text_of_operation(dist.ReduceOp.PREMUL_SUM) is None


def test_who_sends_is_given_in_one_way():
    assert root_in_group(None, 3, None) == 3 and root_in_group(None, None, 2) == 2
    for ranks in ((None, None), (1, 1)):
        with pytest.raises(ValueError, match="exactly one"):
            root_in_group(None, *ranks)


def test_a_group_is_asked_for_only_where_there_is_one():
    with pytest.raises(ValueError, match="init_process_group"):
        facts_of_group(None)
    assert facts_of_group(dist.GroupMember.NON_GROUP_MEMBER) is None


def test_what_is_done_is_there():
    results = [torch.ones(2)]
    done = Done(results)
    assert done.wait(1) and done.is_completed() and done.result() is results and done.get_future().done()
