/* A thread that loses its core in the middle of its part: how often it is asked again. The clock
 * and the naps are the test's own, so that nothing here depends on how busy the machine is. */
#include <time.h>

static int test_clock(clockid_t clock, struct timespec *t);
static int test_nap(const struct timespec *span, struct timespec *left);
#define clock_gettime test_clock
#define nanosleep test_nap
#include "runtime.c"

#include <stdio.h>
#include <stdlib.h>

enum { LOOK = 1000, LATER = 100000, ROUNDS = 2000, EXTENT = 64 };

static _Atomic ll time_;
static _Atomic int came, napped, asked;
static int whole;
static pthread_t caller;

static int test_clock(clockid_t clock, struct timespec *t) {
    ll ns = atomic_fetch_add(&time_, LOOK);
    *t = (struct timespec){ns / 1000000000, ns % 1000000000};
    return 0;
}

static int test_nap(const struct timespec *span, struct timespec *left) {
    atomic_store(&napped, 1);
    return 0;
}

static void part(void **buffers, const ll *variables, ll begin, ll end) {
    if (!pthread_equal(pthread_self(), caller)) {
        atomic_fetch_add(&asked, 1);
        atomic_store(&came, 1);
        while (!atomic_load(&napped)) pause_(); /* the core is gone until the caller sleeps */
    } else if (end - begin == EXTENT) {
        whole++;
    } else {
        while (!atomic_load(&came)) wake();
    }
}

int main(void) {
    caller = pthread_self();
    step s = {part, NULL, NULL, EXTENT, SHARE_LATE / 2};
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&came, 0);
        atomic_store(&napped, 0);
        og_run(&s, 1, 2);
        atomic_fetch_add(&time_, LATER);
    }
    printf("%d asked, %d whole\n", asked, whole);
    return 0;
}
