"""Types of the native module."""

from collections.abc import Callable, Sequence
from typing import Any

Stages = tuple[tuple[int, int, int, int, int, int], ...]

class Plan:
    def __init__(
        self,
        launch_address: int,
        stages: Stages,
        numbers: str,
        scratch: tuple[int, ...],
        scratch_bytes: int,
        allocate: Callable[[int], Any],
    ) -> None: ...
    def run(self, stream: int, addresses: tuple[int, ...], numbers: tuple[Any, ...]) -> int: ...

class Launcher:
    def __init__(
        self,
        tensors: int,
        numbers: str,
        find: Callable[[tuple[int, ...], tuple[Any, ...], bool], tuple[Plan, bool]],
        failed: Callable[..., None],
        stream: Callable[[int], int],
        device: int,
    ) -> None: ...
    def __call__(self, *args: Any) -> None: ...
    def attempt(self, *args: Any) -> int: ...

class Expected:
    def __init__(
        self, dtype: Any, device_type: int, device_index: int, is_own: bool, otherwise: Callable[[Any, Any, Any], Any]
    ) -> None: ...
    def __call__(self, value: Any, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Any: ...

def set_tensor_api(capsule: Any, tensor: type, dtype: Any, storage_offset: Any, is_conj: Any, is_neg: Any) -> None: ...
def set_data_ptr(method: Any) -> None: ...
def set_keeping(function: Callable[..., Any] | None, copy: Callable[[Any], Any] | None) -> None: ...
def set_count_place(place: int) -> None: ...
def addresses(tensors: Sequence[Any]) -> bytes: ...
def set_tensor_functions(addresses: tuple[int, ...], watched: Callable[[], bool], to_python: Callable[[Any], Any]) -> None: ...
def set_get_address(function: int, place: int) -> None: ...

class Clock:
    number: int
    now: int

class Front:
    count: int
    def __init__(
        self,
        acquire: Callable[[], Any],
        release: Callable[[], Any],
        here: tuple[Callable[[], bool], Callable[[], int], Callable[[], bool]],
        stream: Callable[[int], int],
        device: int,
        settings: Callable[[], Any] | None,
        sizes: Callable[[Any], Any] | None,
    ) -> None: ...
    def __call__(self, inputs: list[Any]) -> tuple[Any, ...] | None: ...
    def set(self, stream: int, inference: bool, settings: Any, sizes: Any, replays: tuple[Replay, ...]) -> None: ...
    def forget(self) -> None: ...

class Program:
    def __init__(
        self,
        inputs: int,
        registers: int,
        numbers: int,
        shapes: int,
        symbols: tuple[int, ...],
        settle_after: int,
        settle: Callable[..., tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]],
        instructions: tuple[tuple[Any, ...], ...],
        /,
    ) -> None: ...
    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]: ...

class Replay:
    used: int
    step: int
    replays: int
    def __init__(
        self,
        data_ptr: Any,
        copies: tuple[int, int, int],
        graph_address: int,
        graph: int,
        launch: Any,
        references: Callable[[int], int],
        clock: Clock,
        fixed: tuple[tuple[int, int], ...],
        copied: tuple[tuple[int, int, int, bool, bool], ...],
        slots: tuple[tuple[Any, int], ...],
        outputs: tuple[tuple[int, int, Any], ...],
    ) -> None: ...
    def matches(self, inputs: list[Any]) -> bool: ...
    def settle(self) -> None: ...
    def free(self) -> bool: ...
    def held(self) -> list[int]: ...
    def run(self, inputs: list[Any], stream: int) -> tuple[Any, ...] | int: ...

class Settings:
    def __init__(self, getters: tuple[Callable[[], Any], ...], other: Callable[[], tuple[Any, ...]]) -> None: ...
    def __call__(self) -> tuple[Any, ...]: ...
