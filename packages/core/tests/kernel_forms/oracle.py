"""A kernel graph carried out naively: every loop a Python loop, every op by its definition."""

from __future__ import annotations

from typing import Any

from opgraft.ir import Ops, UOp
from opgraft.ir.evaluate import alu
from opgraft.ir.ops import GroupOp
from opgraft.ir.reduction import identity

Memory = dict[int, list[Any]]


class Oracle:
    """Runs a kernel in the form in which tensor hands it to core, before any lowering."""

    def __init__(self, sink: UOp, memory: Memory, variables: dict[str, int] | None = None) -> None:
        self.sink = sink
        self.old = {slot: list(values) for slot, values in memory.items()}
        self.new = memory
        self.variables = variables or {}
        self.local: dict[str, dict[int, Any]] = {}
        self.filled: dict[UOp, tuple[int | None, ...]] = {}
        self.totals: dict[UOp, tuple[tuple[int | None, ...], Any]] = {}
        # a LOCAL begins anew in each iteration of whatever loops something that fills it is free in
        self.lives: dict[UOp, tuple[UOp, ...]] = {}
        for n in sink.toposort():
            if n.op is Ops.AFTER and self.target(n).op is Ops.LOCAL:
                known = self.lives.get(self.target(n), ())
                self.lives[self.target(n)] = tuple(dict.fromkeys((*known, *n.ranges)))

    def run(self) -> Memory:
        """The memory after the kernel, changed in place."""
        for effect in self.sink.src:
            self.effect(effect, {})
        return self.new

    def loops(self, ranges: tuple[UOp, ...], env: dict[UOp, int]) -> Any:
        # the extent of a loop may depend on another one of them
        first = next((r for r in ranges if not any(s in ranges for s in r.src[0].ranges)), None)
        if first is None:
            yield env
            return
        rest = tuple(r for r in ranges if r is not first)
        for at in range(int(self.value(first.src[0], env))):
            yield from self.loops(rest, {**env, first: at})

    def effect(self, n: UOp, env: dict[UOp, int]) -> None:
        if n.op is Ops.END:
            for inner in self.loops(n.src[1:], env):
                self.effect(n.src[0], inner)
            return
        if n.op is Ops.PREFETCH:
            self.value(n.src[1], env)  # what names the place is loaded; the place itself is not
            return
        assert n.op is Ops.STORE
        buffer, index, value, *gate = n.src
        if gate and not self.value(gate[0], env):
            return
        place = int(self.value(index, env))
        assert 0 <= place < self.target(buffer).arg[1], f"store at {place}"
        what = self.value(value, env)
        home = self.target(buffer)
        if home.op is Ops.LOCAL:
            self.local.setdefault(home.arg[0], {})[place] = what
        else:
            self.new[home.arg[0]][place] = what

    @staticmethod
    def target(buffer: UOp) -> UOp:
        while buffer.op is Ops.AFTER:
            buffer = buffer.src[0]
        return buffer

    def value(self, n: UOp, env: dict[UOp, int]) -> Any:
        if n.op is Ops.CONST:
            return n.arg
        if n.op is Ops.RANGE:
            return env[n]
        if n.op is Ops.VAR:
            return self.variables[n.arg[0]]
        if n.op in GroupOp.ALU:
            if n.op is Ops.WHERE:  # lazily: the other side may read out of range
                return self.value(n.src[1 if self.value(n.src[0], env) else 2], env)
            values = tuple(self.value(s, env) for s in n.src)
            return alu(n.op, n.dtype, tuple(s.dtype for s in n.src), values)
        if n.op is Ops.REDUCE:
            # carried out once for each iteration of the loops it is free in, as a fill is: what it
            # reads may be overwritten by what it is used for
            iteration = tuple(env.get(r) for r in n.ranges)
            known = self.totals.get(n)
            if known is not None and known[0] == iteration:
                return known[1]
            total = identity(n.arg, n.dtype).arg
            for inner in self.loops(n.src[1:], env):
                item = self.value(n.src[0], inner)
                total = alu(n.arg, n.dtype, (n.dtype, n.dtype), (total, item))
            self.totals[n] = iteration, total
            return total
        if n.op is Ops.SCAN:
            total = identity(n.arg, n.dtype).arg
            here = tuple(env[r] for r in n.src[1:])
            for inner in self.loops(n.src[1:], env):
                if tuple(inner[r] for r in n.src[1:]) > here:
                    break
                item = self.value(n.src[0], inner)
                total = alu(n.arg, n.dtype, (n.dtype, n.dtype), (total, item))
            return total
        assert n.op is Ops.LOAD, n.op
        buffer, index, *gated = n.src
        if gated and not self.value(gated[0], env):
            return self.value(gated[1], env)
        place = int(self.value(index, env))
        home = self.target(buffer)
        assert 0 <= place < home.arg[1], f"load at {place}"
        if buffer.op is Ops.AFTER:
            # carried out once for each iteration of the loops it is free in
            iteration = tuple(env.get(r) for r in self.lives.get(home, buffer.ranges))
            if self.filled.get(buffer) != iteration:
                for effect in buffer.src[1:]:
                    self.effect(effect, env)
                self.filled[buffer] = iteration
        if home.op is Ops.LOCAL:
            return self.local[home.arg[0]][place]
        source = self.new if buffer.op is Ops.AFTER else self.old
        return source[home.arg[0]][place]
