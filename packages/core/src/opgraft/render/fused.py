"""MULACC of vectors in GNU C: a * b + c with one rounding, with and without an instruction for it.

Without one, compilers call the C library lane by lane. For float32 there is a shorter way: the
product of two float32 is exact in float64, and the sum rounded to float64 and again to float32 is
right but where the first rounding may have hit the middle between two float32, or where the
result is subnormal, which has other middles. A vector with such a lane is first rounded to odd:
toward zero, with a 1 in the last bit if anything was lost, which the second rounding then sees.
(Boldo and Melquiond, IEEE Transactions on Computers 57 (2008), 462.)
"""

from __future__ import annotations

from typing import Final

from opgraft.render.intrinsics import INLINE

# gcc's builtins by element and bytes of the vector: (condition, call)
_FUSED: Final = {
    ("f32", 64): ("__AVX512F__", "__builtin_ia32_vfmaddps512_mask((a),(b),(c),-1,4)"),
    ("f64", 64): ("__AVX512F__", "__builtin_ia32_vfmaddpd512_mask((a),(b),(c),-1,4)"),
    ("f32", 32): ("__FMA__", "__builtin_ia32_vfmaddps256((a),(b),(c))"),
    ("f64", 32): ("__FMA__", "__builtin_ia32_vfmaddpd256((a),(b),(c))"),
    ("f32", 16): ("__FMA__", "__builtin_ia32_vfmaddps((a),(b),(c))"),
    ("f64", 16): ("__FMA__", "__builtin_ia32_vfmaddpd((a),(b),(c))"),
}
_LACKING: Final = "defined(__x86_64__)&&!defined(__FMA__)&&!defined(__AVX512F__)"
_REGISTERS: Final = {4: ("__SSE2__", ""), 8: ("__AVX__", "256")}
"""Lanes of float32 that x86's registers have: the macro that says so, what builtins end with."""
_THROUGH_FLOAT64: Final = """\
typedef double NAME_d __attribute__((vector_size(BYTES)));
typedef int NAME_i __attribute__((vector_size(BYTES)));
typedef long long NAME_l __attribute__((vector_size(BYTES)));
typedef unsigned long long NAME_u __attribute__((vector_size(BYTES)));
#ifdef __clang__
#define NAME_wide(x,...) __builtin_convertvector(__builtin_shufflevector(x,x,__VA_ARGS__),NAME_d)
#else
#define NAME_wide(x,...) __builtin_ia32_cvtps2pdREG(__builtin_shufflevector(x,x,__VA_ARGS__FILL))
#endif
INLINE NAME_d NAME_odd(NAME_d p,NAME_d c,NAME_d s){
 NAME_d t=s-p,e=(p-(s-t))+(c-t);
 NAME_l rest=(e<0)|(e>0),past=(NAME_l)((NAME_u)((NAME_l)e^(NAME_l)s)>>63);
 return (NAME_d)(((NAME_l)s-(past&rest))|(rest&1));}
INLINE KIND NAME(KIND a,KIND b,KIND c){
 NAME_d p=NAME_wide(a,LOWER)*NAME_wide(b,LOWER),v=NAME_wide(c,LOWER),s=p+v;
 NAME_d q=NAME_wide(a,UPPER)*NAME_wide(b,UPPER),w=NAME_wide(c,UPPER),t=q+w;
 NAME_i low=__builtin_shufflevector((NAME_i)s,(NAME_i)t,EVEN);
 NAME_i high=__builtin_shufflevector((NAME_i)s,(NAME_i)t,ODD)&0x7fffffff;
 NAME_i m=((low&0x1fffffff)==0x10000000)|((high<0x38100001)&(high>0));
 if(__builtin_expect(__builtin_ia32_movmskpsREG((KIND)m)!=0,0))
  s=NAME_odd(p,v,s),t=NAME_odd(q,w,t);
 __auto_type x=__builtin_ia32_cvtpd2psREG(s);
 __auto_type y=__builtin_ia32_cvtpd2psREG(t);
 return __builtin_shufflevector(x,y,JOINED);}"""
"""0x1fffffff are the bits of a float64 that a float32 has not, 0x10000000 is the middle;
0x38100000 is the upper half of 2**-126, below which a float32 is subnormal."""


def fused_multiply_add(name: str, kind: str, element: str, lanes: int, scalar_call: str) -> str:
    """`name(a, b, c)` for a vector type, rounded once, on a processor that has the instruction.

    clang's builtin is new; before it, contraction allowed for this one expression does the same.
    Elsewhere gcc makes one instruction of the lanes.
    """
    lines = [
        "#ifdef __clang__",
        "#if __has_builtin(__builtin_elementwise_fma)",
        f"#define {name}(a,b,c) __builtin_elementwise_fma((a),(b),(c))",
        "#else",
        f"{_signature(name, kind)}{{",
        "#pragma clang fp contract(fast)",
        "return a*b+c;}",
        "#endif",
    ]
    builtin = _FUSED.get((element, lanes * int(element[1:]) // 8))
    if builtin is not None:
        lines += [f"#elif defined({builtin[0]})", f"#define {name}(a,b,c) (({kind}){builtin[1]})"]
    by_lane = f"{_signature(name, kind)}{_by_lane(kind, lanes, scalar_call)}"
    return "\n".join([*lines, "#else", by_lane, "#endif"])


def multiply_add(name: str, kind: str, element: str, lanes: int, scalar_call: str) -> str:
    """The same on a processor that may not have it."""
    lines = []
    by_lane = _by_lane(kind, lanes, scalar_call)
    if element == "f32" and lanes in _REGISTERS:
        lines = [
            f"#if {_LACKING}&&defined({_REGISTERS[lanes][0]})",
            _through_float64(name, kind, lanes),
        ]
    lines += [f"#{'el' * bool(lines)}if {_LACKING}", f"{_signature(name, kind)}{by_lane}", "#else"]
    fused = fused_multiply_add(name, kind, element, lanes, scalar_call)
    return "\n".join([*lines, fused, "#endif"])


def _signature(name: str, kind: str) -> str:
    return f"{INLINE} {kind} {name}({kind} a,{kind} b,{kind} c)"


def _by_lane(kind: str, lanes: int, scalar_call: str) -> str:
    each = ",".join(f"{scalar_call}(a[{k}],b[{k}],c[{k}])" for k in range(lanes))
    return f"{{return ({kind}){{{each}}};}}"


def _through_float64(name: str, kind: str, lanes: int) -> str:
    """The function for x86 by way of float64, in the two halves of the vector."""
    half = lanes // 2
    # instructions that shuffle two registers do so in each 16 bytes of them
    even = [k + 2 * j + part for k in range(0, lanes, 4) for part in (0, lanes) for j in (0, 1)]
    orders = {
        "LOWER": range(half),
        "UPPER": range(half, lanes),
        "EVEN": even,
        "ODD": [k + 1 for k in even],
        "JOINED": range(lanes) if lanes == 8 else (0, 1, 4, 5),
    }
    words = {name: ",".join(map(str, order)) for name, order in orders.items()}
    words |= {"INLINE": INLINE, "KIND": kind, "NAME": name}
    words |= {"BYTES": str(4 * lanes), "REG": _REGISTERS[lanes][1]}
    words["FILL"] = "" if lanes == 8 else ",2,3"
    text = _THROUGH_FLOAT64
    for word, written in words.items():
        text = text.replace(word, written)
    return text
