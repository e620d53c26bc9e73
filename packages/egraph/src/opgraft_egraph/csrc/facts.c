// What is known of the values of a class: a constant, an interval, a remainder.
//
// Every function here is sound: no value that the operation can have lies outside of what it
// says. The interval of an integer that is not limited, or not within an i64, ends at the least
// or greatest i64. A fixed-width integer wraps; `index` does not.
#include "egraph.h"


// ---- dtypes

static int is_whole(const DType *d) { return d->kind == SIGNED || d->kind == UNSIGNED || d->kind == INDEX; }
static int is_counted(const DType *d) { return is_whole(d) || d->kind == BOOL; }

static i64 dtype_least(const DType *d) {
    if (d->kind == SIGNED) return d->bits >= 64 ? LEAST : -((i64)1 << (d->bits - 1));
    return d->kind == INDEX ? LEAST : 0;
}

static i64 dtype_most(const DType *d) {
    if (d->kind == BOOL) return 1;
    if (d->kind == SIGNED) return d->bits >= 64 ? MOST : ((i64)1 << (d->bits - 1)) - 1;
    if (d->kind == UNSIGNED) return d->bits >= 63 ? MOST : ((i64)1 << d->bits) - 1;
    return MOST;
}

Fact anything(const DType *d, u32 dtype) {
    Fact f = {LEAST, MOST, 0, 1, 0, (u16)dtype, NO_NUMBER, 0, 0};
    if (is_counted(d)) {
        f.low = dtype_least(d);
        f.high = dtype_most(d);
    }
    return f;
}

// ---- remainders

// Keeps a modulus small enough that products of two fit.
static void set_modulus(Fact *f, i64 modulus, i64 rest) {
    if (modulus < 0) modulus = -modulus;
    if (modulus == 0) {
        f->modulus = 0;
        f->rest = rest;
    } else if (modulus > (i64)1 << 31) {
        // any divisor of it will do; the largest power of two in it is one
        modulus &= -modulus;
        if (modulus > (i64)1 << 31) modulus = (i64)1 << 31;
        f->modulus = modulus;
        f->rest = floor_mod(rest, modulus);
    } else {
        f->modulus = modulus;
        f->rest = floor_mod(rest, modulus);
    }
}

// A modulus of 0 stands for a single number; a number too large to compute with becomes "any".
static int modest(const Fact *f) { return f->modulus || (f->rest < (i64)1 << 31 && f->rest > -((i64)1 << 31)); }

static void sum_modulus(Fact *f, const Fact *a, const Fact *b) {
    if (!modest(a) || !modest(b)) return;
    set_modulus(f, gcd(a->modulus, b->modulus), a->rest + b->rest);
}

static void product_modulus(Fact *f, const Fact *a, const Fact *b) {
    if (!modest(a) || !modest(b)) return;
    const i64 by = gcd(gcd(a->modulus * b->modulus, a->modulus * b->rest), b->modulus * a->rest);
    set_modulus(f, by, a->rest * b->rest);
}

static void common_modulus(Fact *f, const Fact *a, const Fact *b) {
    if (!modest(a) || !modest(b)) return;
    set_modulus(f, gcd(gcd(a->modulus, b->modulus), a->rest - b->rest), a->rest);
}

// What is left of a remainder where a result wraps at 2**bits.
static void wrap_modulus(const DType *d, Fact *f) {
    if (f->modulus == 0) {
        f->modulus = 1;
        f->rest = 0;
        return;
    }
    i64 power = f->modulus & -f->modulus;
    if (d->bits < 31 && power > (i64)1 << d->bits) power = (i64)1 << d->bits;
    set_modulus(f, power, f->rest);
}

// ---- intervals

// The unbounded result [low, high] as the dtype holds it. Where all of it wraps by the same
// amount the interval moves; where it wraps in part, the result can be anything.
static void fit(const DType *d, Fact *f, i64 low, i64 high) {
    const i64 min = dtype_least(d), max = dtype_most(d);
    if (d->kind == INDEX || (low >= min && high <= max && (d->bits < 64 || (low != LEAST && high != MOST)))) {
        f->low = low;
        f->high = high;
        return;
    }
    if (d->bits < 62 && low != LEAST && high != MOST && low > -((i64)1 << 62) && high < (i64)1 << 62) {
        const i64 size = (i64)1 << d->bits;
        const i64 turns = floor_div(low - min, size);
        if (turns == floor_div(high - min, size)) {
            f->low = low - turns * size;
            f->high = high - turns * size;
            wrap_modulus(d, f);
            return;
        }
    }
    f->low = min;
    f->high = max;
    wrap_modulus(d, f);
}

