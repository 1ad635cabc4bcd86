"""Every planted fault with the values that show it, and how a request that meets it must end."""

from dataclasses import dataclass

from loadgen.emulator.fault import Fault
from loadgen.emulator.faults import FAULTS, Planted, parse

SHORT_S, LONG_S = 0.3, 10.0  # the client's read timeout: where it is to be seen, and where it must not
TOKENS = 12  # asked of every request

# Where a switch's default shows too little, is too slow for a test, or has more than one value worth a row.
VALUES: dict[str, tuple[str, ...]] = {
    "status": ("400", "401", "404", "408", "413", "422", "429", "500", "502", "503"),
    "wrong-content-type": ("text/html", "application/json"),
    "error-in-stream": ("vllm", "openai", "flat"),
    "reasoning-deltas": ("reasoning_content", "reasoning"),
    "metrics-slow": ("0.4",),
    "slow-headers": ("0.1", "2"),
    "byte-per-write": ("1", "7"),
}
OTHERWISE: dict[str, tuple[str, str]] = {"slow-headers=2": ("timeout", "no byte for 0.3 s")}


@dataclass(frozen=True)
class Case:
    switch: str
    fault: Fault
    ends: str
    says: str

    @property
    def read_s(self) -> float:
        return SHORT_S if self.ends == "timeout" else LONG_S

    @property
    def value(self) -> object:
        (planted,) = parse([self.switch]).planted
        return planted.value


def _case(switch: str) -> Case:
    planted: Planted
    (planted,) = parse([switch]).planted
    fault = planted.fault
    ends, says = OTHERWISE.get(switch, (fault.ends, fault.says.format(value=planted.value)))
    return Case(switch, fault, ends, says)


CASES = [_case(f"{name}={value}" if value else name) for name in FAULTS for value in VALUES.get(name, ("",))]
OF_REQUESTS = [case for case in CASES if case.fault.where in ("response", "stream", "wire")]
