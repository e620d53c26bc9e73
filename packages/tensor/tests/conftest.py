"""What tests of tensors share."""

from __future__ import annotations

from typing import Any

import pytest

from opgraft.devices.interp.device import InterpDevice


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of every kernel that the interpreter loads."""
    found: list[str] = []
    load = InterpDevice.load

    def recorded(self: InterpDevice, program: Any) -> Any:
        found.append(program.source)
        return load(self, program)

    monkeypatch.setattr(InterpDevice, "load", recorded)
    return found
