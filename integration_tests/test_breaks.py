"""A fixed sample of the break counts; `nox -s breaks` counts all of the zoo."""

import pytest
from zoo.awkward import PROGRAMS
from zoo.breaks import calls_of, ours
from zoo.breaks_report import text

WHOLE = (
    "DebertaForMaskedLM=inference",
    "MambaForCausalLM=inference",
    "XmodForMaskedLM=inference",
    "timm/crossvit_tiny_240=inference",
)


@pytest.mark.parametrize("job", WHOLE)
def test_models_that_used_to_break_are_one_graph(job):
    name, _, mode = job.rpartition("=")
    found = ours(calls_of(name, mode))
    assert (found["graphs"], found["stops"], found["plain"]) == (1, [], []), found


@pytest.mark.parametrize(
    ("name", "mode", "graphs"),
    [
        ("awkward/averaged_weights", "inference", 10),  # zip of two parameters() made before a break on data
        (
            "torchvision/detection.ssdlite320_mobilenet_v3_large",
            "training",
            10,
        ),  # a loss over max(1, a size that depends on data)
    ],
)
def test_programs_that_break_seldom(name, mode, graphs):
    assert ours(calls_of(name, mode))["graphs"] <= graphs


@pytest.mark.parametrize(
    ("program", "graphs"),
    [
        ("detector", 1),
        ("detector_losses", 1),
        ("particles", 1),
        ("runge_kutta", 1),
        ("gan_step", 1),
        ("verbose", 1),
        ("statistics_in_a_loop", 1),
    ],
)
def test_awkward_programs(program, graphs):
    assert program in PROGRAMS
    found = ours(calls_of(f"awkward/{program}", "inference"))
    assert (found["graphs"], found["plain"]) == (graphs, []), found


def test_the_page_counts_only_what_both_sides_captured():
    rows = [
        {"job": "A=inference", "side": "ours", "graphs": 1, "stops": []},
        {"job": "A=inference", "side": "torch", "graphs": 3, "stops": ["x"]},
        {"job": "B=inference", "side": "ours", "graphs": 2, "stops": ["f: reason: detail (/a/site-packages/m.py:3 in f)"]},
        {"job": "B=inference", "side": "torch", "graphs": 0, "stops": []},
    ]
    page = text(rows)
    assert "| all | 1 | 0 | 0 | 1 | 2 | 0 |" in page
    assert "| B=inference | 1 | - | reason: detail; m.py:3 in f |" in page


def test_graphs_of_several_calls_are_no_breaks():
    rows = [
        {"job": "A/generate=generate", "side": "ours", "graphs": 3, "stops": []},
        {"job": "A/generate=generate", "side": "torch", "graphs": 4, "stops": ["x"]},
    ]
    page = text(rows)
    assert "| all | 1 | 0 | 0 | 1 | 1 | 0 |" in page
    assert "| A/generate=generate | 3 | - | 4 | - |" in page
