/* Several callers run lists on the pool, and allocate, at one time. Built with sanitizers. */
#include "runtime.c"

#include <stdio.h>
#include <stdlib.h>

enum { N = 4096, STEPS = 20, ROUNDS = 8, BLOCKS = 50, CALLERS = 4 };

/* Reads what other threads wrote in the step before. */
static void shift(void **buffers, const ll *variables, ll begin, ll end) {
    int *out = buffers[0];
    const int *in = buffers[1];
    for (ll i = 64 * begin; i < 64 * end; i++) out[i] = in[(i + N / 2) % N] + 1;
}

static void *caller(void *unused) {
    int *a = og_alloc(sizeof(int[N])), *b = og_alloc(sizeof(int[N]));
    memset(a, 0, sizeof(int[N]));
    for (int round = 0; round < ROUNDS; round++) {
        void *there[] = {b, a}, *back[] = {a, b};
        step steps[STEPS];
        for (int i = 0; i < STEPS; i++) /* work that wakes sleeping threads, and work that doesn't */
            steps[i] = (step){shift, i % 2 ? back : there, NULL, N / 64, i % 3 ? 100000 : 3000};
        og_run(steps, STEPS, 4);
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = 100 * (size_t)(i + 1) * (i + 1) * (i + 1);
            blocks[i] = og_alloc(size);
            blocks[i][0] = blocks[i][size - 1] = (char)i;
        }
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = 100 * (size_t)(i + 1) * (i + 1) * (i + 1);
            if (blocks[i][0] != i || blocks[i][size - 1] != i) exit(2);
            og_free(blocks[i], size);
        }
    }
    for (int i = 0; i < N; i++)
        if (a[i] != ROUNDS * STEPS) exit(3);
    return NULL;
}

int main(void) {
    pthread_t callers[CALLERS];
    og_keep(8 << 20);
    for (int i = 0; i < CALLERS; i++) pthread_create(callers + i, NULL, caller, NULL);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    og_trim();
    if (kept_bytes) exit(4);
    puts("done");
    return 0;
}
