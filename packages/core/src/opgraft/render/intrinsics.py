"""Helpers for what GNU C has no operator for: roots, float16, streaming stores, wider integers.

Each is a macro or an inline function, written into the source before the kernel. Which form a
compiler gets is decided by its own macros, so one source serves gcc, clang and zig at any
instruction set.
"""

from __future__ import annotations

from typing import Final

INLINE: Final = "static inline __attribute__((always_inline))"
HOLD: Final = """#if defined(__x86_64__)&&!defined(__clang__)
#define hold(v) __asm__("":"+v"(v))
#else
#define hold(v) (void)0
#endif"""
"""A vector is what something that gcc can't see has made of it: so gcc does not read it again."""

# clang's older builtins by bytes of the vector
_SQUARE_ROOT: Final = {
    ("f32", 16): "__builtin_ia32_sqrtps(a)",
    ("f32", 32): "__builtin_ia32_sqrtps256(a)",
    ("f32", 64): "__builtin_ia32_sqrtps512(a,4)",
    ("f64", 16): "__builtin_ia32_sqrtpd(a)",
    ("f64", 32): "__builtin_ia32_sqrtpd256(a)",
    ("f64", 64): "__builtin_ia32_sqrtpd512(a,4)",
}


def lanewise(name: str, kind: str, element: str, lanes: int, operation: str, call: str) -> str:
    """`name(a)` for a vector type: gcc joins the lanes to one instruction, clang has a builtin."""
    signature = f"{INLINE} {kind} {name}({kind} a)"
    each = ",".join(f"{call}(a[{lane}])" for lane in range(lanes))
    loop = f"{signature}{{return ({kind}){{{each}}};}}"
    modern = f"__builtin_elementwise_{operation}"
    lines = ["#ifndef __clang__", loop, f"#elif __has_builtin({modern})"]
    lines.append(f"#define {name}(a) {modern}((a))")
    older = _SQUARE_ROOT.get((element, lanes * int(element[1:]) // 8))
    if operation == "sqrt" and older is not None:
        lines.append(f"#elif __has_builtin({older.partition('(')[0]})")
        lines.append(f"{signature}{{return ({kind}){older};}}")
    return "\n".join([*lines, "#else", loop, "#endif"])


def any_set(name: str, kind: str, floats: str, size: int) -> str:
    """`name(m)`: whether a mask of 16 or 32 bytes, as int64, has a lane set."""
    macro, ending = STREAMED[size]
    each = "|".join(f"m[{k}]" for k in range(size // 8))
    return "\n".join(
        [
            f"#ifdef {macro}",
            f"#define {name}(m) (__builtin_ia32_movmskps{ending}(({floats})(m))!=0)",
            "#else",
            f"{INLINE} int {name}({kind} m){{return ({each})!=0;}}",
            "#endif",
        ]
    )


def float16_to_float32(name: str, lanes: int, otherwise: str) -> str:
    """`name(h)`: a uint16 vector (or scalar) of float16 bits as float32."""
    if lanes == 1:
        body = "__builtin_ia32_vcvtph2ps((og_h8){(short)h})[0]"
        signature = f"{INLINE} float {name}(unsigned short h)"
    elif lanes == 8:
        body = "(f32x8)__builtin_ia32_vcvtph2ps256((og_h8)h)"
        signature = f"{INLINE} f32x8 {name}(u16x8 h)"
    elif lanes == 16:
        body = "(f32x16)__builtin_ia32_vcvtph2ps512_mask((og_h16)h,(f32x16){},-1,4)"
        signature = f"{INLINE} f32x16 {name}(u16x16 h)"
    elif lanes == 4:
        body = (
            "(f32x4)__builtin_ia32_vcvtph2ps((og_h8)__builtin_shufflevector(h,h,0,1,2,3,0,1,2,3))"
        )
        signature = f"{INLINE} f32x4 {name}(u16x4 h)"
    else:
        return otherwise
    if lanes == 1:
        typed = f"{signature}{{return (float)((union{{unsigned short a;_Float16 b;}}){{h}}).b;}}"
    else:
        half = f"typedef _Float16 og_half{lanes} __attribute__((vector_size({2 * lanes})));"
        call = f"__builtin_convertvector((og_half{lanes})h,f32x{lanes})"
        typed = f"{half}\n{signature}{{return {call};}}"
    return _with_f16c(lanes, f"{signature}{{return {body};}}", otherwise, typed)


def float32_to_float16(name: str, lanes: int, otherwise: str) -> str:
    """`name(x)`: float32 rounded to float16, as uint16 bits."""
    if lanes == 1:
        body = "(unsigned short)__builtin_ia32_vcvtps2ph((og_f4){x},8)[0]"
        signature = f"{INLINE} unsigned short {name}(float x)"
    elif lanes == 8:
        body = "(u16x8)__builtin_ia32_vcvtps2ph256(x,8)"
        signature = f"{INLINE} u16x8 {name}(f32x8 x)"
    elif lanes == 16:
        body = "(u16x16)__builtin_ia32_vcvtps2ph512_mask(x,8,(og_h16){},-1)"
        signature = f"{INLINE} u16x16 {name}(f32x16 x)"
    elif lanes == 4:
        body = (
            "__builtin_shufflevector((og_u8)__builtin_ia32_vcvtps2ph(x,8),"
            "(og_u8)__builtin_ia32_vcvtps2ph(x,8),0,1,2,3)"
        )
        signature = f"{INLINE} u16x4 {name}(f32x4 x)"
    else:
        return otherwise
    return _with_f16c(lanes, f"{signature}{{return {body};}}", otherwise)


def _with_f16c(lanes: int, quick: str, otherwise: str, typed: str = "") -> str:
    """`quick` where the compiler has the builtin, `typed` where it has _Float16 instead."""
    if lanes == 16:
        return "\n".join(["#ifdef __AVX512F__", quick, "#else", otherwise, "#endif"])
    if not typed:
        return "\n".join(["#ifdef __F16C__", quick, "#else", otherwise, "#endif"])
    # clang dropped the builtins once it had the type
    return "\n".join(
        [
            "#ifdef __F16C__",
            "#if !defined(__clang__) || __has_builtin(__builtin_ia32_vcvtph2ps256)",
            quick,
            "#else",
            typed,
            "#endif",
            "#else",
            otherwise,
            "#endif",
        ]
    )


F16C_TYPES: Final = {
    "og_h8": "typedef short og_h8 __attribute__((vector_size(16)));",
    "og_u8": "typedef unsigned short og_u8 __attribute__((vector_size(16)));",
    "og_h16": "typedef short og_h16 __attribute__((vector_size(32)));",
    "og_f4": "typedef float og_f4 __attribute__((vector_size(16)));",
}
"""The types that the builtins of F16C take."""


STREAMED: Final = {16: ("__SSE__", ""), 32: ("__AVX__", "256"), 64: ("__AVX512F__", "512")}
"""Bytes of the vectors that can be stored around the caches: the macro that says so, and what
gcc's builtin for it ends with."""
STREAM_FENCE: Final = """\
#ifdef __SSE__
#define fence() __builtin_ia32_sfence()
#else
#define fence()
#endif"""
"""What makes earlier streaming stores visible before later ordinary ones."""


def streaming_store(name: str, kind: str, size: int) -> str:
    """`name(aligned, address, value)`: a vector past the caches if `aligned`, else as usual."""
    macro, ending = STREAMED[size]
    usual = f"typedef {kind} {name}_t __attribute__((aligned(1),may_alias));"
    signature = f"{INLINE} void {name}(int aligned,void*p,{kind} v){{"
    plain = f"*({name}_t*)p=v;"
    stream = f"if(aligned)__builtin_ia32_movntps{ending}((float*)p,v);else "
    portable = f"if(aligned)__builtin_nontemporal_store(v,({kind}*)p);else "
    return "\n".join(
        [
            usual,
            "#if defined(__clang__)",
            f"{signature}{portable}{plain}}}",
            f"#elif defined({macro})",
            f"{signature}{stream}{plain}}}",
            "#else",
            f"{signature}{plain}}}",
            "#endif",
        ]
    )


_LETTER: Final = {8: "b", 16: "w", 32: "d", 64: "q"}
_ELEMENT: Final = {8: "char", 16: "short", 32: "int", 64: "long long"}
_REGISTER: Final = 16
"""Bytes of the smallest vector register."""


def widened(name: str, source: tuple[str, bool, int], target: tuple[str, int], lanes: int) -> str:
    """`name(x)`: integers of a vector in wider ones, `lanes` of them. `source`: its type, whether
    it is signed, bits of an element; `target`: type and bits.

    x86 has one instruction for it, which loads as well. gcc makes several of its own conversion,
    and of less than a register loads and insertions of single lanes.
    """
    kind, signed, bits = source
    result, after = target
    size, bytes_after = lanes * bits // 8, lanes * after // 8
    fill, filled = "", "x"
    if size < _REGISTER:
        order = ",".join(str(lane % lanes) for lane in range(_REGISTER // (bits // 8)))
        fill = f"__auto_type f=__builtin_shufflevector(x,x,{order});"
        filled = f"__builtin_shufflevector(f,f,{','.join(map(str, range(lanes)))})"
    signature = f"{INLINE} {result} {name}({kind} x)"
    portable = f"{signature}{{{fill}return __builtin_convertvector({filled},{result});}}"
    if bytes_after not in (16, 32) or size not in (4, 8, 16):
        return portable
    macro = "__AVX2__" if bytes_after == 32 else "__SSE4_1__"
    word = f"pmov{'s' if signed else 'z'}x{_LETTER[bits]}{_LETTER[after]}{bytes_after * 8}"
    held = f"{name}_t"
    operand = f"({held})x"
    if size < _REGISTER:
        count = _REGISTER // size
        rest = ",0" * (count - 1)
        operand = f"({held})({held}s){{({_ELEMENT[8 * size]})x{rest}}}"
    vector = f"__attribute__((vector_size({_REGISTER})))"
    return "\n".join(
        [
            f"#if defined({macro}) && !defined(__clang__)",
            f"typedef {_ELEMENT[bits]} {held} {vector};",
            *([f"typedef {_ELEMENT[8 * size]} {held}s {vector};"] if size < _REGISTER else []),
            f"{signature}{{return ({result})__builtin_ia32_{word}({operand});}}",
            "#else",
            portable,
            "#endif",
        ]
    )


def doubled(name: str, source: str, builtin: str) -> str:
    """`name(x)`: four lanes as float64 in one register."""
    signature = f"{INLINE} f64x4 {name}({source} x)"
    return "\n".join(
        [
            "#if defined(__AVX__) && !defined(__clang__)",
            f"{signature}{{return __builtin_ia32_{builtin}(x);}}",
            "#else",
            f"{signature}{{return __builtin_convertvector(x,f64x4);}}",
            "#endif",
        ]
    )


_EXTREME: Final = {
    "f32x4": ("__SSE__", "ps(a,b)"),
    "f64x2": ("__SSE2__", "pd(a,b)"),
    "f32x8": ("__AVX__", "ps256(a,b)"),
    "f64x4": ("__AVX__", "pd256(a,b)"),
}
"""The macro that says whether x86 has the instruction, and what its builtin ends with."""
_EXTREME_WIDE: Final = {"f32x16": "ps512", "f64x8": "pd512"}


def greater_or_lesser(name: str, kind: str, mask: str, greatest: bool) -> str:
    """`name(a, b)`: lane by lane a > b ? a : b, or a < b ? a : b."""
    word, sign = ("max", ">") if greatest else ("min", "<")
    signature = f"{INLINE} {kind} {name}({kind} a,{kind} b)"
    plain = f"{{{mask} m=({mask})(a{sign}b);return ({kind})((m&({mask})a)|(~m&({mask})b));}}"
    lines: list[str] = []
    if kind in _EXTREME:
        macro, ending = _EXTREME[kind]
        lines = [
            f"#ifdef {macro}",
            f"{signature}{{return __builtin_ia32_{word}{ending};}}",
            "#else",
        ]
    elif kind in _EXTREME_WIDE:
        ending = _EXTREME_WIDE[kind]
        lines = [
            "#if defined(__AVX512F__) && defined(__clang__)",
            f"{signature}{{return __builtin_ia32_{word}{ending}(a,b,4);}}",
            "#elif defined(__AVX512F__)",
            f"{signature}{{return __builtin_ia32_{word}{ending}_mask(a,b,({kind}){{}},-1,4);}}",
            "#else",
        ]
    return "\n".join([*lines, f"{signature}{plain}", *(["#endif"] if lines else [])])
