"""`opgraft calibrate`: measure what things cost on a device, for optimizers and planners.

Core measures operations and arrays; a plugin may bring further steps (`opgraft_calibrations`). What
is shown is what everybody will reckon with from the next process on.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Final

from opgraft import calibration
from opgraft.catalog import Device as devices
from opgraft.cli import calibrate_arrays, calibrate_operations
from opgraft.cli.screen import Screen, screen
from opgraft.errors import OpgraftError, PluginError
from opgraft.plugins.calibration import Calibration
from opgraft.plugins.command import Command, UsageError
from opgraft.plugins.registry import REGISTRY
from opgraft.runtime import Device

ELEMENTS: Final = 8192
RUNS: Final = 40

OWN: Final = (
    Calibration(
        "operations",
        "operations, in additions of indices; those on floats in multiplications of floats",
        calibrate_operations.NAMES,
        lambda device: calibrate_operations.measure_operations(device, ELEMENTS, RUNS),
    ),
    Calibration(
        "arrays",
        "arrays, in additions of floats",
        calibrate_arrays.NAMES,
        lambda device: calibrate_arrays.measure_arrays(device, ELEMENTS, RUNS),
    ),
)


def configure(parser: ArgumentParser) -> None:
    """Arguments of `opgraft calibrate`."""
    parser.add_argument("device", nargs="?", default="CPU", help="CPU unless another is named")
    parser.add_argument(
        "--only", metavar="STEP", action="append", help="this step alone; may be repeated"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--show", action="store_true", help="show what is kept, measure nothing")
    chosen.add_argument("--forget", action="store_true", help="go back to the usual prices")


def run(arguments: Namespace) -> int:
    """Measure, keep and show."""
    out = screen()
    device = devices[arguments.device]
    steps = _chosen(_steps(), arguments.only)
    if arguments.forget:
        return _forget(out, device, () if arguments.only is None else steps)
    if not arguments.show:
        if not device.executes:
            raise OpgraftError(f"{device.kind} runs no kernels, so nothing can be measured on it")
        for step in steps:
            measured = _measured(step, device)
            kept = dict(calibration.measured_prices(device.kind))
            kept = {name: price for name, price in kept.items() if name not in step.prices}
            path = calibration.record(device.kind, {**kept, **measured})
            out.line(f"{step.name}: kept in {path}")
    _show(out, device, steps, everything=arguments.only is None)
    return 0


def _steps() -> tuple[Calibration, ...]:
    """All that there are. No price may be measured by two of them."""
    found = dict.fromkeys(OWN, "opgraft-core")
    found |= {claim.item: claim.plugin.owner for claim in REGISTRY.calibrations()}
    owners: dict[str, str] = {}
    for step, owner in found.items():
        for name in (step.name, *step.prices):
            if name in owners:
                raise PluginError(
                    f"{owners[name]} and {owner} both have {name} to be measured",
                    remedy="Block one of the two: the setting PLUGINS.",
                )
            owners[name] = owner
    return tuple(found)


def _chosen(steps: Sequence[Calibration], only: Sequence[str] | None) -> Sequence[Calibration]:
    if only is None:
        return steps
    known = {step.name: step for step in steps}
    for name in only:
        if name not in known:
            raise UsageError(f"no step is named {name!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(only)]


def _measured(step: Calibration, device: Device) -> Mapping[str, float]:
    try:
        prices = step.measure(device)
    except OpgraftError:
        raise
    except Exception as error:
        raise PluginError(f"calibration {step.name} failed: {error}") from error
    unknown = sorted(set(prices) - set(step.prices))
    if unknown:
        raise PluginError(f"calibration {step.name} measured {', '.join(unknown)}, not its own")
    return prices


def _forget(out: Screen, device: Device, steps: Sequence[Calibration]) -> int:
    """Nothing is kept any more, or nothing of these steps."""
    lost = {name for step in steps for name in step.prices}
    kept = dict(calibration.measured_prices(device.kind)) if steps else {}
    kept = {name: price for name, price in kept.items() if name not in lost}
    path = calibration.record(device.kind, kept or None)
    what = ", ".join(step.name for step in steps) or "everything"
    out.line(f"{device.kind} has the usual prices for {what}: {path}")
    return 0


def _show(out: Screen, device: Device, steps: Sequence[Calibration], everything: bool) -> None:
    """What is kept, step by step; with `everything` what no step that is here measures, too."""
    prices = dict(calibration.measured_prices(device.kind))
    for step in steps:
        rows = [(name, f"{prices.pop(name):.3g}") for name in sorted(step.prices) if name in prices]
        if rows:
            out.heading(f"{step.name}: {step.help}")
            out.table(("of", "price"), rows)
        else:
            out.line(f"{step.name}: not measured on {device.kind}, so the usual prices hold")
    if everything and prices:
        out.heading("measured by a package that is not here")
        out.table(("of", "price"), [(n, f"{price:.3g}") for n, price in prices.items()])


COMMAND: Final = Command(
    "calibrate",
    run,
    "measure what operations, arrays and launches cost on a device",
    configure,
    """Measure what operations, arrays, memory and launches cost on a device, and keep it for
optimizers and planners (docs/optimizers.md). Packages add steps of their own: `opgraft plugins`
lists them. It takes seconds; the machine should be quiet meanwhile.

  opgraft calibrate                   measure on the CPU, keep and show
  opgraft calibrate --only arrays     one step of it
  opgraft calibrate --show            what is kept
  opgraft calibrate --forget          back to the usual prices

exit codes: 0 done; 1 the device can't be measured, or the file can't be written; 2 wrong usage.""",
)
