// Arrays that grow.
//
// A page that is touched for the first time costs the system more than all that the engine does in
// it, so what is behind the first SMALL_PAGES bytes of an array lies in large pages where there are some,
// pages are asked for some at a time before they are touched, and large arrays grow by moving pages,
// not bytes. In front of each array stands how many bytes it has, LARGE or more being mapped pages,
// and how many of them have been asked for.
#include "egraph.h"
#if defined(__linux__) && !defined(EGRAPH_PLAIN_MEMORY)
#include <sys/mman.h>
#define MAPPED 1
#else
#define MAPPED 0
#endif

enum { HEADER = 64, PAGE = 4096, LARGE_PAGE = 1 << 21, LARGE = 1 << 18, SMALL_PAGES = 1 << 22 };

// Bytes that all graphs of the process hold: what is not given back can be seen.
static i64 held;

static void hold(i64 bytes) {
#ifdef __GNUC__
    __atomic_fetch_add(&held, bytes, __ATOMIC_RELAXED);
#else
    held += bytes;
#endif
}

i64 eg_held(void) { return held; }

typedef struct {
    size_t size, ready;
} Extent;

static Extent *extent_of(void *array) { return (Extent *)((u8 *)array - HEADER); }

#if MAPPED
static size_t whole_pages(size_t size) { return (size + LARGE_PAGE - 1) & ~(size_t)(LARGE_PAGE - 1); }

// Room for so many bytes, of which the one behind `before` is where a large page begins.
static u8 *reserve(size_t size, size_t before) {
    const size_t all = size + LARGE_PAGE + before;
    u8 *made = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return NULL;
    const size_t skip = -((uintptr_t)made + before) & (LARGE_PAGE - 1), rest = all - skip - size;
    if (skip) munmap(made, skip);
    if (rest) munmap(made + skip + size, rest);
    return made + skip;
}

static int move(u8 *from, size_t size, u8 *to) {
    return mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // since Linux 5.14; elsewhere pages come when they are touched
#endif

// Has bytes up to `wanted` in memory, and somewhat more.
static void prepare(Extent *extent, size_t wanted) {
    size_t end = extent->ready + most((i64)extent->ready / 16, 16 * PAGE);
    if (end < wanted) end = wanted;
    end = (end + PAGE - 1) & ~(size_t)(PAGE - 1);
    if (end > extent->size) end = extent->size;
    const size_t begin = extent->ready & ~(size_t)(PAGE - 1);
    madvise((u8 *)extent + begin, end - begin, MADV_POPULATE_WRITE);
    extent->ready = end;
}

static void advise(u8 *base, size_t from, size_t size) {
#ifdef MADV_HUGEPAGE
    if (size > from) madvise(base + from, size - from, MADV_HUGEPAGE);
#else
    (void)base, (void)from, (void)size;
#endif
}
#endif

static void *with_size(u8 *base, size_t size, size_t before, size_t ready) {
    if (!base) return NULL;
    hold((i64)size - (i64)before);
    *(Extent *)base = (Extent){size, ready};
    return base + HEADER;
}

// So many zero bytes, read and written at random; NULL: there is no memory.
void *eg_zeros(size_t bytes) {
    size_t size = bytes + HEADER;
#if MAPPED
    if (size >= LARGE) {
        // the size stands in a page by itself, so that the array is no more than its large pages
        size = (bytes + 2 * PAGE - 1) & ~(size_t)(PAGE - 1);
        u8 *base = reserve(size, PAGE);
        if (!base) return NULL;
        if (bytes >= LARGE_PAGE) advise(base, PAGE, size);
        madvise(base, size, MADV_POPULATE_WRITE);
        return with_size(base + PAGE - HEADER, size, 0, size);
    }
#endif
    return with_size(calloc(1, size), size, 0, size);
}

void eg_release(void *array) {
    if (!array) return;
    Extent *extent = extent_of(array);
    hold(-(i64)extent->size);
#if MAPPED
    if (extent->size >= LARGE) {
        munmap((void *)((uintptr_t)extent & ~(uintptr_t)(PAGE - 1)), extent->size);
        return;
    }
#endif
    free(extent);
}

// The array with room for so many bytes; NULL, and the array as it was: there is no memory.
static void *resize(void *array, size_t bytes) {
    const size_t old = array ? extent_of(array)->size : 0;
    size_t size = bytes + HEADER;
#if MAPPED
    if (size >= LARGE) {
        // what is never touched takes no memory
        size = whole_pages(2 * size);
        if (old >= LARGE) {
            u8 *base = reserve(size, 0), *from = (u8 *)extent_of(array);
            if (!base) return NULL;
            // what is in small pages and what is in large ones have to be moved by themselves
            const size_t small = old < SMALL_PAGES ? old : SMALL_PAGES;
            if (!move(from, small, base)) {
                munmap(base, size);
                return NULL;
            }
            if (old > small && !move(from + small, old - small, base + small)) {
                // what was moved goes back
                move(base, small, from);
                munmap(base + small, size - small);
                return NULL;
            }
            advise(base, old > SMALL_PAGES ? old : SMALL_PAGES, size);
            return with_size(base, size, old, ((Extent *)base)->ready);
        }
        u8 *base = reserve(size, 0);
        if (!base) return NULL;
        advise(base, SMALL_PAGES, size);
        if (array) {
            memcpy(base, extent_of(array), old);
            free(extent_of(array));
        }
        return with_size(base, size, old, 0);
    }
#endif
    return with_size(realloc(array ? extent_of(array) : NULL, size), size, old, size);
}

void no_memory(EGraph *g) {
    g->failed = 1;
    g->stop = OUT_OF_MEMORY;
    longjmp(g->escape, 1);
}

// One more item for one of several arrays of the same room: the least of what they have then is in
// `least`. A failure in between leaves all of them as large as they said.
void *grow_beside(EGraph *g, void *array, u32 room, u32 *least, size_t item) {
    void *made = eg_grow(g, array, &room, (u64)room + 1, item);
    if (room < *least) *least = room;
    return made;
}

void *eg_grow(EGraph *g, void *array, u32 *room, u64 wanted, size_t item) {
    if (array && wanted <= *room) return array;
    u64 size = *room ? *room : 16;
    while (size < wanted) size += size >> 1;
    if (size >= NONE) no_memory(g);
    void *made = array;
    if (!array || wanted * item + HEADER > extent_of(array)->size) made = resize(array, size * item);
    if (!made) no_memory(g);
#if MAPPED
    if (extent_of(made)->size >= LARGE) prepare(extent_of(made), wanted * item + HEADER);
#endif
    size = (extent_of(made)->ready - HEADER) / item;
    *room = size < NONE ? (u32)size : NONE - 1;
    return made;
}
