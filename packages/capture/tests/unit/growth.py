"""Whether repeated calls leave something: counts of a whole process, in which other tests have run and threads run beside."""

import gc
import os
import statistics


def resident():
    """Bytes of the process's resident memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(measure, calls, call):
    """By what measure() grows in `calls` calls, the median of five times: a leak shows in each, what is beside it in few."""
    found = []
    for _ in range(5):
        gc.collect()
        before = measure()
        for _ in range(calls):
            call()
        gc.collect()
        found.append(measure() - before)
    return statistics.median(found)
