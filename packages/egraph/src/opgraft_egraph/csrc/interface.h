// What callers see of the engine. The build hands this file to cffi as it is, from here to the
// end, so it holds nothing but declarations.
#ifndef OPGRAFT_EGRAPH_INTERFACE_H
#define OPGRAFT_EGRAPH_INTERFACE_H
#include <stdint.h>
// cffi: begin
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;

enum { KIDS = 4, SLOTS = 32, BATCH = 64, CAPTURES = 8, STEPS = 18 };

// Kinds of dtypes.
enum { UNTYPED, VOID, BOOL, SIGNED, UNSIGNED, INDEX, FLOAT };

// What facts.c and fold.c know of a head; all else is OPAQUE.
enum {
    OPAQUE, CONST, LEAF, ADD, MUL, FDIV, IDIV, MOD, CDIV, CMOD, MAX, MIN, AND, OR, XOR, SHL, SHR,
    LESS, UNEQUAL, EQUAL, WHERE, CAST, SQRT, TRUNC, SAME, LANES
};

// Kinds of constants. NUMBER_FLOAT: `value` holds the bits of a double. ELSEWHERE: only the
// caller knows the value; `value` tells two of them apart.
enum { NO_NUMBER, NUMBER_INT, NUMBER_FLOAT, NUMBER_BOOL, ELSEWHERE };

// Where a step of a plan takes its nodes from.
enum { FROM_CHANGED, FROM_CLASS, FROM_CHILD, FROM_FACTS };

// Guards on a class.
enum { GUARD_DTYPE, GUARD_CONSTANT, GUARD_INT, GUARD_FLOAT, GUARD_BOOL, GUARD_NONZERO };

// Why a run stopped.
enum {
    RUNNING, SATURATED, STOP_NODES, STOP_ROUNDS, STOP_SECONDS, CALLBACKS, CONFLICT_FOUND,
    OUT_OF_MEMORY
};

enum { DIFFERENT_CONSTANTS = 1, DIFFERENT_DTYPES, DISJOINT_INTERVALS, DISJOINT_REMAINDERS };

// Edges of the proof forest.
enum { BY_CONGRUENCE, BY_RULE, BY_CALLER, BY_VALUE };

// What instructions of a right side make.
enum { MAKE_NODE, MAKE_CONSTANT, MAKE_NUMBER };

// Code of numbers in tests and right sides, for a stack machine.
enum {
    PUSH, PUSH_LOW, PUSH_HIGH, PUSH_VALUE, PUSH_MODULUS, PUSH_REST, PUSH_CONSTANT, PUSH_NONZERO,
    N_ADD, N_SUB, N_MUL, N_DIV, N_MOD, N_NEG, N_ABS, N_MAX, N_MIN, N_AND, N_OR, N_XOR, N_SHL,
    N_SHR, N_LESS, N_EQUAL, N_NOT, N_GCD
};

typedef struct {
    i32 kind, bits, exponent, mantissa, lanes;
    u64 sets;          // which sets of dtypes of the patterns it is in
} DType;

typedef struct {
    i32 meaning, dtype, arity, commutative;
    i32 symbol;        // of the program, or -1
    i32 number;        // of a CONST: kind of its value
    i64 value;
    i64 low, high;     // of a LEAF; the least and greatest i64 stand for "not limited"
    double cost;
} Head;

typedef struct {
    i64 low, high;
    i64 value;
    i64 modulus, rest; // the value is `rest` modulo `modulus`; modulus 0: it is `rest`
    u16 dtype;
    u8 number, nonzero;
    u32 refined;
} Fact;

typedef struct {
    u8 source, old, swap, open, arity, position, out, row;
    u8 kid[KIDS];
    u8 known, each, guards, reserved;
    u16 selector, first_guard;
} Step;

typedef struct {
    u32 first_step, steps;
} Plan;

typedef struct {
    u8 kind, slot;
    u16 set;
    i64 number;
} Guard;

typedef struct {
    u32 first_plan, plans;
    u8 slots, root, captures, terms;
    u8 capture[CAPTURES];
    u32 first_variant, variants;
    u32 first_atom, atoms;  // the left side from the inside out, for proofs
} Rule;

typedef struct {
    u8 row, out, arity, reserved;
    u8 kid[KIDS];
} Atom;

