"""The time of compilations, drawn and for Perfetto."""

import json

from tracework.activity import Span
from tracework.reports.compile_time import BAR, drawn, perfetto

SPANS = [
    Span("inductor", "f (m.py:1)", 11.0, 2.0, 2.0, 7),
    Span("capture", "f (m.py:1)", 10.0, 4.0, 1.0, 7),
    Span("runtime", "g (m.py:9)", 20.0, 1.0, 1.0, 8),
]


def test_functions_by_stage():
    lines = drawn(SPANS).plain.splitlines()
    assert lines[0] == "compiled in 4.00 s: capture 1.00, inductor 2.00, runtime 1.00"
    assert lines[1] == "f (m.py:1): 3.00 s" and lines[2].count("█") == BAR and lines[4].count("█") == BAR // 3
    assert drawn([]).plain == "compiled in 0.00 s: nothing was compiled"


def test_perfetto():
    events = json.loads(perfetto(SPANS))["traceEvents"]
    assert [(e["name"], e["ts"], e["dur"], e["tid"]) for e in events] == [
        ("inductor", 1e6, 2e6, 7),
        ("capture", 0, 4e6, 7),
        ("runtime", 1e7, 1e6, 8),
    ]
