"""Parts of the page."""

import base64
import html
import json
import re
import shutil
import subprocess
import zlib

import pytest
import torch
import tracework
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


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PROBE = """<script>addEventListener("load", async () => {
  document.querySelectorAll("details").forEach(d => d.open = true);
  document.querySelector("a[data-code]").click();
  await new Promise(done => setTimeout(done, 500));
  const width = document.documentElement.clientWidth, out = e => !e.closest(".scroll, pre, svg") && e.getBoundingClientRect().right > width + 1;
  document.body.dataset.found = JSON.stringify({
    wide: [...document.querySelectorAll("body *")].filter(out).map(e => e.outerHTML.slice(0, 80)),
    closed: document.querySelectorAll("pre[data-z]").length, texts: document.querySelector("#texts").textContent, chosen: getSelection().toString()});
})</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
def test_in_a_browser_nothing_stands_out_and_texts_open(tmp_path):
    with torch.no_grad():
        found = tracework.report(lambda x: torch.softmax(x @ x, -1) + 1, profile=True)(torch.rand(8, 8))
    file = found.save(tmp_path / "page.html")
    file.write_text(file.read_text().replace("</body>", PROBE))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,800", "--virtual-time-budget=2000"]
    done = subprocess.run([*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=60)
    seen = json.loads(html.unescape(re.search('data-found="([^"]*)"', done.stdout)[1]))
    assert seen["wide"] == [] and seen["closed"] == 0 and "def call(args)" in seen["texts"]
    assert seen["chosen"] == found.json()["compiled"][0]["kernels"][-1]["name"]