typedef struct {
    u16 dtype[CAPTURES];
    u32 first_path, paths;  // none: the caller's business
} Variant;

typedef struct {
    u32 first_test, tests;
    u32 first_instruction, instructions;
    i32 result;             // slot; -1: the rule declines
} Path;

typedef struct {
    u32 first, length, expected;
} Test;

typedef struct {
    u8 kind, out, arity, number;
    u8 kid[KIDS];
    u32 symbol;             // MAKE_NODE
    u32 dtype;              // MAKE_CONSTANT, MAKE_NUMBER
    i64 value;              // MAKE_CONSTANT
    u32 first, length;      // MAKE_NUMBER: code
} Instruction;

typedef struct {
    const Rule *rules;
    const Plan *plans;
    const Step *steps;
    const Guard *guards;
    const Atom *atoms;
    const Variant *variants;
    const Path *paths;
    const Test *tests;
    const Instruction *instructions;
    const i64 *code;
    const DType *dtypes;
    const Head *symbols;
    const u64 *symbol_selects;
    u32 rule_count, symbol_count, dtype_count, selector_words;
} Program;

typedef struct {
    u32 nodes, rounds, matches, ban_rounds;
    double seconds;         // 0: no limit
    double power_of_two;    // price of a division or remainder by a power of two; below 0: as others
} Limits;

typedef struct {
    u32 kind, rule, a, b;
    u32 slot[SLOTS];
} Conflict;

typedef struct {
    u64 matches, added, united;
    double seconds;
    u32 bans;
} Tally;

typedef struct {
    u32 nodes, live, classes, ids, heads, round, stop, now;
    u64 adds, unions, rekeyed, matches, bytes;
} Counts;

typedef struct EGraph EGraph;

EGraph *eg_new(const Program *program, const Limits *limits, u32 priced, u32 explain);
void eg_free(EGraph *g);
void eg_program(EGraph *g, const Program *program);
void eg_limits(EGraph *g, const Limits *limits);
u32 eg_head(EGraph *g, const Head *head, const u64 *selects);
u32 eg_symbol_head(EGraph *g, u32 symbol);
void eg_prices(EGraph *g, const double *prices, u32 count);
int eg_bind(EGraph *g, u32 symbol, u32 head);
u32 eg_add(EGraph *g, u32 head, const u32 *kids);
u32 eg_constant(EGraph *g, u32 dtype, u32 kind, i64 value);
u32 eg_find(EGraph *g, u32 cls);
int eg_unite(EGraph *g, u32 a, u32 b, u32 rule, u32 kind, u32 data);
void eg_touch(EGraph *g, u32 cls);
int eg_refine(EGraph *g, u32 cls, const Fact *by);
int eg_rebuild(EGraph *g);
u32 eg_run(EGraph *g);
u32 eg_over(EGraph *g);
Counts eg_counts(EGraph *g);
i64 eg_held(void);
Tally eg_tally(const EGraph *g, u32 rule);
u32 eg_blame(EGraph *g, u32 cls);
Conflict eg_conflict(const EGraph *g);
const Fact *eg_fact(EGraph *g, u32 cls);
u32 eg_ids(const EGraph *g);
u32 eg_heads(const EGraph *g);
const Head *eg_head_at(const EGraph *g, u32 head);
const u32 *eg_buffer(EGraph *g, u64 *count);
void eg_buffer_done(EGraph *g);
u32 eg_best(EGraph *g, u32 cls, double *cost);
u32 eg_term_stamp(const EGraph *g, u32 cls);
u32 eg_node(EGraph *g, u32 id, u32 *out, u32 room);
u64 eg_dump(EGraph *g, u32 *out, u64 room);
int eg_extract(EGraph *g, const double *prices, const u32 *roots, u32 count, u32 dag, u32 *choice,
               double *cost);
u64 eg_chosen(EGraph *g, const u32 *choice, const u32 *roots, u32 count, u32 *out, u64 room);
double eg_bound(EGraph *g, const double *prices, const u32 *roots, u32 count, double best,
                u64 looks);
void eg_node_prices(const EGraph *g, double *out);
u32 eg_term(const EGraph *g, u32 term, u32 *out, u32 room);
// cffi: end
#endif
