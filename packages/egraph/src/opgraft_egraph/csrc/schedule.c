// Rounds: every rule searches one snapshot and is applied at once, then the graph is rebuilt.
// Limits on nodes, rounds, seconds and matches are looked at within a round.
#include <time.h>

#include "egraph.h"

double clock_now(void) {
    struct timespec t;
#ifdef CLOCK_MONOTONIC
    clock_gettime(CLOCK_MONOTONIC, &t);
#else
    timespec_get(&t, TIME_UTC);
#endif
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

EGraph *eg_new(const Program *program, const Limits *limits, u32 priced, u32 explain) {
    EGraph *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->program = program;
    g->words = program->selector_words;
    g->rule = NONE;
    g->unlinked = 1;
    g->priced = priced;
    for (u32 i = 0; i < program->rule_count; i++) g->asked |= program->rules[i].terms;
    g->explain = explain;
    g->states = calloc(program->rule_count ? program->rule_count : 1, sizeof(RuleState));
    g->state_count = program->rule_count;
    eg_limits(g, limits);
    if (!g->states) {
        free(g);
        return NULL;
    }
    return g;
}

void eg_limits(EGraph *g, const Limits *limits) {
    g->limits = *limits;
    g->deadline = limits->seconds > 0 ? clock_now() + limits->seconds : 0;
    if (!g->failed && g->stop != CONFLICT_FOUND) g->stop = RUNNING;
}

void eg_program(EGraph *g, const Program *program) {
    // the same rules; there may be more dtypes, symbols and variants
    g->program = program;
    g->batch_path = NULL;
}

void eg_free(EGraph *g) {
    if (!g) return;
    void *all[] = {
        g->nodes, g->stamp, g->wide, g->table, g->heads, g->selects, g->masks, g->symbols, g->constants, g->parent, g->classes, g->facts,
        g->plain, g->lost, g->fact_stamp, g->term_stamp, g->best, g->losers, g->touched, g->changed,
        g->renewed, g->rows, g->uses, g->row_span, g->use_span, g->delta, g->delta_first, g->extra,
        g->links, g->buffer, g->queue, g->queued, g->terms, g->term_kids, g->term_table,
        g->node_term,
    };
    for (u32 i = 0; i < sizeof all / sizeof *all; i++) eg_release(all[i]);
    free(g->states);
    free(g);
}

// One round on the present snapshot.
static void search_all(EGraph *g) {
    for (u32 rule = 0; rule < g->program->rule_count && g->stop == RUNNING; rule++) {
        RuleState *state = g->states + rule;
        if (state->banned > g->round) continue;
        const double begin = clock_now();
        state->seen = 0;
        search(g, rule);
        state->seconds += clock_now() - begin;
        if (state->banned <= g->round && g->stop == RUNNING) state->since = g->now;
    }
    g->round++;
}

// When nothing else is left to do, the rule that would be back first is back now.
static int recall(EGraph *g) {
    u32 first = NONE;
    for (u32 rule = 0; rule < g->program->rule_count; rule++) {
        const u32 until = g->states[rule].banned;
        if (until > g->round && until < first) first = until;
    }
    if (first == NONE) return 0;
    const u32 by = first - g->round;
    for (u32 rule = 0; rule < g->program->rule_count; rule++) {
        RuleState *state = g->states + rule;
        if (state->banned > g->round) state->banned -= by;
    }
    return 1;
}

// Rounds until there is a reason to stop, which it returns; CALLBACKS: matches are in the buffer
// for the caller, who calls again when it has dealt with them.
u32 eg_run(EGraph *g) {
    if (g->failed || setjmp(g->escape)) return OUT_OF_MEMORY;
    while (g->stop == RUNNING) {
        if (g->round && progress(g) == g->mark && !recall(g)) {
            g->stop = SATURATED;
        } else if (g->limits.rounds && g->round >= g->limits.rounds) {
            g->stop = STOP_ROUNDS;
        } else if (g->deadline > 0 && clock_now() > g->deadline) {
            g->stop = STOP_SECONDS;
        } else {
            ensure_linked(g);
            if (g->stop != RUNNING) break;
            g->mark = progress(g);
            search_all(g);
            if (g->buffer_count && g->stop == RUNNING) return CALLBACKS;
        }
    }
    if (g->stop != CONFLICT_FOUND && progress(g) != g->built) rebuild(g, 0);
    return g->stop;
}

// Whether a limit has been reached, for callers that work through a buffer.
u32 eg_over(EGraph *g) {
    if (g->stop == RUNNING) {
        if (g->limits.nodes && g->live > g->limits.nodes) g->stop = STOP_NODES;
        else if (g->deadline > 0 && clock_now() > g->deadline) g->stop = STOP_SECONDS;
    }
    return g->stop;
}

const u32 *eg_buffer(EGraph *g, u64 *count) {
    *count = g->buffer_count;
    return g->buffer;
}

void eg_buffer_done(EGraph *g) { g->buffer_count = 0; }

Tally eg_tally(const EGraph *g, u32 rule) {
    const RuleState *s = g->states + rule;
    return (Tally){s->matches, s->added, s->united, s->seconds, s->bans};
}

Counts eg_counts(EGraph *g) {
    u32 classes = 0;
    for (u32 i = 0; i < g->class_count; i++) classes += g->parent[i] == i;
    const u64 bytes =
        sizeof *g + g->node_room * (sizeof(Node) + 4ull) + g->wide_room * 4ull + g->table_room * (u64)sizeof(Slot) +
        g->class_room * (sizeof(Class) + 4ull + (g->asked ? sizeof(Best) + 4 : 0)) + g->fact_room * (u64)sizeof(Fact) +
        g->row_room * (u64)sizeof(Row) + g->use_room * (u64)sizeof(Use) + g->delta_room * (u64)sizeof(Change) +
        g->row_span_room * 2 * (u64)sizeof(Span) + g->link_room * (u64)sizeof(Link) + g->buffer_room * 4 +
        g->term_room * (u64)sizeof(Term);
    return (Counts){g->node_count, g->live, classes, g->class_count, g->head_count, g->round, g->stop,
                    g->now, g->adds, g->unions, g->rekeyed, g->matches, bytes};
}
