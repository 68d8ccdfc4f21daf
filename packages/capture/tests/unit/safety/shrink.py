"""Cuts a program that fails down to a small one that still fails: statements go, blocks give way to what is in them, operands to parts."""

from __future__ import annotations

import ast
import time

__all__ = ["shrunk"]


def shrunk(function, fails, seconds=60.0):
    """The smallest text found for which `fails(text)` holds, within about so many seconds."""
    end = time.monotonic() + seconds
    edits, position = _edits(function), 0
    while position < len(edits) and time.monotonic() < end:
        candidate = edits[position]
        if len(candidate) < len(function) and fails(candidate):
            function, edits = candidate, _edits(candidate)
            position = min(position, len(edits))
            position = 0 if position == len(edits) else position
        else:
            position += 1
    return function


def _edits(function):
    """Texts with one change each: the larger cuts first."""
    tree = ast.parse(function)
    texts = []
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                texts += _cut_statements(tree, node, field, value)
            elif isinstance(value, ast.expr) and not isinstance(node, (ast.Attribute, ast.keyword)):
                parts = [part for part in ast.walk(value) if isinstance(part, ast.expr) and part is not value]
                texts += [_with(tree, node, field, part) for part in parts[:6]]
    return sorted(dict.fromkeys(text for text in texts if text), key=len)


def _cut_statements(tree, node, field, body):
    for size in (len(body) // 2, 1):
        for start in range(0, len(body), size) if size else ():
            yield _with(tree, node, field, body[:start] + body[start + size :] or [ast.Pass()])
    for number, statement in enumerate(body):
        inner = [s for block in ("body", "orelse", "finalbody") for s in getattr(statement, block, [])]
        if inner and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield _with(tree, node, field, [*body[:number], *inner, *body[number + 1 :]])


def _with(tree, node, field, value):
    """The program's text while the field has another value; None for what is no program."""
    before = getattr(node, field)
    setattr(node, field, value)
    try:
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        compile(text, "", "exec")
        return text
    except (SyntaxError, ValueError, AttributeError, TypeError):
        return None
    finally:
        setattr(node, field, before)