static void product(const Fact *a, const Fact *b, i64 *low, i64 *high) {
    const i64 p = multiply_end(a->low, b->low), q = multiply_end(a->low, b->high);
    const i64 r = multiply_end(a->high, b->low), s = multiply_end(a->high, b->high);
    *low = least(least(p, q), least(r, s));
    *high = most(most(p, q), most(r, s));
}

static i64 end_div(i64 a, i64 b) {  // b > 0
    if (a == LEAST || a == MOST) return a;
    if (b == MOST) return a >= 0 ? 0 : -1;
    return floor_div(a, b);
}

static void divide(const DType *d, Fact *f, const Fact *a, const Fact *b) {
    if (b->low <= 0) {
        if (b->high < 0 && b->low != LEAST && a->low != LEAST) {
            const Fact x = {-a->high, -a->low, 0, 1, 0, 0, 0, 0, 0};
            const Fact y = {-b->high, -b->low, 0, 1, 0, 0, 0, 0, 0};
            if (a->high != MOST) divide(d, f, &x, &y);
        } else if (b->high >= 0 && a->low != LEAST && a->high != MOST) {
            // no quotient is larger than what is divided
            const i64 size = most(-a->low, a->high);
            fit(d, f, least(-size, size), most(-size, size));
        }
        return;
    }
    const i64 low = end_div(a->low, a->low >= 0 ? b->high : b->low);
    const i64 high = end_div(a->high, a->high >= 0 ? b->low : b->high);
    if (b->low == b->high && a->modulus && a->modulus % b->low == 0)
        set_modulus(f, a->modulus / b->low, a->rest / b->low);
    fit(d, f, low, high);
}

static void modulo(const DType *d, Fact *f, const Fact *a, const Fact *b) {
    if (b->low <= 0) {
        if (b->low != LEAST) fit(d, f, least(b->low + 1, 0), b->high == MOST ? MOST : most(b->high - 1, 0));
        return;
    }
    if (b->low == b->high && modest(b)) {
        const i64 by = b->low;
        if (a->modulus == 0) set_modulus(f, 0, floor_mod(a->rest, by));
        else if (a->modulus % by == 0) set_modulus(f, 0, a->rest % by);
        else set_modulus(f, gcd(a->modulus, by), a->rest);
    }
    if (a->low >= 0 && a->high < b->low) {
        fit(d, f, a->low, a->high);
        return;
    }
    if (b->low == b->high && a->low != LEAST && a->high != MOST &&
        floor_div(a->low, b->low) == floor_div(a->high, b->low)) {
        fit(d, f, floor_mod(a->low, b->low), floor_mod(a->high, b->low));
        return;
    }
    const i64 top = b->high == MOST ? MOST : b->high - 1;
    fit(d, f, 0, a->low >= 0 ? least(top, a->high) : top);
}

// The least number 2**k - 1 that is not below x.
static i64 all_ones(i64 x) {
    u64 y = (u64)x;
    for (u32 s = 1; s < 64; s *= 2) y |= y >> s;
    return (i64)y;
}

static void bits(u32 meaning, Fact *f, const Fact *a, const Fact *b) {
    if (meaning == AND) {
        if (a->low >= 0 || b->low >= 0) {
            f->low = 0;
            f->high = a->low < 0 ? b->high : b->low < 0 ? a->high : least(a->high, b->high);
        }
    } else if (a->low >= 0 && b->low >= 0) {
        f->low = meaning == OR ? most(a->low, b->low) : 0;
        f->high = all_ones(a->high | b->high);
    }
}

static void shift(const DType *d, u32 meaning, Fact *f, const Fact *a, const Fact *b) {
    if (b->low != b->high || b->low < 0 || b->low > 62 || (d->kind != INDEX && b->low >= d->bits)) {
        if (meaning == SHR && a->low >= 0) {
            f->low = 0;
            f->high = a->high;
        }
        return;
    }
    const i64 power = (i64)1 << b->low;
    if (meaning == SHR) {
        const Fact by = {power, power, 0, 0, power, 0, 0, 0, 0};
        divide(d, f, a, &by);
        return;
    }
    const Fact by = {power, power, 0, 0, power, 0, 0, 0, 0};
    i64 low, high;
    product(a, &by, &low, &high);
    product_modulus(f, a, &by);
    fit(d, f, low, high);
}

