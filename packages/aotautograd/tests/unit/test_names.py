"""The names of the package are there at the first use of one."""

import types


def test_each_name_is_there_and_partition_is_the_function():
    import tracework_aotautograd.partition  # which puts the package of that name there

    for name in tracework_aotautograd.__all__:
        assert getattr(tracework_aotautograd, name) is not None
    assert isinstance(tracework_aotautograd.partition, types.FunctionType)
    assert set(tracework_aotautograd.__all__) <= set(dir(tracework_aotautograd))
