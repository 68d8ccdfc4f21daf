"""Operators that capture makes for what a program calls: one registry for each namespace of torch.ops."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

__all__ = ["GeneratedOperators"]


class GeneratedOperators:
    """The operators of this process in one namespace. Names do not depend on the process, since stored graphs hold them."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._library: Any = None
        self._found: dict[Any, Any] = {}
        self._names: set[str] = set()

    def known(self, key: Any) -> Any:
        """The operator made for this key; None before `make`."""
        return self._found[key][1] if key in self._found else None

    def make(
        self, key: Any, alive: Any, stem: str, facts: Any, schema: str, run: Any, on_meta: Any, tags: tuple[torch.Tag, ...] = ()
    ) -> Any:
        """A new operator for the key, named by `stem` and a digest of `facts`; `alive` is kept, so that an id in the key stays taken."""
        name = self._new_name(stem, facts)
        if self._library is None:
            self._library = torch.library.Library(self.namespace, "FRAGMENT")
        self._library.define(f"{name}{schema}", tags=tags)
        self._library.impl(name, run, "CompositeExplicitAutograd")
        self._library.impl(name, on_meta, "Meta")
        operator = getattr(getattr(torch.ops, self.namespace), name).default
        self._found[key] = (alive, operator)
        return operator

    def _new_name(self, stem: str, facts: Any) -> str:
        stem = "".join(c if c.isalnum() else "_" for c in stem)
        stem = name = f"{stem}_{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
        while name in self._names:
            name = f"{stem}_{len(self._names)}"
        self._names.add(name)
        return name
