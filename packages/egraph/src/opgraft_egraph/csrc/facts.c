// What is known of the values of a class: a constant, an interval, a remainder.
//
// Every function here is sound: no value that the operation can have lies outside of what it
// says. The interval of an integer that is not limited, or not within an i64, ends at the least
// or greatest i64. A fixed-width integer wraps; `index` does not.
#include "egraph.h"

#define LEAST INT64_MIN
#define MOST INT64_MAX

enum { MOST_REFINED = 64 };  // after so many an interval no longer shrinks: it may do so forever

// ---- arithmetic that says when it does not fit

static int add_fits(i64 a, i64 b, i64 *made) {
    if ((b > 0 && a > MOST - b) || (b < 0 && a < LEAST - b)) return 0;
    *made = a + b;
    return 1;
}

static int multiply_fits(i64 a, i64 b, i64 *made) {
    if (a == 0 || b == 0) {
        *made = 0;
        return 1;
    }
    if (a == LEAST || b == LEAST) return 0;
    const u64 x = a < 0 ? 0 - (u64)a : (u64)a, y = b < 0 ? 0 - (u64)b : (u64)b;
    if (x > (u64)MOST / y) return 0;
    *made = a * b;
    return 1;
}

// Sums and products of ends of intervals; an end that is not limited stays so.
static i64 add_low(i64 a, i64 b) {
    i64 made;
    if (a == LEAST || b == LEAST) return LEAST;
    return add_fits(a, b, &made) ? made : a < 0 ? LEAST : MOST - 1;
}

static i64 add_high(i64 a, i64 b) {
    i64 made;
    if (a == MOST || b == MOST) return MOST;
    return add_fits(a, b, &made) ? made : a > 0 ? MOST : LEAST + 1;
}

static i64 multiply_end(i64 a, i64 b) {
    i64 made;
    if (a == 0 || b == 0) return 0;
    const int negative = (a < 0) != (b < 0);
    if (a == LEAST || a == MOST || b == LEAST || b == MOST) return negative ? LEAST : MOST;
    return multiply_fits(a, b, &made) ? made : negative ? LEAST : MOST;
}

static i64 floor_div(i64 a, i64 b) {  // b > 0
    const i64 q = a / b;
    return a % b < 0 ? q - 1 : q;
}

static i64 floor_mod(i64 a, i64 b) {  // b > 0
    const i64 r = a % b;
    return r < 0 ? r + b : r;
}

