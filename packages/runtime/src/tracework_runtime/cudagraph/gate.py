"""Gate: a recording is kept only where it is measured to win over launching kernel by kernel."""

from __future__ import annotations

import dataclasses

__all__ = ["Gate"]

DEVICE_BOUND = 2.0
"""A device that is busy so many times longer than the host needs to launch is not waiting for launches."""
DEVICE_BOUND_UNASKED = 1.6
"""Above 1.25 it was chance whether a step of ResNet-50 or ConvNeXt was recorded, which both win a fifth by it."""
LEAST_GAIN_UNASKED = 0.1
"""The part of a call's time that a recording saves which nobody asked for."""
HOST_GAIN_UNASKED = 0.5
NO_LOSS_UNASKED = 0.05
"""Or so much of the host's time, where the call takes no longer, as far as one can measure: a call that nearly waits for launches is rarely the
only one in a step, and what the host is ahead by here, it launches the rest of the step in."""
MEASURED_UNASKED = 3
WON_UNASKED = 2
"""So many plain calls are measured, of which the fastest counts, and so many replays have to win."""
TRIES = 3
"""So many measurements in turn have to say no: each may have been disturbed."""


@dataclasses.dataclass
class Gate:
    """What was measured for one combination of sizes.

    asked: whether the program asked for recordings: else they have to win more, as they keep memory. plain, plain_host: seconds of the fastest
    call kernel by kernel, and what the host needed in the least, None before one was measured. refusal: why a recording does not pay.
    """

    asked: bool = True
    plain: float | None = None
    plain_host: float | None = None
    refusal: str = ""
    pays: bool = False
    _losses: int = 0
    _measured: int = 0
    _won: int = 0
    _replay: float = 0.0

    def measured_plain(self, host: float, device: float) -> None:
        """Takes the seconds that a call took the host and the device."""
        whole = max(host, device)
        self.plain = whole if self.plain is None else min(self.plain, whole)
        self.plain_host = host if self.plain_host is None else min(self.plain_host, host)
        waits = device < (DEVICE_BOUND if self.asked else DEVICE_BOUND_UNASKED) * host
        self._measured += 1
        if not self.asked and waits and self._measured < MEASURED_UNASKED:
            self._losses = 0
            return
        self.pays = waits
        self._losses += not self.pays
        if self._losses >= TRIES and not self.pays:
            self.refusal = f"the device is busy for {_ms(device)} while the host needs {_ms(host)} to launch: nothing is won"
        elif self.pays:
            self._losses = 0

    def measured_replay(self, host: float, device: float) -> bool:
        """Takes a replay's; whether enough is known."""
        whole = max(host, device)
        if self.plain is None or self.plain_host is None or self._wins(host, whole, self.plain, self.plain_host):
            self._losses = 0
            self._won += 1
            return self.asked or self._won >= WON_UNASKED
        self._won = 0
        self._replay = min(self._replay or whole, whole)
        self._losses += 1
        if self._losses >= TRIES:
            self.refusal = f"a replay takes {_ms(self._replay)}, its kernels alone {_ms(self.plain)}"
        return bool(self.refusal)

    def _wins(self, host: float, whole: float, plain: float, plain_host: float) -> bool:
        """Whether a replay that takes the host so long, and host or device so long, is to be preferred to such a plain call."""
        if self.asked:
            return whole <= plain
        frees_the_host = host <= plain_host * (1 - HOST_GAIN_UNASKED) and whole <= plain * (1 + NO_LOSS_UNASKED)
        return frees_the_host or whole <= plain * (1 - LEAST_GAIN_UNASKED)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f} ms"
