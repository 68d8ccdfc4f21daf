"""Orders of sets: random programs that make sets of each other and change them, with members that fall on each other in the tables."""

import random

import pytest
import torch
import tracework_capture as capture

MEMBERS = [0, 1, 2, 3, 5, 8, 9, 16, 17, 24, 25, 33, 40]
METHODS = ["update", "difference_update", "symmetric_difference_update", "intersection_update"]
CALLS = [([1, 9, 17], {0: 1, 1: 2}), ([3, 1, 2, 33], {4: 1}), ([], {5: 1, 13: 1, 21: 1}), ([1, 9, 17], {0: 1, 1: 2})]


def program(seed):
    """Source of a function of a list A, a dict T, a set S and a frozenset F."""
    draw = random.Random(seed)
    names, lines = ["a", "b", "S", "F"], ["log = []", "a = set(A)", "b = set(T)"]

    def operand():
        made = "{" + ", ".join(map(str, draw.sample(MEMBERS, draw.randint(1, 5)))) + "}"
        return draw.choice([*names, *names, made, f"frozenset({draw.choice(names)})"])

    for number in range(draw.randint(2, 6)):
        target, new = draw.choice(names), f"v{number}"
        lines.append(
            draw.choice(
                [
                    f"{target} {draw.choice(['|=', '&=', '-=', '^='])} {operand()}",
                    f"{new} = {target} {draw.choice('|&-^')} {operand()}",
                    f"{draw.choice('abS')}.{draw.choice(METHODS)}({draw.choice([operand(), 'A', 'T', 'T.keys()'])})",
                    f"{new} = {draw.choice([target + '.copy()', f'set({target})', '{*' + target + '}', f'frozenset({target})'])}",
                    f"{draw.choice('abS')}.add({draw.choice([1, 9, 17, 33, 41, 49])})",
                    f"{draw.choice('abS')}.discard({draw.choice([1, 2, 9, 17])})",
                    f"{new} = {target}.union({operand()}, {draw.choice(['A', 'b', 'T', target])})",
                    f"{new} = {target}.intersection({draw.choice([operand(), 'A'])})",
                    f"{new} = set({target})\n    {new} and {new}.pop()",
                ]
            )
        )
        if lines[-1].startswith(new):
            names.append(new)
        if draw.random() < 0.5:
            lines.append(f"log.append([*{draw.choice(names)}])")
    shown = ", ".join(f"str({name})" for name in names)
    return "def run(A, T, S, F, x):\n    " + "\n    ".join(lines) + f"\n    return log, [{shown}], x + 1\n"


def observed(run, items, table):
    given = set(items)
    given |= {3, 19, 35}
    given.discard(19)  # leaves a gap in its table
    log, shown, _ = run(list(items), dict(table), given, frozenset([1, 9, 33]), torch.ones(1))
    return log, shown, list(given)


@pytest.mark.parametrize("seed", range(40))
def test_are_those_of_python(seed):
    namespace = {}
    exec(program(seed), namespace)
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(namespace["run"])
    for items, table in CALLS:
        assert observed(compiled, items, table) == observed(namespace["run"], items, table), program(seed)


def of_itself(items, x):
    made = set(items)
    made &= made
    made ^= made
    made |= {1, 9, 17, 33}
    made -= {9}
    return [*made.union(made, made)], [*made.intersection(made)], x + 1


def after_a_break(items, x):
    made = set(items)
    made.pop()
    capture.graph_break()
    made |= {0, 1}
    made.add(9)
    return [*made], x + 1


@pytest.mark.parametrize("function", [of_itself, after_a_break])
def test_what_tables_hide(function):
    compiled = capture.optimize(lambda gm, example_inputs: gm.forward)(function)
    for items in ([1, 9, 17], [3, 1, 2, 33], [1, 9, 17]):
        assert compiled(items, torch.ones(1))[:-1] == function(items, torch.ones(1))[:-1]
