"""Strings that differ between calls: how often functions over them are compiled, and that results stay plain Python's."""

import pytest
import torch
import tracework_capture as capture


def graphs_of(function, calls, same=True):
    """Calls the compiled function; gives the number of graphs. Results must equal plain Python's."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    call = capture.optimize(backend, recompile_limit=50)(function)
    for args in calls:
        found, wanted = call(*args), function(*args)
        assert torch.equal(found[0], wanted[0]) and found[1:] == wanted[1:]
    return len(graphs)


SIZES = [(torch.ones(n, 2),) for n in (3, 4, 5, 9, 17)]
SEEN = {}
PATTERN, PATTERNS = "%d rows", "%s of %3d: %r"


def in_an_f_string(x):
    return x + 1, f"{x.shape[0]} rows", f"{x.shape[0]:>5}|{x.shape[0]!r}"


def in_str(x):
    return x + 1, str(x.shape[0]) + "/" + repr(x.shape[0] * 2)


def in_a_message(x):
    assert x.shape[0] > 2, f"only {x.shape[0]} rows"
    return (x + 1,)


def in_percent(x):
    return x + 1, PATTERN % x.shape[0], PATTERNS % ("a", x.shape[0], x.shape[1])


@pytest.mark.parametrize("function", [in_an_f_string, in_str, in_a_message, in_percent])
def test_texts_of_sizes_fix_nothing(function):
    assert graphs_of(function, SIZES) == 2


def as_a_key(x):
    SEEN[f"{x.shape[0]}"] = x.shape[0]
    return x + 1, dict(SEEN)


def compared(x):
    return (x + 1, "four") if f"{x.shape[0]}" == "4" else (x - 1, "other")


def measured(x):
    return x + len(f"{x.shape[0]}"), None


@pytest.mark.parametrize("function", [as_a_key, compared, measured])
def test_what_needs_the_characters_fixes_them(function):
    assert graphs_of(function, SIZES) == len(SIZES)


def helper(x, mode):
    if mode.startswith("add"):
        return x + 1
    return x * 2 if "mul" in mode else x - 1


def steered(x, mode):
    return helper(x, mode), mode


def unread(x, mode):
    return x + 1, [mode]


def equal(x, mode):
    return (x + 1, 1) if mode == "sum" else (x - 1, 2)


MODES = [(torch.ones(2), mode) for mode in ("add a", "add b", "mul c", "add d", "sub e", "mul f", "sub g", "sum")]


@pytest.mark.parametrize(("function", "most"), [(steered, 4), (unread, 2), (equal, 3)])
def test_strings_that_steer_compile_once_for_each_way(function, most):
    assert graphs_of(function, MODES) <= most


def looked_up(x, mode):
    return x + {"add a": 1}.get(mode, 2), mode.upper()


def attribute(x, mode):
    return x + getattr(torch, "pi" if mode.endswith("a") else "e"), f"{mode}!", len(mode)


def joined(x, mode):
    return x + 1, "-".join([mode, "x"]), mode * 2, mode[0], list(mode), mode in ("sum", "mul c"), hash(mode) == hash(str(mode))


@pytest.mark.parametrize("function", [looked_up, attribute, joined])
def test_other_uses_give_what_python_gives(function):
    assert graphs_of(function, MODES) <= len(MODES)
