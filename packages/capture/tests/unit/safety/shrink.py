"""Cuts a program that fails down to a small one that still fails: statements go, blocks give way to what is in them, operands to parts."""

from __future__ import annotations

import ast
import itertools
import time

__all__ = ["shrunk"]


def shrunk(function, fails, seconds=60.0):
    """The smallest text found for which `fails(text)` holds, within about so many seconds."""
    end = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for edits in (_cuts, _unwrapped, _parts):
            number = 0
            while (candidate := next(itertools.islice(edits(ast.parse(function)), number, None), None)) is not None:
                if time.monotonic() > end:
                    return function
                if len(candidate) < len(function) and fails(candidate):
                    function, smaller = candidate, True
                else:
                    number += 1
    return function


def _bodies(tree):
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield node, field, value


def _cuts(tree):
    """Without some statements: halves of a block, quarters, single ones."""
    size = max((len(body) for _, _, body in _bodies(tree)), default=0)
    while size := size // 2:
        for node, field, body in _bodies(tree):
            for start in range(0, len(body), size) if size < len(body) or size == 1 else ():
                if candidate := _with(tree, node, field, body[:start] + body[start + size :] or [ast.Pass()]):
                    yield candidate


def _unwrapped(tree):
    """With the statements of a block in its place."""
    for node, field, body in _bodies(tree):
        for number, statement in enumerate(body):
            inner = [s for block in ("body", "orelse", "finalbody") for s in getattr(statement, block, [])]
            if inner and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                if candidate := _with(tree, node, field, [*body[:number], *inner, *body[number + 1 :]]):
                    yield candidate


def _parts(tree):
    """With a part of an expression in its place."""
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not isinstance(node, (ast.Attribute, ast.keyword)):
                parts = [part for part in ast.walk(value) if isinstance(part, ast.expr) and part is not value]
                for part in parts[:6]:
                    if candidate := _with(tree, node, field, part):
                        yield candidate


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
