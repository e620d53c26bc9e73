"""Vectors of GNU C in memory: consecutive elements, gathers, gates, registers.

Consecutive elements go through a type that is aligned as one element, so no address needs to be a
multiple of the vector's size. A gate per lane, a vector of indices, or a lane count that is no
power of two go lane by lane; where a gate is false its memory is not touched.
"""

from __future__ import annotations

from opgraft.dtype import dtypes
from opgraft.ir.linear import STREAM
from opgraft.ir.ops import Ops, Space
from opgraft.ir.uop import UOp
from opgraft.render.gnu_types import GnuTypes, padded
from opgraft.render.intrinsics import STREAM_FENCE, STREAMED, streaming_store
from opgraft.render.writer import Writer, is_name


class GnuMemory(GnuTypes):
    """Loads and stores of vectors."""

    # ---- registers and locals

    def declare_register(self, w: Writer, u: UOp, name: str) -> str:
        kind, parts = self.value_type(w, u), self.value_parts(w, u)
        if parts == 1:
            return super().declare_register(w, u, name)
        names = [f"{name}_{k}" for k in range(u.arg[1])] if u.arg[1] > 1 else [name]
        w.line(f"{kind} {','.join(f'{n}_{p}' for n in names for p in range(parts))};")
        return name

    def register_name(self, w: Writer, u: UOp, name: str) -> str:
        return f"{name}_@" if self.value_parts(w, u) > 1 else name

    def store_register(self, w: Writer, u: UOp, name: str, value: UOp) -> None:
        if value.dtype.is_bool and value.dtype.count > 1:
            text = self.mask(w, value, self.mask_bits(w, u))
        else:
            text = w.ref(value)
        for p in range(self.value_parts(w, u)):
            w.line(f"{name.replace('@', str(p))}={text.replace('@', str(p))};")

    def declare_local(self, w: Writer, u: UOp, name: str, size: int) -> None:
        space = self.spaces[u.arg[2]]
        aligned = " __attribute__((aligned(64)))" if u.arg[2] is Space.PRIVATE else ""
        length = size * self._parts_in_memory(u)
        w.line(f"{space}{self.memory_type(w, u.dtype)} {name}[{length}]{aligned};")
        w.bind(u, name)

    def _parts_in_memory(self, buffer: UOp) -> int:
        """How many variables an element takes: more than one only of buffers of vectors."""
        return 1 if buffer.dtype.count == 1 else self.parts(buffer.dtype.bits, buffer.dtype.count)

    def element(self, w: Writer, buffer: UOp, index: UOp) -> str:
        parts = self._parts_in_memory(buffer)
        if parts == 1:
            start, offset = self._start(w, buffer, index)
            return f"({start})[{offset}]" if offset else super().element(w, buffer, index)
        return f"{w.ref(buffer)}[{w.ref(index)}*{parts}+@]"

    def _start(self, w: Writer, buffer: UOp, index: UOp) -> tuple[str, int]:
        """An address in elements, and what is to be added to it. A pointer plus a constant is one
        operand of an instruction; an int that may wrap, plus a constant, takes two of their own."""
        if index.op is Ops.ADD and index.dtype.count == 1 and index.src[1].op is Ops.CONST:
            whole, rest = w.ref(index), w.ref(index.src[0])
            if is_name(rest) or not is_name(whole):
                return f"{w.ref(buffer)}+{rest}", int(index.src[1].arg)
        return f"{w.ref(buffer)}+{w.ref(index)}", 0

    def _address(self, w: Writer, buffer: UOp, index: UOp) -> str:
        start, offset = self._start(w, buffer, index)
        return f"{start}{offset:+d}" if offset else start

    def prefetch(self, w: Writer, u: UOp) -> str:
        return f"__builtin_prefetch({self._address(w, *u.src[:2])});"

    def write(self, w: Writer, buffer: UOp, text: str) -> None:
        for p in range(self._parts_in_memory(buffer)):
            w.line(text.replace("@", str(p)))

    # ---- loads

    def vector_load(self, w: Writer, u: UOp) -> str:
        buffer, index = u.src[0], u.src[1]
        count, scalar = u.dtype.count, u.dtype.scalar
        by_lane = index.dtype.count > 1 or (len(u.src) == 4 and u.src[2].dtype.count > 1)
        if by_lane or count != padded(count):
            return self._lanes_load(w, u)
        lanes = self.part_lanes(8 if scalar.is_bool else scalar.bits, count)
        address = self._address(w, buffer, index)
        if lanes < count:
            address += f"+@*{lanes}"
        text = f"*(const {self.unaligned_type(w, scalar, lanes)}*)({address})"
        if scalar.is_bool:
            # a vector of bytes 0 and 1 as a mask
            zero = f"({self.part_type(w, dtypes.uint8, lanes)}){{}}"
            text = f"(({self.mask_type(w, 8, count)})({text}!={zero}))"
        if len(u.src) == 2:
            return text
        if not scalar.is_bool:
            text = f"({self.vector_type(w, u.dtype)}){text}"  # both sides of one type
        return f"({w.atom(u.src[2])}?{text}:{self._alternative(w, u)})"

    def _alternative(self, w: Writer, u: UOp) -> str:
        return self.mask(w, u.src[3], 8) if u.dtype.is_bool else w.ref(u.src[3])

    def _lanes_load(self, w: Writer, u: UOp) -> str:
        """Lane by lane: a gather, a gate per lane, or an odd number of lanes."""
        count = u.dtype.count
        bits = 8 if u.dtype.is_bool else u.dtype.bits
        kind = self.mask_type(w, 8, count) if u.dtype.is_bool else self.vector_type(w, u.dtype)
        parts = self.parts(bits, count)
        start = self._alternative(w, u) if len(u.src) == 4 else f"({kind}){{}}"
        name = self.declare_parts(w, kind, start, parts)
        value = (name, self.part_lanes(bits, count))
        for head, lane, place in self._lane_loops(w, u.src, value, count):
            text = f"-({place}!=0)" if u.dtype.is_bool else place
            w.line(f"{head}{lane}={text};")
        if padded(count) != count:
            # lanes beyond the end repeat one within
            for k in range(count, padded(count)):
                w.line(f"{_lane(value, k)}={_lane(value, 0)};")
        return name

    # ---- stores

    def vector_store(self, w: Writer, u: UOp) -> None:
        buffer, index, value = u.src[:3]
        count, scalar = value.dtype.count, value.dtype.scalar
        bits = 8 if scalar.is_bool else scalar.bits
        lanes = self.part_lanes(bits, count)
        kind, text = self._as_stored(w, value, lanes)
        gate = u.src[3] if len(u.src) == 4 else None
        by_lane = index.dtype.count > 1 or (gate is not None and gate.dtype.count > 1)
        parts = padded(count) // lanes
        if by_lane or count != padded(count):
            if not text.replace("@", "").isidentifier():
                text = self.declare_parts(w, kind, text, parts)
            sources = (buffer, index) if gate is None else (buffer, index, gate)
            for head, lane, place in self._lane_loops(w, sources, (text, lanes), count):
                w.line(f"{head}{place}={lane};")
            return
        address = self._address(w, buffer, index) + (f"+@*{lanes}" if parts > 1 else "")
        line = f"*({self.unaligned_type(w, scalar, lanes)}*)({address})={text};"
        if u.tag == STREAM and gate is None and buffer.op is Ops.PARAM:
            line = self._past_caches(w, buffer, address, text, lanes * (bits // 8)) or line
        if gate is not None:
            line = f"if({w.ref(gate)}){line}"
        for p in range(parts):
            w.line(line.replace("@", str(p)))

    def _past_caches(self, w: Writer, buffer: UOp, address: str, text: str, size: int) -> str:
        """A store of a part around the caches, where the buffer begins at a multiple of it; empty
        if there is no such store of so many bytes."""
        if size not in STREAMED:
            return ""
        kind = self.part_type(w, dtypes.float32, size // 4)
        name = w.helper(f"stream_{kind}", streaming_store(f"stream_{kind}", kind, size))
        key = (buffer, size)
        aligned = w.bound.get(key)
        if aligned is None:
            base = w.ref(buffer)
            aligned = w.bind(key, f"(((__UINTPTR_TYPE__){base}&{size - 1})==0)")
        return f"{name}({aligned},{address},({kind}){text});"

    def end(self, w: Writer) -> list[str]:
        if not any(name.startswith("stream_") for name in w.helpers):
            return super().end(w)
        # such stores are seen by others only in whatever order, until this
        w.helper("fence", STREAM_FENCE)
        return [" fence();"]

    def _as_stored(self, w: Writer, value: UOp, lanes: int) -> tuple[str, str]:
        if not value.dtype.is_bool:
            return self.vector_type(w, value.dtype), w.ref(value)
        kind = self.part_type(w, dtypes.uint8, lanes)
        return kind, f"(({kind})({self.mask(w, value, 8)}&1))"

    # ---- lane by lane

    def _lane_loops(
        self, w: Writer, sources: tuple[UOp, ...], value: tuple[str, int], count: int
    ) -> list[tuple[str, str, str]]:
        """Loops over all lanes, each within one part of everything that takes part.

        Each with its head (the gate's test included), the lane of the value, and its memory.
        """
        buffer, index = sources[0], sources[1]
        gate = sources[2] if len(sources) > 2 else None
        base, where = w.atom(buffer), (w.atom(index), self._own_lanes(w, index))
        test = None if gate is None else (w.atom(gate), self._own_lanes(w, gate))
        step = min(value[1], where[1] or count, (test[1] if test else 0) or count)
        loops = []
        for first in range(0, count, step):
            size = min(step, count - first)
            head = f"for(int l=0;l<{size};l++)"
            if test is not None:
                head += f"if({_lane(test, first, 'l') if test[1] else test[0]})"
            if where[1]:
                place = f"{base}[{_lane(where, first, 'l')}]"
            else:
                place = f"{base}[{where[0]}+{first}+l]"
            loops.append((head, _lane(value, first, "l"), place))
        return loops

    def _own_lanes(self, w: Writer, u: UOp) -> int:
        """The lanes of one part of a vector; 0 of a scalar."""
        if u.dtype.count == 1:
            return 0
        bits = self.mask_bits(w, u) if u.dtype.is_bool else u.dtype.bits
        return self.part_lanes(bits, u.dtype.count)


def _lane(value: tuple[str, int], first: int, moving: str = "") -> str:
    """A lane of a vector in parts of so many lanes."""
    text, lanes = value
    part, place = divmod(first, lanes)
    name = text.replace("@", str(part))
    if not moving:
        return f"{name}[{place}]"
    return f"{name}[{place}+{moving}]" if place else f"{name}[{moving}]"


def lane_of(text: str, lanes: int, lane: int) -> str:
    """One lane of a vector whose parts have `lanes` lanes."""
    return _lane((text, lanes), lane)
