/* What Python sees of runtime.c. Pointers are numbers here, so that Python hands over ints.
 * After a change: python packages/core/tests/devices/abi.py writes _abi.py anew. */
typedef struct {
    unsigned long long function;
    unsigned long long buffers;
    unsigned long long variables;
    long long extent;
    long long work;
    long long stack;
} step;
typedef struct {
    long long slot, input, offset;
} patch;
typedef struct {
    step *steps;
    long long count;
    unsigned long long *slots;
    unsigned long long *inputs;
    patch *patches;
    long long patch_count;
    long long threads;
    long long stack;
} list;
long long og_run(const step *steps, long long count, long long threads);
int og_replay(const list *l);
long long og_workers(void);
void og_copy(unsigned long long target, unsigned long long source, long long bytes,
             long long threads);
unsigned long long og_alloc(size_t size);
void og_free(unsigned long long at, size_t size);
void og_keep(size_t limit);
void og_trim(void);
size_t og_mapped(void);
size_t og_kept(void);

/* The system's loader. */
void *dlopen(const char *path, int flags);
unsigned long long dlsym(void *handle, const char *name);
int dlclose(void *handle);
char *dlerror(void);
