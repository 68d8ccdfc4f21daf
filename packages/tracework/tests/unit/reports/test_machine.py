"""What a machine can do."""

import torch
from tracework.reports.machine import Machine, machine_of, name_of


def test_the_longer_of_two_limits_counts():
    machine = Machine("m", 100.0, {"float32": 10.0, "bfloat16": 20.0}, "")
    assert machine.limit(1000, 10, "float32") == (10.0, "memory") and machine.limit(10, 1000, "bfloat16") == (50.0, "arithmetic")
    assert machine.limit(0, 10, "int8") == (1.0, "arithmetic")
    assert machine.at_least([("float32", 15.0), ("bfloat16", 15.0), ("int8", 1.0)]).peaks == {"float32": 15.0, "bfloat16": 20.0}


def test_this_one_is_measured():
    machine = machine_of("cpu")
    assert 1e8 < machine.bandwidth < 1e13 and 1e8 < machine.peaks["float32"] < 1e15
    assert str(torch.get_num_threads()) in name_of("cpu") and machine_of("cpu") is machine
