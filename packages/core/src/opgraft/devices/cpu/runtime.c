/* The CPU device's runtime: runs lists of kernels, spreads a kernel over threads, keeps memory.
 *
 * It is compiled by the compiler that compiles the kernels, once, and kept in the compile cache.
 * Python calls it through cffi; every call lets go of the GIL, so that any thread may call at any
 * time. Nothing here calls back into Python. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef long long ll;
typedef void (*kernel)(void **buffers, const ll *variables, ll begin, ll end);

/* One launch. `extent` is the length of the parallel range, 1 if there is none; `work` the
 * nanoseconds that it takes on one core, by estimate, 0 if it can't be split; `stack` the bytes of
 * the kernel's own buffers. */
typedef struct {
    kernel function;
    void **buffers;
    const ll *variables;
    ll extent;
    ll work;
    ll stack;
} step;

/* slots[slot] = inputs[input] + offset, before the list runs. */
typedef struct {
    ll slot, input, offset;
} patch;

/* A list that is run again and again on other inputs. */
typedef struct {
    step *steps;
    ll count;
    void **slots;
    char **inputs;
    patch *patches;
    ll patch_count;
    ll threads;
    ll stack; /* the most of a step */
} list;

enum {
    MOST_THREADS = 256,
    SPLIT_FROM = 2000,  /* ns of work below which a kernel stays whole */
    WAKE_FROM = 60000,  /* ns of work that is worth waking sleeping threads (25-35 us) */
    PART = 50000,       /* ns: parts of a kernel are no smaller, but for the sake of all threads */
    MOST_PARTS = 20,    /* ... and no larger than so many times that, should a core be taken away */
    SPIN = 200000,      /* ns that an idle thread looks for work before it sleeps: between two
                           launches a program does less (of 60000, kernels took 50-100 us more) */
    LATE = 100000,      /* ns beyond what a kernel took until then after which a thread is late */
    SHARE_LATE = 4000000, /* ns of work that is shared even while threads come late */
    LEAST_PAUSE = 1000000,  /* ns that small kernels are kept whole when a thread was late, ... */
    MOST_PAUSE = 512000000, /* ... and, when it happens again and again */
    NAP = 50000,        /* ns between looks at a thread that is late */
    WORKER_STACK = 8 << 20, /* bytes */
    SMALL_STACK = 16 << 10, /* bytes of buffers for which every thread has room */
    SPARE = 128 << 10,  /* bytes of the stack that all else takes, at most */
};

