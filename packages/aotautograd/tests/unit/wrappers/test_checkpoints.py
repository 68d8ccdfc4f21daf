"""What checkpoints write to inputs is written again."""

import torch
from tracework_aotautograd.signature import Repeated
from tracework_aotautograd.wrappers.checkpoints import write_again


def test_statistics_move_and_counters_count():
    mean, count, other = torch.tensor([1.0, 2.0]), torch.tensor(3), torch.zeros(1)
    writes = [Repeated(4, 1, 0.25, 7, 2), Repeated(5, 1, 1, None, 2), Repeated(6, 2, 1, None, 1)]
    write_again(writes, [mean, count, other], [torch.tensor([5.0, 2.0])], missing=2)
    assert mean.tolist() == [2.75, 2.0] and mean._version == 0  # as batch norm's own update
    assert count == 5 and count._version == 2
    assert not other.any()