static void hull(Fact *f, const Fact *a, const Fact *b) {
    f->low = least(a->low, b->low);
    f->high = most(a->high, b->high);
    f->nonzero = a->nonzero && b->nonzero;
    common_modulus(f, a, b);
}

// Whether no value of one can be a value of the other.
static int apart(const Fact *a, const Fact *b) {
    if (a->high < b->low || b->high < a->low) return 1;
    if (!modest(a) || !modest(b)) return 0;
    const i64 g = gcd(a->modulus, b->modulus);
    return g ? (a->rest - b->rest) % g != 0 : a->rest != b->rest;
}

static void compare(const EGraph *g, u32 meaning, Fact *f, const u32 *kids) {
    const Fact *a = known(g, kids[0]), *b = known(g, kids[1]);
    const DType *d = g->program->dtypes + a->dtype;
    int holds = 0, may = 1;
    if (meaning == LESS) {
        if (kids[0] == kids[1]) may = 0;
        else if (is_counted(d)) {
            holds = a->high < b->low;
            may = a->low < b->high;
        }
    } else if (is_counted(d)) {
        holds = kids[0] == kids[1] || (a->low == a->high && b->low == b->high && a->low == b->low &&
                                       a->low != LEAST && a->low != MOST);
        may = holds || !apart(a, b);
        if (meaning == UNEQUAL) {
            const int never = holds;
            holds = !may;
            may = !never;
        }
    }
    f->low = holds;
    f->high = may;
}

static void convert(const DType *d, const DType *from, Fact *f, const Fact *a) {
    if (!is_counted(from) || !is_counted(d)) return;
    if (d->kind == BOOL) {
        const int zero = a->low <= 0 && a->high >= 0 && !a->nonzero;
        f->low = !zero;
        f->high = !(zero && a->low == a->high);
        return;
    }
    f->modulus = a->modulus;
    f->rest = a->rest;
    if (from->kind == UNSIGNED && from->bits >= 64 && a->high == MOST) {
        wrap_modulus(d, f);
        return;  // it may be above the greatest i64
    }
    // of 64 bits the ends stand for themselves here
    if (from->bits >= 64 && d->bits >= 64 && from->kind == d->kind) {
        f->low = a->low;
        f->high = a->high;
        return;
    }
    fit(d, f, a->low, a->high);
}

// ---- facts of nodes and classes

void settle(const DType *d, Fact *f) {
    if (!is_counted(d) || f->number == ELSEWHERE) return;
    if (f->number) {
        f->low = f->high = f->value;
        f->modulus = 0;
        f->rest = f->value;
    } else {
        if (f->modulus == 0) {
            f->low = f->high = f->rest;
        } else if (f->modulus > 1) {
            i64 made;
            if (f->low != LEAST && add_fits(f->low, floor_mod(f->rest - floor_mod(f->low, f->modulus), f->modulus), &made))
                f->low = made;
            if (f->high != MOST && add_fits(f->high, -floor_mod(floor_mod(f->high, f->modulus) - f->rest, f->modulus), &made))
                f->high = made;
        }
        if (f->low == f->high && f->low != LEAST && f->high != MOST) {
            f->number = d->kind == BOOL ? NUMBER_BOOL : NUMBER_INT;
            f->value = f->rest = f->low;
            f->modulus = 0;
        }
    }
    if (f->low > 0 || f->high < 0 || (f->modulus > 1 && f->rest != 0)) f->nonzero = 1;
}

Fact constant_fact(const Program *p, u32 dtype, u32 kind, i64 value) {
    const DType *d = p->dtypes + dtype;
    Fact f = anything(d, dtype);
    f.number = (u8)kind;
    f.value = value;
    settle(d, &f);
    return f;
}

static Fact leaf_fact(const Program *p, const Head *h) {
    const DType *d = p->dtypes + h->dtype;
    Fact f = anything(d, (u32)h->dtype);
    if (is_counted(d)) {
        // not settled: a loop of one iteration is still a loop
        f.low = most(f.low, h->low);
        f.high = least(f.high, h->high);
        f.nonzero = f.low > 0 || f.high < 0;
    }
    return f;
}

