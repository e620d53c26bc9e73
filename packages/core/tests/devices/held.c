/* A thread that loses its core in the middle of its part, until the caller has done all the rest:
 * how much was missed meanwhile. No clock and no other process takes part in it. */
#include "runtime.c"

#include <stdio.h>
#include <stdlib.h>

enum { EXTENT = 1024 };

static _Atomic ll done, held;
static pthread_t caller;

static void part(void **buffers, const ll *variables, ll begin, ll end) {
    if (pthread_equal(pthread_self(), caller)) {
        while (!atomic_load(&held)) wake(); /* until the other has begun */
        atomic_fetch_add(&done, end - begin);
    } else {
        if (!atomic_load(&held)) atomic_store(&held, end - begin);
        while (atomic_load(&done) + end - begin < EXTENT) pause_();
    }
}

int main(int count, char **arguments) {
    caller = pthread_self();
    step s = {part, NULL, NULL, EXTENT, atoll(arguments[1])};
    og_run(&s, 1, 2);
    printf("%lld held, %lld done\n", (ll)held, (ll)done);
    return 0;
}
