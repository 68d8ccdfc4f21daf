"""Quantities have three digits and a unit."""

import pytest
from tracework.reports.text import duration, operations, share, size

SAID = [
    (size(0), "0 B"),
    (size(999), "999 B"),
    (size(6_291_456), "6.29 MB"),
    (size(62_914_560), "62.9 MB"),
    (size(None), "not known"),
    (operations(14.5e9), "14.5 GFLOP"),
    (duration(4.14), "4.1 µs"),
    (duration(414), "414 µs"),
    (duration(41_400), "41.4 ms"),
    (duration(2.5e6), "2.50 s"),
    (duration(None), "not measured"),
    (share(1, 3), "33 %"),
    (share(None, 3), ""),
]


@pytest.mark.parametrize("pair", SAID, ids=lambda pair: pair[1])
def test_quantities(pair):
    assert pair[0] == pair[1]
