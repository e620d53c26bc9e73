// 64-bit integers: arithmetic that says when a result does not fit, ends of intervals, floors.
#ifndef OPGRAFT_EGRAPH_ARITHMETIC_H
#define OPGRAFT_EGRAPH_ARITHMETIC_H

#include "interface.h"

#define LEAST INT64_MIN
#define MOST INT64_MAX

static inline int add_fits(i64 a, i64 b, i64 *made) {
    if ((b > 0 && a > MOST - b) || (b < 0 && a < LEAST - b)) return 0;
    *made = a + b;
    return 1;
}

static inline int multiply_fits(i64 a, i64 b, i64 *made) {
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
static inline i64 add_low(i64 a, i64 b) {
    i64 made;
    if (a == LEAST || b == LEAST) return LEAST;
    return add_fits(a, b, &made) ? made : a < 0 ? LEAST : MOST - 1;
}

static inline i64 add_high(i64 a, i64 b) {
    i64 made;
    if (a == MOST || b == MOST) return MOST;
    return add_fits(a, b, &made) ? made : a > 0 ? MOST : LEAST + 1;
}

static inline i64 multiply_end(i64 a, i64 b) {
    i64 made;
    if (a == 0 || b == 0) return 0;
    const int negative = (a < 0) != (b < 0);
    if (a == LEAST || a == MOST || b == LEAST || b == MOST) return negative ? LEAST : MOST;
    return multiply_fits(a, b, &made) ? made : negative ? LEAST : MOST;
}

static inline i64 floor_div(i64 a, i64 b) {  // b > 0
    const i64 q = a / b;
    return a % b < 0 ? q - 1 : q;
}

static inline i64 floor_mod(i64 a, i64 b) {  // b > 0
    const i64 r = a % b;
    return r < 0 ? r + b : r;
}

static inline i64 gcd(i64 a, i64 b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        const i64 r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 most(i64 a, i64 b) { return a > b ? a : b; }

// Rounded to minus infinity, for a divisor of either sign that is not 0.
static inline i64 floor_quotient(i64 a, i64 b) {
    const i64 q = a / b;
    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static inline i64 shift_right(i64 a, i64 by) { return a < 0 ? ~(~a >> by) : a >> by; }

#endif
