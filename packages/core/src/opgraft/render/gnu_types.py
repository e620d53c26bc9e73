"""Vectors of GNU C as types: parts, masks, conversions.

A vector wider than a register of the target is held in several parts of one register each: gcc
breaks up wider vectors badly (selects become branches). A text stands for all parts of a value;
where parts differ it holds the number of the part as `@`, which is filled in when the text is
written as a statement. So `(v3_@+v4_@)` is the sum of two vectors of any number of parts.

A vector of bool is a mask: all bits of a lane set, or none. The width of its lanes follows what
was compared, so that a select needs no conversion; memory holds bytes 0 and 1.
"""

from __future__ import annotations

from opgraft.dtype import DType, dtypes
from opgraft.ir.expansions import SIGNED
from opgraft.ir.ops import GroupOp, Ops
from opgraft.ir.uop import UOp
from opgraft.render.cstyle import CStyleRenderer
from opgraft.render.intrinsics import doubled, widened
from opgraft.render.writer import Writer, vector_name

DEFAULT_MASK = 32
_DOUBLED = {"f32x4": "cvtps2pd256", "i32x4": "cvtdq2pd256"}
"""Vectors that x86 turns into float64 in one step: its instructions."""


def padded(count: int) -> int:
    """The lanes of the vector type that holds `count` lanes: the next power of two."""
    return 1 << (count - 1).bit_length()


def held_as(scalar: DType) -> DType:
    """The dtype whose C type holds a lane: 16-bit floats are bits."""
    return dtypes.uint16 if scalar.is_float and scalar.bits == 16 else scalar


