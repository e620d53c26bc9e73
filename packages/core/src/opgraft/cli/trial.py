"""A tiny kernel, run on a device with each of its compilers: the proof that they work.

`python -m opgraft.cli.trial CPU` tries one device and prints what came of it as JSON. The
listing runs it as a process of its own, so that a driver that crashes or hangs takes nothing
else along.
"""

from __future__ import annotations

import array
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

from opgraft import settings
from opgraft.catalog import Catalog
from opgraft.catalog import Device as devices
from opgraft.dtype import dtypes
from opgraft.errors import OpgraftError
from opgraft.ir import Ops, UOp
from opgraft.ir.linear import KernelInfo
from opgraft.runtime import Device, compile_kernel

State = Literal["works", "compiles", "fails", "absent", "crashed"]

SIZE: Final = 100
SECONDS: Final = 120.0
"""How long a device may take for all its pairs."""


@dataclass(frozen=True)
class Trial:
    """What came of one device and pair."""

    device: str
    pair: str
    """Empty for a device that compiles nothing, or did not open."""
    state: State
    reason: str = ""
    remedy: str = ""
    milliseconds: float = 0.0
    """From the IR to the result, compiled or found in the cache."""
    chosen: bool = False
    """The pair that is used: what the setting <DEVICE>_CC names, else the first that works."""
    alone: bool = False
    """The device has no other pair."""

    @property
    def good(self) -> bool:
        """Whether the device can be used with this pair."""
        return self.state in ("works", "compiles")

    @property
    def select(self) -> str:
        """What to set to have this device and this pair."""
        if not self.good:
            return ""
        choice = f"OPGRAFT_DEVICE={self.device}"
        if not self.pair or self.alone:
            return choice
        return f"{choice} OPGRAFT_{self.device.partition(':')[0]}_CC={self.pair}"


def tiny_kernel() -> UOp:
    """`out[i] = in[i] * 3 + 7` over int32."""
    i = UOp.range(SIZE, 0)
    out = UOp(Ops.PARAM, dtypes.int32, (), (0, SIZE))
    given = UOp(Ops.PARAM, dtypes.int32, (), (1, SIZE))
    store = out.store(i, given.load(i) * 3 + 7)
    return UOp.sink(store.end(i), arg=KernelInfo("trial"))


def try_device(name: str, catalog: Catalog = devices) -> list[Trial]:
    """Open the device and run the tiny kernel with each pair. Raises nothing."""
    kind = name.partition(":")[0].upper()
    try:
        pairs = [pair.name for pair in catalog.pairs(name)]
    except OpgraftError as error:
        return [Trial(name, "", "fails", error.message, error.remedy)]
    choice: str = settings.get(f"{kind}_CC")
    named = [pair for pair in pairs if pair.upper() == choice.upper()]
    if choice and not named:  # a path to a compiler, or a name that nobody has
        pairs = [choice, *pairs]
        named = [choice]
    trials = []
    for pair in pairs or [""]:
        with settings.using(**({f"{kind}_CC": pair} if pair else {})):
            done = _try_pair(catalog, name, pair)
        trials.append(replace(done, alone=len(pairs) < 2))
    good = [trial.pair for trial in trials if trial.good]
    chosen = named or good
    return [replace(t, chosen=bool(chosen) and t.pair == chosen[0]) for t in trials]


def _try_pair(catalog: Catalog, name: str, pair: str) -> Trial:
    begin = time.perf_counter()
    try:
        device = catalog[name]
        if pair:
            device.pairs.select(pair)
    except OpgraftError as error:
        return Trial(name, pair, "absent", _words(error), error.remedy)
    try:
        wrong = _run(device)
    except OpgraftError as error:
        return Trial(name, pair, "fails", _words(error), error.remedy)
    except Exception as error:  # told, with its type: a fault of ours or of a plugin
        return Trial(name, pair, "fails", f"{type(error).__name__}: {error}")
    spent = (time.perf_counter() - begin) * 1e3
    if wrong and device.executes:
        return Trial(name, pair, "fails", wrong, milliseconds=spent)
    state: State = "works" if device.executes else "compiles"
    return Trial(name, pair, state, milliseconds=spent)


def _run(device: Device) -> str:
    """Run the tiny kernel; what is wrong with its result, or nothing."""
    executable = compile_kernel(device, tiny_kernel())
    out, given = device.buffer(4 * SIZE), device.buffer(4 * SIZE)
    given.copy_in(array.array("i", range(-50, SIZE - 50)))
    executable.run([out, given], wait=True)
    got = array.array("i", out.bytes())
    wanted = [i * 3 + 7 for i in range(-50, SIZE - 50)]
    for place, (a, b) in enumerate(zip(got, wanted)):
        if a != b:
            return f"wrong result: element {place} is {a}, not {b}"
    return ""


def _words(error: OpgraftError) -> str:
    tried = [f"{what}: {why}" for what, why in error.tried]
    return "; ".join(part.strip().replace("\n", " ") for part in (error.message, *tried))


def try_apart(names: Iterable[str]) -> list[Trial]:
    """`try_device` for each name, each in a process of its own, side by side."""
    wanted = list(names)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "opgraft.cli.trial", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in wanted
    ]
    trials: list[Trial] = []
    for name, process in zip(wanted, running):
        try:
            out, complaint = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            trials.append(Trial(name, "", "crashed", f"no answer within {SECONDS:.0f} s"))
            continue
        trials += _read(name, process.returncode, out, complaint)
    return trials


def _read(name: str, code: int, out: str, complaint: str) -> list[Trial]:
    if code == 0:
        try:
            return [Trial(**row) for row in json.loads(out.splitlines()[-1])]
        except (ValueError, IndexError, TypeError):
            pass  # something printed over the answer: shown below
    last = complaint.strip().splitlines()[-1:] or ["without a word"]
    how = f"exit code {code}"
    if code < 0:
        try:
            how = signal.Signals(-code).name
        except ValueError:
            how = f"signal {-code}"
    return [Trial(name, "", "crashed", f"its process ended with {how}: {last[0]}")]


def main(arguments: Sequence[str]) -> int:
    """Try one device and print the trials as one line of JSON."""
    rows = [asdict(trial) for trial in try_device(arguments[0])]
    sys.stdout.write("\n" + json.dumps(rows) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