Fact fact_of(EGraph *g, u32 head, const u32 *kids) {
    const Program *p = g->program;
    const Head *h = g->heads + head;
    const DType *d = p->dtypes + h->dtype;
    if (h->meaning == OPAQUE) return anything(d, (u32)h->dtype);
    if (h->meaning == CONST) return constant_fact(p, (u32)h->dtype, (u32)h->number, h->value);
    if (h->meaning == LEAF) return leaf_fact(p, h);
    Fact f = anything(d, (u32)h->dtype);
    const u32 arity = (u32)h->arity;
    if (arity >= 1 && arity <= 3) {
        const Fact *operands[3];
        int all = 1;
        for (u32 i = 0; i < arity; i++) {
            operands[i] = known(g, kids[i]);
            all &= operands[i]->number && operands[i]->number != ELSEWHERE;
        }
        if (all && fold(p, h, operands, &f)) {
            settle(d, &f);
            return f;
        }
    }
    const Fact *a = arity > 0 ? known(g, kids[0]) : NULL;
    const Fact *b = arity > 1 ? known(g, kids[1]) : NULL;
    switch (h->meaning) {
        case WHERE: {
            const Fact *c = known(g, kids[2]);
            const Fact *only = a->low == a->high && a->number == NUMBER_BOOL ? (a->low ? b : c) : NULL;
            if (only) {
                f = *only;
                f.refined = 0;
            } else if (is_counted(d)) hull(&f, b, c);
            break;
        }
        case LESS:
        case UNEQUAL:
        case EQUAL:
            compare(g, (u32)h->meaning, &f, kids);
            break;
        case CAST:
            convert(d, p->dtypes + a->dtype, &f, a);
            break;
        case SAME:
            if (is_counted(d)) {
                const u16 dtype = f.dtype;
                f = *a;
                f.dtype = dtype;
                f.refined = 0;
            }
            break;
        case LANES:
            if (is_counted(d) && arity) {
                f.low = a->low;
                f.high = a->high;
                f.modulus = a->modulus;
                f.rest = a->rest;
                f.nonzero = a->nonzero;
                for (u32 i = 1; i < arity; i++) {
                    const Fact before = f;
                    hull(&f, &before, known(g, kids[i]));
                }
            }
            break;
        default:
            if (d->kind == BOOL && arity == 2) {
                const int both = h->meaning == AND || h->meaning == MUL || h->meaning == MIN;
                const int either = h->meaning == OR || h->meaning == ADD || h->meaning == MAX;
                if (both || either) {
                    f.low = both ? a->low & b->low : a->low | b->low;
                    f.high = both ? a->high & b->high : a->high | b->high;
                }
                break;
            }
            if (!is_whole(d) || arity != 2) break;
            i64 low, high;
            switch (h->meaning) {
                case ADD:
                    sum_modulus(&f, a, b);
                    fit(d, &f, add_low(a->low, b->low), add_high(a->high, b->high));
                    break;
                case MUL:
                    product(a, b, &low, &high);
                    if (kids[0] == kids[1]) low = a->low <= 0 && a->high >= 0 ? 0 : most(low, 0);
                    product_modulus(&f, a, b);
                    fit(d, &f, low, high);
                    if (d->kind == INDEX) f.nonzero = a->nonzero && b->nonzero;
                    break;
                case IDIV: divide(d, &f, a, b); break;
                case MOD: modulo(d, &f, a, b); break;
                case CDIV: if (a->low >= 0) divide(d, &f, a, b); break;
                case CMOD: if (a->low >= 0 && b->low > 0) modulo(d, &f, a, b); break;
                case MAX:
                    common_modulus(&f, a, b);
                    f.low = most(a->low, b->low);
                    f.high = most(a->high, b->high);
                    break;
                case MIN:
                    common_modulus(&f, a, b);
                    f.low = least(a->low, b->low);
                    f.high = least(a->high, b->high);
                    break;
                case AND:
                case OR:
                case XOR: bits((u32)h->meaning, &f, a, b); break;
                case SHL:
                case SHR: shift(d, (u32)h->meaning, &f, a, b); break;
                default: break;
            }
    }
    settle(d, &f);
    return f;
}