static ll now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#if defined(__x86_64__) || defined(__i386__)
static inline void pause_(void) { __builtin_ia32_pause(); }
/* Kernels run with IEEE arithmetic, whatever other libraries did to this thread. */
static inline unsigned float_mode(void) {
    unsigned old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    return old;
}
static inline void float_restore(unsigned mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
static inline void pause_(void) { __asm__ volatile("yield"); }
static inline uint64_t float_mode(void) {
    uint64_t old, zero = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(zero));
    return old;
}
static inline void float_restore(uint64_t mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
static inline void pause_(void) {}
static inline int float_mode(void) { return 0; }
static inline void float_restore(int mode) { (void)mode; }
#endif

/* ---- threads
 *
 * One caller at a time owns the pool; another that comes meanwhile runs its list alone. The owner
 * offers a kernel by opening the gate, works on it itself, closes the gate when no part is left,
 * and waits for the threads that came in. A thread that is asleep, or that the system holds back,
 * is not waited for: it never came in.
 *
 * Where others want the cores, a thread may lose its core in the middle of a part: its part is
 * missed for some milliseconds, many times what a small kernel takes. Once that happens, small
 * kernels stay whole for a while, twice as long each time; then it is tried again.
 *
 * The gate is one word: bit 0 open; 15 bits, the threads inside; 16 bits, the most that may be
 * inside; 32 bits, the number of the offer. */

#define OPEN 1ull
#define ONE 2ull
#define INSIDE(g) ((g) >> 1 & 0x7fff)
#define MOST(g) ((g) >> 16 & 0xffff)
#define OFFER(g) ((g) >> 32)

static _Alignas(128) _Atomic uint64_t gate;
static _Alignas(128) _Atomic ll next;  /* the first index of the offered kernel not handed out */
static _Alignas(128) struct {
    step step;
    ll grain;
    ll threads;
} offer;
static _Alignas(128) _Atomic int sleepers;
static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t alarm_ = PTHREAD_COND_INITIALIZER;
static int workers;
static _Atomic ll crowded_until; /* till then small kernels stay whole */
static ll crowd_pause;           /* the owner's */

/* Take parts of the offered kernel until none is left: large ones first, the last ones small. */
static void take_parts(void) {
    const step s = offer.step;
    const ll grain = offer.grain, share = 2 * offer.threads;
    ll begin = atomic_load_explicit(&next, memory_order_relaxed);
    while (begin < s.extent) {
        ll part = (s.extent - begin) / share;
        if (part > MOST_PARTS * grain) part = MOST_PARTS * grain;
        ll end = begin + (part > grain ? part : grain);
        if (end > s.extent) end = s.extent;
        if (!atomic_compare_exchange_weak(&next, &begin, end)) continue;
        s.function(s.buffers, s.variables, begin, end);
        begin = atomic_load_explicit(&next, memory_order_relaxed);
    }
}

static int offered(uint64_t g, uint64_t seen) {
    return (g & OPEN) && OFFER(g) != seen && INSIDE(g) < MOST(g);
}

static void *worker(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    float_mode();
    for (ll idle = now(), turns = 0;; turns++) {
        uint64_t g = atomic_load_explicit(&gate, memory_order_acquire);
        if (offered(g, seen)) {
            if (!atomic_compare_exchange_weak(&gate, &g, g + ONE)) continue;
            seen = OFFER(g);
            take_parts();
            atomic_fetch_sub_explicit(&gate, ONE, memory_order_release);
            idle = now();
        } else if (turns % 64 || now() - idle < SPIN) {
            pause_();
        } else {
            pthread_mutex_lock(&bed);
            atomic_fetch_add(&sleepers, 1);
            if (!offered(atomic_load(&gate), seen)) pthread_cond_wait(&alarm_, &bed);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&bed);
            idle = now();
        }
    }
    return NULL;
}

static void wake(void) {
    if (!atomic_load(&sleepers)) return;
    /* whoever holds the lock looks at the gate once more before it sleeps, or wakes all itself;
     * it may have lost its core: nothing is worth waiting for it */
    if (pthread_mutex_trylock(&bed)) return;
    pthread_cond_broadcast(&alarm_);
    pthread_mutex_unlock(&bed);
}

/* In a forked child only the thread that forked goes on: the pool starts afresh. The memory's
 * lock is held across the fork, so that the child finds its lists whole. */
static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static void before_fork(void) { pthread_mutex_lock(&heap); }
static void after_fork(void) { pthread_mutex_unlock(&heap); }
static void in_child(void) {
    pthread_mutex_unlock(&heap);
    pthread_mutex_init(&owner, NULL);
    pthread_mutex_init(&bed, NULL);
    pthread_cond_init(&alarm_, NULL);
    atomic_store(&sleepers, 0);
    atomic_store(&gate, 0);
    atomic_store(&crowded_until, 0);
    crowd_pause = 0;
    workers = 0;
}
/* The library is linked to nothing, and glibc has pthread_atfork only for programs linked to it. */
typedef void handler(void);
int __register_atfork(handler *, handler *, handler *, void *) __attribute__((weak));
int pthread_atfork(handler *, handler *, handler *) __attribute__((weak));
__attribute__((constructor)) static void watch_forks(void) {
    if (__register_atfork) __register_atfork(before_fork, after_fork, in_child, NULL);
    else if (pthread_atfork) pthread_atfork(before_fork, after_fork, in_child);
}

/* Start a thread with so many bytes of stack; 0 if the system grants none. */
static int start(pthread_t *id, ll stack, void *(*work)(void *), void *given) {
    sigset_t all, old; /* signals are for the threads of the program */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    int failed = pthread_attr_setstacksize(&attributes, (size_t)stack) ||
                 pthread_create(id, &attributes, work, given);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return !failed;
}

