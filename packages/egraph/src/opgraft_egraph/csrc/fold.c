// Operations on constants: the values that opgraft.ir.evaluate defines, or none.
//
// What this file does not know, or what does not fit an i64, is not folded here; the caller's
// rules may do it.
#include <math.h>

#include "egraph.h"

static double as_float(const Fact *f) {
    double made;
    memcpy(&made, &f->value, sizeof made);
    return made;
}

static i64 float_bits(double x) {
    i64 made;
    if (x != x) return 0x7ff8000000000000;  // every nan is the same
    memcpy(&made, &x, sizeof made);
    return made;
}

// The nearest float of these field widths, ties to even; overflow gives an infinity.
static double round_to(const DType *d, double x) {
    if (d->mantissa >= 52 || x == 0.0 || isinf(x) || x != x) return x;
    if (d->mantissa == 23) return (double)(float)x;
    const int bias = (1 << (d->exponent - 1)) - 1;
    int power;
    frexp(x, &power);
    power -= 1;
    if (power < 1 - bias) power = 1 - bias;
    const double unit = ldexp(1.0, power - d->mantissa);
    const double made = nearbyint(x / unit) * unit;
    if (fabs(made) >= ldexp(1.0, bias + 1)) return copysign(INFINITY, x);
    return made == 0.0 ? copysign(0.0, x) : made;
}

static int set_float(const DType *d, Fact *f, double x) {
    f->number = NUMBER_FLOAT;
    f->value = float_bits(round_to(d, x));
    return 1;
}

// An integer as the dtype holds it. False: an i64 cannot.
static int set_wrapped(const DType *d, Fact *f, u64 x) {
    if (d->bits < 64) {
        x &= ((u64)1 << d->bits) - 1;
        if (d->kind == SIGNED && x >> (d->bits - 1)) x -= (u64)1 << d->bits;
    } else if (d->kind == UNSIGNED && x >> 63) {
        return 0;
    }
    f->number = NUMBER_INT;
    f->value = (i64)x;
    return 1;
}

static int set_exact(const DType *d, Fact *f, i64 x) {
    if (d->kind == BOOL) {
        f->number = NUMBER_BOOL;
        f->value = x != 0;
        return 1;
    }
    if (d->kind == INDEX) {
        f->number = NUMBER_INT;
        f->value = x;
        return 1;
    }
    return set_wrapped(d, f, (u64)x);
}

static int fold_whole(const DType *d, u32 meaning, i64 a, i64 b, Fact *f) {
    const int wraps = d->kind != INDEX;
    const u64 x = (u64)a, y = (u64)b;
    i64 made;
    switch (meaning) {
        case ADD:
            if (wraps) return set_wrapped(d, f, x + y);
            return add_fits(a, b, &made) ? set_exact(d, f, made) : 0;
        case MUL:
            if (wraps) return set_wrapped(d, f, x * y);
            return multiply_fits(a, b, &made) ? set_exact(d, f, made) : 0;
        case IDIV:
            if (b == -1) return a == INT64_MIN ? 0 : set_exact(d, f, -a);
            return set_exact(d, f, b ? floor_quotient(a, b) : 0);
        case MOD:
            if (b == 0 || b == -1) return set_exact(d, f, 0);
            return set_exact(d, f, a - b * floor_quotient(a, b));
        case CDIV:
            if (b == -1) return a == INT64_MIN ? 0 : set_exact(d, f, -a);
            return set_exact(d, f, b ? a / b : 0);
        case CMOD: return set_exact(d, f, b == 0 || b == -1 ? 0 : a % b);
        case MAX: return set_exact(d, f, a > b ? a : b);
        case MIN: return set_exact(d, f, a < b ? a : b);
        case AND: return set_exact(d, f, a & b);
        case OR: return set_exact(d, f, a | b);
        case XOR: return set_exact(d, f, a ^ b);
        case SHL:
            if (b < 0 || (wraps && b >= d->bits)) return set_exact(d, f, 0);
            if (wraps) return set_wrapped(d, f, x << b);
            if (b > 62 || a > INT64_MAX >> b || a < -(INT64_MAX >> b)) return a ? 0 : set_exact(d, f, 0);
            return set_exact(d, f, a * ((i64)1 << b));
        case SHR:
            if (b < 0 || b > 63 || (wraps && b >= d->bits)) return set_exact(d, f, a < 0 ? -1 : 0);
            return set_exact(d, f, shift_right(a, b));
        default: return 0;
    }
}

