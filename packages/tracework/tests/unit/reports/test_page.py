"""Parts of the page."""

import base64
import re
import zlib

from tracework.reports.page import chart, deflated, findings

BREAK = {"stack": [{"file": "m.py", "line": 3}], "what": "print() was called", "cure": "remove it"}


def step(number, us, limit_us):
    return {"name": "exp_0", "number": number, "us": us, "limit_us": limit_us}


def test_texts_are_deflated_as_a_browser_inflates_them():
    assert zlib.decompress(base64.b64decode(deflated("<a> é\n"))).decode() == "<a> é\n"


def test_both_lines_of_a_chart_fill_it():
    text = chart([1, 2], [4, 1, 1])
    ours, others = (re.search(f'class="{name}" points="([^"]*)"', text)[1].split() for name in ("ours", "others"))
    assert len(ours) == 4 and len(others) == 6 and ours[-1] == "640.0,80.0" and others[0] == "0.0,10.0"
    assert "2 B" in text and "4 B" in text
    chart([], [])


def test_what_comes_first_is_what_breaks_then_what_is_slow():
    compiled = [{"number": 0, "us": 1000, "kernels": [step(0, 900, 100), step(1, 90, 80), step(2, 10, 1), step(3, None, None)]}]
    said = findings({"uncompiled": [], "breaks": [BREAK], "recompiles": [], "compiled": compiled})
    assert said == [
        "The graph breaks at m.py:3: print() was called. Try: remove it",
        "exp_0 (graph 0, step 0) takes 900 µs, where its bytes and operations need 100 µs.",
    ]