/* Have `count` workers, or as many as the system grants. The caller owns the pool. */
static void hire(ll count) {
    for (pthread_t id; workers < count; workers++) {
        if (!start(&id, WORKER_STACK, worker, NULL)) break;
        pthread_detach(id);
    }
}

/* Wait for the threads that came in. They should not need as long as all took until now. */
static void wait_inside(ll until_now) {
    ll begin = now(), late = 0;
    for (ll turns = 1; INSIDE(atomic_load_explicit(&gate, memory_order_acquire)); turns++) {
        if (!late) pause_();
        if (!late && turns % 64 == 0) late = now() - begin > until_now + LATE;
        if (late) nanosleep(&(struct timespec){0, NAP}, NULL); /* its core may be this one */
    }
    if (late) {
        crowd_pause = crowd_pause ? 2 * crowd_pause : LEAST_PAUSE;
        if (crowd_pause > MOST_PAUSE) crowd_pause = MOST_PAUSE;
        atomic_store(&crowded_until, now() + crowd_pause);
    } else if (crowd_pause) {
        crowd_pause -= crowd_pause / 8 + 1;
    }
}

static void run_shared(const step *s, ll threads) {
    ll begin = now();
    ll grain = s->work > PART ? (ll)((double)s->extent * PART / (double)s->work) : s->extent;
    ll share = (s->extent + threads - 1) / threads;
    if (grain > share) grain = share;
    offer.step = *s;
    offer.grain = grain > 1 ? grain : 1;
    offer.threads = threads;
    atomic_store_explicit(&next, 0, memory_order_relaxed);
    uint64_t number = (OFFER(atomic_load(&gate)) + 1) & 0xffffffff;
    if (!number) number = 1;
    atomic_store(&gate, number << 32 | (uint64_t)(threads - 1) << 16 | OPEN);
    if (s->work >= WAKE_FROM) wake();
    take_parts();
    if (INSIDE(atomic_fetch_and(&gate, ~OPEN))) wait_inside(now() - begin);
}

/* The work of the steps that are worth sharing from so many nanoseconds on. */
static ll work_from(ll from, const step *steps, ll count) {
    ll found = 0;
    for (ll i = 0; i < count; i++)
        if (steps[i].work >= from && steps[i].extent > 1) found += steps[i].work;
    return found;
}

/* Run the steps in order on at most `threads` threads, this one among them. */
static void run_here(const step *steps, ll count, ll threads) {
    __auto_type mode = float_mode();
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    ll split_from = SPLIT_FROM, shared = threads > 1 ? work_from(split_from, steps, count) : 0;
    if (shared && atomic_load(&crowded_until) > now()) {
        split_from = SHARE_LATE;
        shared = work_from(split_from, steps, count);
    }
    if (shared && !pthread_mutex_trylock(&owner)) {
        hire(threads - 1);
        if (shared >= WAKE_FROM) wake();
        for (const step *s = steps; s < steps + count; s++) {
            if (s->work >= split_from && s->extent > 1) run_shared(s, threads);
            else s->function(s->buffers, s->variables, 0, s->extent);
        }
        pthread_mutex_unlock(&owner);
    } else {
        for (const step *s = steps; s < steps + count; s++)
            s->function(s->buffers, s->variables, 0, s->extent);
    }
    float_restore(mode);
}

/* ---- stacks
 *
 * A kernel's buffers are on the stack. Threads that a program makes may have a small one: then a
 * thread is made for the call, with room enough. (It takes as long as to wake one.) */

/* The bytes of the stack that this thread has left; 0: nobody knows. */
static ll stack_left(void) {
#if defined(__linux__) || defined(__APPLE__)
    static _Thread_local char *end;
    char *here = __builtin_frame_address(0);
    if (!end) {
#ifdef __APPLE__
        end = (char *)pthread_get_stackaddr_np(pthread_self()) -
              pthread_get_stacksize_np(pthread_self());
#else
        pthread_attr_t attributes;
        void *lowest;
        size_t size;
        if (pthread_getattr_np(pthread_self(), &attributes)) return 0;
        if (!pthread_attr_getstack(&attributes, &lowest, &size)) end = lowest;
        pthread_attr_destroy(&attributes);
#endif
    }
    return end && here > end ? here - end : 0;
#else
    return 0;
#endif
}

