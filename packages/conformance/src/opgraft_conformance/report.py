"""The report as JSON. Its form is versioned: see docs/conformance.md.

A reader that knows form 1 can read every report whose `form` is 1: members are added, never
removed, renamed or given another meaning.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from opgraft_conformance.ledger import Ledger
from opgraft_conformance.opening import Facts
from opgraft_conformance.rows import Level

FORM: Final = 1


def as_json(
    ledger: Ledger, facts: Facts, *, seed: int, effort: str, status: int, seconds: float
) -> dict[str, Any]:
    """The whole report."""
    rows = ledger.judged()
    return {
        "form": FORM,
        "device": facts.device,
        "provider": facts.provider,
        "pair": facts.pair,
        "pairs": facts.pairs,
        "executes": facts.executes,
        "fork_safe": facts.fork_safe,
        "target": facts.target,
        "versions": facts.versions,
        "seed": seed,
        "effort": effort,
        "level": ledger.decides.word,
        "status": status,
        "seconds": round(seconds, 3),
        "totals": {
            level.word: ledger.counts(row for row in rows if row.level is level) for level in Level
        },
        "stale": [{"row": row, "where": where} for row, where in ledger.unknown.items()],
        "rows": [
            {
                "row": row.id,
                "area": row.area,
                "level": row.level.word,
                "result": row.result,
                "seconds": round(row.seconds, 6),
                "reason": row.reason,
                "message": row.message,
            }
            for row in rows
        ],
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write the report whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)