static i64 gcd(i64 a, i64 b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        const i64 r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static i64 least(i64 a, i64 b) { return a < b ? a : b; }
static i64 most(i64 a, i64 b) { return a > b ? a : b; }

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

static Fact anything(const DType *d, u32 dtype) {
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
    const Fact *a = g->facts + kids[0], *b = g->facts + kids[1];
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
        const Fact *known[3];
        int all = 1;
        for (u32 i = 0; i < arity; i++) {
            known[i] = g->facts + kids[i];
            all &= known[i]->number && known[i]->number != ELSEWHERE;
        }
        if (all && fold(p, h, known, &f)) {
            settle(d, &f);
            return f;
        }
    }
    const Fact *a = arity > 0 ? g->facts + kids[0] : NULL;
    const Fact *b = arity > 1 ? g->facts + kids[1] : NULL;
    switch (h->meaning) {
        case WHERE: {
            const Fact *c = g->facts + kids[2];
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
                    hull(&f, &before, g->facts + kids[i]);
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

static int meet_remainders(Fact *a, const Fact *b) {
    if (b->modulus == 1) return 1;
    if (a->modulus == 1) {
        a->modulus = b->modulus;
        a->rest = b->rest;
        return 1;
    }
    if (a->modulus == 0) return b->modulus ? floor_mod(a->rest, b->modulus) == b->rest : a->rest == b->rest;
    if (b->modulus == 0) {
        if (floor_mod(b->rest, a->modulus) != a->rest) return 0;
        a->modulus = 0;
        a->rest = b->rest;
        return 1;
    }
    const i64 g = gcd(a->modulus, b->modulus);
    if ((a->rest - b->rest) % g) return 0;
    const i64 both = a->modulus / g * b->modulus;
    if (both > (i64)1 << 20) {  // keep the finer one
        if (b->modulus > a->modulus) {
            a->modulus = b->modulus;
            a->rest = b->rest;
        }
        return 1;
    }
    i64 rest = a->rest;
    while (floor_mod(rest, b->modulus) != b->rest) rest += a->modulus;
    a->modulus = both;
    a->rest = rest;
    return 1;
}

// Both hold: says whether that is more than `a` said, and in `why` if it cannot be.
int meet(Fact *a, const Fact *b, u32 *why) {
    const Fact before = *a;
    if (a->dtype != b->dtype) {
        *why = DIFFERENT_DTYPES;
        return 0;
    }
    if (a->number && b->number && (a->number != b->number || a->value != b->value)) {
        *why = DIFFERENT_CONSTANTS;
        return 0;
    }
    if (most(a->low, b->low) > least(a->high, b->high)) {
        *why = DISJOINT_INTERVALS;
        return 0;
    }
    if (!meet_remainders(a, b)) {
        *why = DISJOINT_REMAINDERS;
        return 0;
    }
    if (b->number && !a->number) {
        a->number = b->number;
        a->value = b->value;
    } else if (a->refined >= MOST_REFINED && !a->number) {
        a->modulus = before.modulus;
        a->rest = before.rest;
        return 0;
    }
    a->low = most(a->low, b->low);
    a->high = least(a->high, b->high);
    a->nonzero |= b->nonzero;
    if (!memcmp(a, &before, offsetof(Fact, refined))) return 0;
    a->refined++;
    return 1;
}

// Notes that more is known of a class: its parents are told by the next rebuild.
void touch(EGraph *g, u32 cls) {
    ROOM(g, touched, touched_room, (u64)g->touched_count + 1);
    g->touched[g->touched_count++] = cls;
    g->news++;
}

void eg_touch(EGraph *g, u32 cls) {
    if (setjmp(g->escape)) return;
    touch(g, find(g, cls));
}

int eg_refine(EGraph *g, u32 cls, const Fact *by) {
    if (setjmp(g->escape)) return -1;
    const int changed = refine(g, find(g, cls), by);
    return g->stop == CONFLICT_FOUND ? -1 : changed;
}

const Fact *eg_fact(EGraph *g, u32 cls) { return g->facts + find(g, cls); }

// Carries what is new about classes to their parents, and makes a class of one value one with
// that constant. Says whether there were unions: then congruence is to be closed again.
int propagate(EGraph *g) {
    u32 first = 0;
    for (u32 k = 0; k < g->touched_count; k++) {
        const u32 cls = find(g, g->touched[k]);
        if (g->fact_stamp[cls] != g->now) {
            g->fact_stamp[cls] = g->now;
            ROOM(g, changed, changed_room, (u64)g->changed_count + 1);
            g->changed[g->changed_count++] = cls;
        }
        for (u32 i = g->use_first[cls]; i < g->use_first[cls + 1]; i++) {
            const Node *n = g->nodes + g->uses[i].id;
            if (g->heads[n->head].meaning == OPAQUE) continue;
            const Fact fact = fact_of(g, n->head, kids_of(g, n));
            refine(g, find(g, n->cls), &fact);
            if (g->stop == CONFLICT_FOUND) return 0;
        }
    }
    const u64 unions = g->unions;
    const u32 count = g->touched_count;
    for (u32 k = first; k < count; k++) {
        const u32 cls = find(g, g->touched[k]);
        const Fact f = g->facts[cls];
        if (!f.number || f.number == ELSEWHERE) continue;
        const u32 number = constant_class(g, f.dtype, f.number, f.value);
        if (find(g, number) == find(g, cls)) continue;
        if (g->explain) join_terms(g, cls, number, BY_VALUE, 0);
        unite(g, cls, number);
        if (g->stop == CONFLICT_FOUND) return 0;
    }
    g->touched_count -= count;
    memmove(g->touched, g->touched + count, g->touched_count * sizeof(u32));
    return g->unions != unions || g->touched_count;
}