static int fold_bool(u32 meaning, int a, int b, Fact *f) {
    f->number = NUMBER_BOOL;
    switch (meaning) {
        case ADD: case OR: case MAX: f->value = a | b; return 1;
        case MUL: case AND: case MIN: f->value = a & b; return 1;
        case XOR: f->value = a ^ b; return 1;
        default: f->number = NO_NUMBER; return 0;
    }
}

static int fold_float(const DType *d, u32 meaning, double a, double b, Fact *f) {
    switch (meaning) {
        case ADD: return set_float(d, f, a + b);
        case MUL: return set_float(d, f, a * b);
        case FDIV: return set_float(d, f, a / b);
        case MAX:
            if (a != a || b != b) return set_float(d, f, NAN);
            return set_float(d, f, a == b ? (signbit(a) ? b : a) : a > b ? a : b);
        case MIN:
            if (a != a || b != b) return set_float(d, f, NAN);
            return set_float(d, f, a == b ? (signbit(a) ? a : b) : a < b ? a : b);
        default: return 0;
    }
}

static int fold_comparison(u32 meaning, const Fact *a, const Fact *b, Fact *f) {
    int less, equal;
    if (a->number == NUMBER_FLOAT) {
        less = as_float(a) < as_float(b);
        equal = as_float(a) == as_float(b);
    } else {
        less = a->value < b->value;
        equal = a->value == b->value;
    }
    f->number = NUMBER_BOOL;
    f->value = meaning == LESS ? less : meaning == EQUAL ? equal : !equal;
    return 1;
}

static int fold_cast(const DType *d, const Fact *a, Fact *f) {
    if (a->number != NUMBER_FLOAT) {
        if (d->kind == FLOAT) {
            // exact as a double, so there is one rounding
            if (a->value > (i64)1 << 53 || a->value < -((i64)1 << 53)) return 0;
            return set_float(d, f, (double)a->value);
        }
        return set_exact(d, f, a->value);
    }
    const double x = as_float(a);
    if (d->kind == FLOAT) return set_float(d, f, x);
    if (d->kind == BOOL) return set_exact(d, f, x != 0.0);
    if (x != x) return set_exact(d, f, 0);
    // truncated, then saturated; where that takes more than an i64, left alone
    if (!(fabs(x) < 9.0e18)) return 0;
    i64 whole = (i64)x;
    if (d->kind == SIGNED && d->bits < 64) {
        const i64 limit = (i64)1 << (d->bits - 1);
        whole = whole < -limit ? -limit : whole >= limit ? limit - 1 : whole;
    } else if (d->kind == UNSIGNED) {
        if (whole < 0) whole = 0;
        if (d->bits < 63 && whole >> d->bits) whole = ((i64)1 << d->bits) - 1;
    }
    return set_exact(d, f, whole);
}

// The value of a head on constants, which are all there. `made` has the head's dtype.
int fold(const Program *p, const Head *head, const Fact *const *kids, Fact *made) {
    const DType *d = p->dtypes + head->dtype;
    const u32 meaning = (u32)head->meaning;
    const Fact *a = kids[0];
    switch (meaning) {
        case LESS:
        case UNEQUAL:
        case EQUAL: return fold_comparison(meaning, a, kids[1], made);
        case CAST: return fold_cast(d, a, made);
        case WHERE: {
            const Fact *taken = a->value ? kids[1] : kids[2];
            made->number = taken->number;
            made->value = taken->value;
            return 1;
        }
        case SAME:
            made->number = a->number;
            made->value = a->value;
            return 1;
        case SQRT:
            if (a->number != NUMBER_FLOAT) return 0;
            return set_float(d, made, as_float(a) < 0.0 ? NAN : sqrt(as_float(a)));
        case TRUNC: return a->number == NUMBER_FLOAT ? set_float(d, made, trunc(as_float(a))) : 0;
        default: break;
    }
    if (head->arity != 2) return 0;
    const Fact *b = kids[1];
    if (d->kind == BOOL) return fold_bool(meaning, a->value != 0, b->value != 0, made);
    if (d->kind == FLOAT) return fold_float(d, meaning, as_float(a), as_float(b), made);
    if (a->number != NUMBER_INT || b->number != NUMBER_INT) return 0;
    return fold_whole(d, meaning, a->value, b->value, made);
}