typedef struct {
    const step *steps;
    ll count, threads;
} call;

static void *carry_out(void *given) {
    const call *c = given;
    run_here(c->steps, c->count, c->threads);
    return NULL;
}

/* Run the steps on a thread of their own; 0 if the system grants none. */
static int run_apart(const step *steps, ll count, ll threads, ll stack) {
    call c = {steps, count, threads};
    pthread_t id;
    return start(&id, (stack + SPARE + 0xffff) & ~0xffffLL, carry_out, &c) &&
           !pthread_join(id, NULL);
}

/* Run the steps in order, the most of whose buffers are `stack` bytes; 0 if that can't be. */
static int run_steps(const step *steps, ll count, ll threads, ll stack) {
    if (stack > SMALL_STACK && stack_left() < stack + SPARE)
        return run_apart(steps, count, threads, stack);
    run_here(steps, count, threads);
    return 1;
}

/* The same; the nanoseconds they took, or -1. */
ll og_run(const step *steps, ll count, ll threads) {
    ll begin = now(), stack = 0;
    for (ll i = 0; i < count; i++)
        if (steps[i].stack > stack) stack = steps[i].stack;
    return run_steps(steps, count, threads, stack) ? now() - begin : -1;
}

/* Run a list on its inputs; 0 if that can't be. A look at the clock is a good part of what a tiny
 * one takes. */
int og_replay(const list *l) {
    for (const patch *p = l->patches; p < l->patches + l->patch_count; p++)
        l->slots[p->slot] = l->inputs[p->input] + p->offset;
    return run_steps(l->steps, l->count, l->threads, l->stack);
}

ll og_workers(void) { return workers; }

enum { BLOCK = 256 << 10 };

static void copy_blocks(void **buffers, const ll *variables, ll begin, ll end) {
    ll from = begin * BLOCK, to = end * BLOCK;
    if (to > variables[0]) to = variables[0];
    memcpy((char *)buffers[0] + from, (const char *)buffers[1] + from, (size_t)(to - from));
}

/* Copy between buffers that don't overlap; large ones on several threads. */
void og_copy(void *target, void *source, ll bytes, ll threads) {
    void *buffers[] = {target, source};
    step s = {copy_blocks, buffers, &bytes, (bytes + BLOCK - 1) / BLOCK, bytes / 10};
    og_run(&s, 1, threads);
}

/* ---- memory
 *
 * Blocks up to CARVED bytes are cut from regions that are advised to be huge pages, 64-byte
 * aligned, and go back to the free list of their size. Larger ones are mapped on their own, and
 * begin within the first page of a huge page; when freed they are kept for reuse, up to
 * `keep_limit` bytes, the ones freed longest ago unmapped first. A size is rounded up by less than
 * an eighth.
 *
 * Blocks do not all begin at the same place of a page: a kernel that walks through several arrays
 * at one pace would meet the same few sets of the caches with all of them, and loads would wait
 * for stores whose addresses end alike (measured: up to half again the time of an addition). */

#define HUGE_ ((size_t)2 << 20)
#define REGION ((size_t)32 << 20)
#define CARVED HUGE_
#define PAGE ((size_t)4096)
#define APART ((size_t)11 * 64) /* from one block to the next, within a page */
enum { CLASSES = 8 * 64, KEPT = 512 };

typedef struct block {
    struct block *next;
} block;

static block *free_blocks[CLASSES];
static char *region, *region_end;
static size_t place; /* of the latest large block in its page */
static struct {
    char *at;
    size_t size;
} kept[KEPT]; /* oldest first */
static int kept_count;
static size_t kept_bytes, mapped_bytes, keep_limit = (size_t)1 << 30;