class GnuTypes(CStyleRenderer):
    """Vector types, and values that change their lane width."""

    # ---- parts

    def part_lanes(self, bits: int, count: int) -> int:
        """The lanes of one part of a vector of `count` lanes of this width."""
        register = max(1, (self.target.vector_bytes or 16) * 8 // bits)
        return min(padded(count), register)

    def parts(self, bits: int, count: int) -> int:
        """How many variables hold such a vector."""
        return padded(count) // self.part_lanes(bits, count)

    def declare_parts(self, w: Writer, kind: str, text: str, parts: int, prefix: str = "v") -> str:
        """Variables for all parts of a text; the text that stands for them."""
        if parts == 1:
            return w.declare(kind, text, prefix)
        name = w.name(prefix)
        for p in range(parts):
            w.line(f"{kind} {name}_{p}={text.replace('@', str(p))};")
        return f"{name}_@"

    def declare_value(self, w: Writer, u: UOp, text: str) -> str:
        if u.dtype.count == 1:
            return w.declare(self.scalar_type(u.dtype), text)
        return self.declare_parts(w, self.value_type(w, u), text, self.value_parts(w, u))

    def value_parts(self, w: Writer, u: UOp) -> int:
        """How many variables hold the value of `u`."""
        if u.dtype.count == 1:
            return 1
        bits = self.mask_bits(w, u) if u.dtype.is_bool else u.dtype.bits
        return self.parts(bits, u.dtype.count)

    # ---- types

    def vector_type(self, w: Writer, dtype: DType) -> str:
        """The type of one part."""
        return self.part_type(w, dtype.scalar, self.part_lanes(dtype.bits, dtype.count))

    def part_type(self, w: Writer, scalar: DType, lanes: int) -> str:
        """A vector type of just these lanes."""
        known = w.types.get((scalar, lanes))
        if known is not None:  # every value asks
            return known
        held = held_as(scalar)
        name = vector_name(held.vec(lanes) if lanes > 1 else held)
        text = f"typedef {self.scalar_type(held)} {name} "
        w.typedef(name, f"{text}__attribute__((vector_size({lanes * held.itemsize})));")
        w.types[scalar, lanes] = name
        return name

    def unaligned_type(self, w: Writer, scalar: DType, lanes: int) -> str:
        """The same in memory: aligned as one element, and may alias anything."""
        scalar = held_as(dtypes.uint8 if scalar.is_bool else scalar)
        name = vector_name(scalar.vec(lanes) if lanes > 1 else scalar) + "u"
        size = lanes * scalar.itemsize
        return w.typedef(
            name,
            f"typedef {self.scalar_type(scalar)} {name} __attribute__"
            f"((vector_size({size}),aligned({scalar.itemsize}),may_alias));",
        )

    def mask_type(self, w: Writer, bits: int, count: int) -> str:
        """The type of one part of a mask."""
        return self.part_type(w, SIGNED[bits], self.part_lanes(bits, count))

    def value_type(self, w: Writer, u: UOp) -> str:
        if u.dtype.count == 1:
            return self.scalar_type(u.dtype)
        if u.dtype.is_bool:
            return self.mask_type(w, self.mask_bits(w, u), u.dtype.count)
        return self.vector_type(w, u.dtype)

    # ---- conversions

    def convert(self, w: Writer, text: str, source: DType, target: DType, count: int) -> str:
        """A vector of `source` scalars as one of `target` scalars, by the plain conversion.

        Narrowing integers go in halves, small integers and floats meet at int32: for these
        steps compilers have instructions, for longer ones some go lane by lane.
        """
        for step in _steps(source, target):
            if source is not step:
                text = self._convert_step(w, text, source, step, count)
                source = step
        return text

    def _convert_step(self, w: Writer, text: str, source: DType, target: DType, count: int) -> str:
        before, after = self.part_lanes(source.bits, count), self.part_lanes(target.bits, count)
        common = min(before, after)
        kind = self.part_type(w, target, common)
        if source.bits == target.bits and source.is_int and target.is_int:
            return f"(({kind}){text})"
        form = self._conversion(w, source, target, common)
        if before == after:
            return form.format(text)
        names = self.split(w, text, source, count, common)
        pieces = [w.declare(kind, form.format(name)) for name in names]
        return self.join(w, pieces, target, common, count)

    def _conversion(self, w: Writer, source: DType, target: DType, lanes: int) -> str:
        """The call that converts a vector of one register or less, with `{}` for its operand."""
        before, after = self.part_type(w, source, lanes), self.part_type(w, target, lanes)
        name = f"{after}_from_{before}"
        if lanes > 1 and source.is_int and target.is_int and source.bits < target.bits:
            signed = source.kind == "int"
            w.helper(
                name, widened(name, (before, signed, source.bits), (after, target.bits), lanes)
            )
        elif after == "f64x4" and before in _DOUBLED:
            w.helper(name, doubled(name, before, _DOUBLED[before]))
        else:
            return f"__builtin_convertvector({{}},{after})"
        return f"{name}({{}})"

    def split(self, w: Writer, text: str, scalar: DType, count: int, lanes: int) -> list[str]:
        """The vector in pieces of `lanes` lanes, as names in order."""
        before = self.part_lanes(scalar.bits, count)
        kind = self.part_type(w, scalar, before)
        parts = padded(count) // before
        if not text.replace("@", "").isidentifier():
            text = self.declare_parts(w, kind, text, parts)
        names = [text.replace("@", str(p)) for p in range(parts)]
        if before == lanes:
            return names
        pieces = []
        piece = self.part_type(w, scalar, lanes)
        for name in names:
            for first in range(0, before, lanes):
                order = ",".join(str(first + i) for i in range(lanes))
                pieces.append(w.declare(piece, f"__builtin_shufflevector({name},{name},{order})"))
        return pieces

    def join(self, w: Writer, pieces: list[str], scalar: DType, lanes: int, count: int) -> str:
        """Pieces of `lanes` lanes as a vector in its parts."""
        whole = self.part_lanes(scalar.bits, count)
        while lanes < whole:
            kind = self.part_type(w, scalar, 2 * lanes)
            order = ",".join(str(i) for i in range(2 * lanes))
            pieces = [
                w.declare(kind, f"__builtin_shufflevector({a},{b},{order})")
                for a, b in zip(pieces[::2], pieces[1::2], strict=True)
            ]
            lanes *= 2
        if len(pieces) == 1:
            return pieces[0]
        name, kind = w.name("v"), self.part_type(w, scalar, lanes)
        for p, piece in enumerate(pieces):
            w.line(f"{kind} {name}_{p}={piece};")
        return f"{name}_@"

    # ---- masks

    def plan(self, w: Writer, instructions: tuple[UOp, ...]) -> None:
        """Fixes the lane width of every vector of bool, registers included."""
        for _ in range(2):  # a register's width is known once its stores have been seen
            for u in instructions:
                if u.op is not Ops.LOCAL:
                    self.prepare(w, u)
                if u.op is Ops.STORE and u.src[0].op is Ops.LOCAL:
                    buffer, value = u.src[0], u.src[2]
                    if buffer.dtype.is_bool and buffer.dtype.count > 1:
                        bits = w.masks.get(value, 0)
                        w.masks[buffer] = max(w.masks.get(buffer, 0), bits)

    def prepare(self, w: Writer, u: UOp) -> None:
        if u.dtype.is_bool and u.dtype.count > 1:
            w.masks[u] = self._natural_bits(w, u)

    def _natural_bits(self, w: Writer, u: UOp) -> int:
        """The width that costs least; 0 where any will do."""
        op = u.op
        if op is Ops.CAST or (op in GroupOp.COMPARISON and not u.src[0].dtype.is_bool):
            return u.src[0].dtype.bits
        if op is Ops.LOAD:
            buffer = u.src[0]
            return w.masks.get(buffer, 0) if buffer.dtype.count > 1 else 8
        if op is Ops.BROADCAST or op is Ops.STACK:
            return 0
        return max((w.masks.get(s, 0) for s in u.src if s.dtype.count > 1), default=0)

    def mask_bits(self, w: Writer, u: UOp) -> int:
        """The lane width of a vector of bool."""
        return w.masks.get(u, 0) or DEFAULT_MASK

    def mask(self, w: Writer, u: UOp, bits: int) -> str:
        """A vector of bool as a mask with lanes of this width."""
        count = u.dtype.count
        kind = self.mask_type(w, bits, count)
        if u.is_const:
            return f"({-1 if u.const_value else 0}-({kind}){{}})"
        if u.op is Ops.BROADCAST:
            return f"(({self.scalar_type(SIGNED[bits])})-{w.atom(u.src[0])}-({kind}){{}})"
        own = self.mask_bits(w, u)
        if own == bits:
            return w.ref(u)
        found = w.bound.get((u, bits))
        if found is None:
            found = self.convert(w, w.atom(u), SIGNED[own], SIGNED[bits], count)
            if not found.replace("@", "").isidentifier():
                found = self.declare_parts(w, kind, found, self.parts(bits, count))
            w.bind((u, bits), found)
        return found

    def atom_mask(self, w: Writer, u: UOp, bits: int) -> str:
        """As `mask`, but a name."""
        text = self.mask(w, u, bits)
        if text.replace("@", "").isidentifier():
            return text
        kind, parts = self.mask_type(w, bits, u.dtype.count), self.parts(bits, u.dtype.count)
        return w.bind((u, bits), self.declare_parts(w, kind, text, parts))


def _steps(source: DType, target: DType) -> list[DType]:
    """What to pass through from one scalar to another, the target last."""
    steps: list[DType] = []
    if source.is_int and target.is_float and source.bits < 32:
        steps.append(dtypes.int32)
    elif source.is_float and target.is_int and target.bits < 32:
        steps.append(dtypes.int32)
        source = dtypes.int32
    if source.is_int and target.is_int:
        width = source.bits // 2
        while width > target.bits:
            steps.append(SIGNED[width])
            width //= 2
    return [*steps, target]
