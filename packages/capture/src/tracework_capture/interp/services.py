"""What frames ask of the layers around the interpreter: what is inlined, and how."""

from __future__ import annotations

import bdb
from typing import Any, NoReturn, cast

from ..sources import Const
from ..values.objects.function import BoundMethodValue, NewFunctionValue
from ..values.protocol.user_keys import refuse_effects
from ..values.protocol.value import Frame, Value
from . import clauses
from . import inline as inlining
from .frame import SymbolicFrame
from .select import may_be_inlined


class Services:
    """Bound to one policy and one way of running code with the hook off; `torch_functions_off_for`: whom calls of torch do not ask where
    the frame runs."""

    def __init__(self, call_policy: Any, call_disabled: Any, torch_functions_off_for: str) -> None:
        self.call_policy = call_policy
        self.call_disabled = call_disabled
        self.torch_functions_off_for = torch_functions_off_for

    @property
    def torch_functions_on(self) -> bool:
        """Whether they ask subclasses of tensors."""
        return self.torch_functions_off_for == "nobody"

    def unstarted_generator(self, frame: Frame, obj: Any, source: Any) -> Value | None:
        """A generator of plain Python that can still be run from its start; None for other iterators."""
        if not inlining.can_be_started(obj) or type(source) is Const:
            return None
        maker = inlining.maker_of(obj)  # one that was decorated may be disabled
        if maker is None or self.call_policy(maker, maker.__globals__.get("__name__"))[0] == "break":
            return None
        return inlining.UnstartedGenerator(cast("SymbolicFrame", frame), obj, source)

    def kinds_of_clause(self, frame: SymbolicFrame, index: int) -> list[type] | None:
        """The classes of the except clause whose check is at this index; None where they are not known."""
        return clauses.kinds_of_clause(frame, index)

    def run_class_body(self, frame: Frame, body: NewFunctionValue) -> tuple[dict[str, Value], Value]:
        """The names that a class body leaves, and what it gives."""
        return inlining.run_class_body(cast("SymbolicFrame", frame), body)

    def leave_all_plain(self, frame: SymbolicFrame, detail: str) -> NoReturn:
        """A debugger shows the callers, too."""
        frame.outermost().leave_plain("call_skipped", detail)

    def inline(self, frame: SymbolicFrame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A Python function under the trace policy."""
        if isinstance(function, BoundMethodValue):
            return self.inline(frame, function.function, [function.owner, *args], kwargs)
        if args and issubclass(args[0].python_type(), bdb.Bdb):
            self.leave_all_plain(frame, f"{function.name} of a debugger")
        if frame.recording.selecting and not may_be_inlined(function.code):
            frame.break_graph("call_unknown", f"{function.name} in an arm of a condition on data")
        if frame.queries.traces_equality:
            refuse_effects(frame, function)
        real = None if isinstance(function, NewFunctionValue) else function.function
        decision, reason = self.call_policy(real, function.globals.get("__name__"), function.code.co_qualname)
        if decision == "plain":
            self.leave_all_plain(frame, f"{function.name}: {reason}")
        if decision == "break":
            disabled = reason.startswith("marked")
            inside = getattr(real, "_torchdynamo_orig_callable", None)  # of a wrapper that torch.compile's disable made
            name = getattr(inside, "__qualname__", function.name)
            frame.break_graph("call_disabled" if disabled else "call_skipped", f"{name}: {reason}")
        return inlining.inline(frame, function, args, kwargs)