static size_t rounded(size_t size, size_t unit, int *class) {
    if (size < unit) size = unit;
    int power = 63 - __builtin_clzll((unsigned long long)(size - 1 ? size - 1 : 1));
    size_t granule = power > 3 ? (size_t)1 << (power - 3) : 1;
    if (granule < unit) granule = unit;
    size = (size + granule - 1) / granule * granule;
    if (class) *class = power * 8 + (int)((size - 1) >> (power > 3 ? power - 3 : 0) & 7);
    return size;
}

static char *map(size_t size) {
    char *at = mmap(NULL, size + HUGE_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    char *aligned = (char *)(((uintptr_t)at + HUGE_ - 1) & ~(uintptr_t)(HUGE_ - 1));
    if (aligned > at) munmap(at, (size_t)(aligned - at));
    munmap(aligned + size, (size_t)(at + HUGE_ - aligned));
#ifdef MADV_HUGEPAGE
    madvise(aligned, size, MADV_HUGEPAGE);
#endif
    mapped_bytes += size;
    return aligned;
}

static void unmap_oldest(size_t until) {
    int gone = 0;
    while (kept_bytes > until) {
        size_t mapped = kept[gone].size + PAGE;
        munmap((char *)((uintptr_t)kept[gone].at & ~(uintptr_t)(HUGE_ - 1)), mapped);
        kept_bytes -= kept[gone++].size;
        mapped_bytes -= mapped;
    }
    kept_count -= gone;
    memmove(kept, kept + gone, (size_t)kept_count * sizeof *kept);
}

static char *map_or_trim(size_t size) {
    char *at = map(size);
    if (!at && kept_count) {
        unmap_oldest(0);
        at = map(size);
    }
    return at;
}

static void *carve(size_t size) {
    int class;
    size = rounded(size, 64, &class);
    block *found = free_blocks[class];
    if (found) {
        free_blocks[class] = found->next;
        return found;
    }
    size_t taken = size < 2 * PAGE ? size : size + APART;
    if ((size_t)(region_end - region) < taken) {
        char *fresh = map_or_trim(REGION);
        if (!fresh) return NULL;
        region = fresh;
        region_end = fresh + REGION;
    }
    char *at = region;
    region += taken;
    return at;
}

/* Memory of at least `size` bytes, NULL where the system has none. Free it with the same size. */
void *og_alloc(size_t size) {
    void *result = NULL;
    pthread_mutex_lock(&heap);
    if (size <= CARVED) {
        result = carve(size);
    } else {
        size = rounded(size, HUGE_, NULL);
        for (int i = kept_count - 1; i >= 0 && !result; i--) {
            if (kept[i].size != size) continue;
            result = kept[i].at;
            kept_bytes -= size;
            memmove(kept + i, kept + i + 1, (size_t)(--kept_count - i) * sizeof *kept);
        }
        if (!result && (result = map_or_trim(size + PAGE))) {
            result = (char *)result + place;
            place = (place + APART) % PAGE;
        }
    }
    pthread_mutex_unlock(&heap);
    return result;
}

void og_free(void *at, size_t size) {
    pthread_mutex_lock(&heap);
    if (size <= CARVED) {
        int class;
        rounded(size, 64, &class);
        ((block *)at)->next = free_blocks[class];
        free_blocks[class] = at;
    } else {
        size = rounded(size, HUGE_, NULL);
        if (kept_count == KEPT) unmap_oldest(kept_bytes - kept[0].size);
        kept[kept_count].at = at;
        kept[kept_count++].size = size;
        kept_bytes += size;
        if (kept_bytes > keep_limit) unmap_oldest(keep_limit);
    }
    pthread_mutex_unlock(&heap);
}

/* Keep at most `limit` bytes of freed large blocks from now on. */
void og_keep(size_t limit) {
    pthread_mutex_lock(&heap);
    keep_limit = limit;
    if (kept_bytes > limit) unmap_oldest(limit);
    pthread_mutex_unlock(&heap);
}

/* Unmap all freed large blocks. */
void og_trim(void) {
    pthread_mutex_lock(&heap);
    unmap_oldest(0);
    pthread_mutex_unlock(&heap);
}

size_t og_mapped(void) { return mapped_bytes; }
size_t og_kept(void) { return kept_bytes; }
