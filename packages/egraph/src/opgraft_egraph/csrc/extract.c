// The cheapest term of every class, and choices that pay for a shared term once.
//
// Terms are ordered by cost, then by height, so a term is always strictly above its parts: also
// where prices are 0 or a cost overflows. So following the choices never runs in a circle.
#include <math.h>

#include "egraph.h"

static int is_power(const Fact *f) {
    return f->number == NUMBER_INT && f->value > 0 && !(f->value & (f->value - 1));
}

// The price of a node by itself.
static double price_of(const EGraph *g, const Node *n) {
    const Head *h = g->heads + n->head;
    if ((h->meaning == IDIV || h->meaning == MOD) && g->limits.power_of_two >= 0 &&
        g->limits.power_of_two < h->cost && is_power(known(g, n->kid[1])))
        return g->limits.power_of_two;
    return h->cost;
}

static int better(const Best *a, const Best *b) {
    return b->node == NONE || a->cost < b->cost || (a->cost == b->cost && a->height < b->height);
}

// What a node costs as a tree. False while a child has no term yet.
static int tree(const EGraph *g, const Best *best, u32 id, double price, Best *made) {
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
    double cost = price;
    u32 height = 0;
    for (u32 i = 0; i < arity; i++) {
        const Best *kid = best + kids[i];
        if (kid->node == NONE) return 0;
        cost += kid->cost;
        if (kid->height >= height) height = kid->height + 1;
    }
    *made = (Best){cost > 1e300 ? 1e300 : cost, height, id};
    return 1;
}

// ---- kept up to date from round to round

void renew(EGraph *g, u32 cls) {
    if (g->term_stamp[cls] == g->now) return;
    g->term_stamp[cls] = g->now;
    ROOM(g, renewed, renewed_room, (u64)g->renewed_count + 1);
    g->renewed[g->renewed_count++] = cls;
}

static void enqueue(EGraph *g, u32 cls) {
    if (g->queued[cls]) return;
    g->queued[cls] = 1;
    ROOM(g, queue, queue_room, (u64)g->queue_count + 1);
    g->queue[g->queue_count++] = cls;
}

static void offer(EGraph *g, u32 id) {
    const Node *n = g->nodes + id;
    Best made;
    if (!tree(g, g->best, id, price_of(g, n), &made)) return;
    Best *own = g->best + n->cls;
    if (!better(&made, own)) return;
    *own = made;
    renew(g, n->cls);
    enqueue(g, n->cls);
}

void relax(EGraph *g) {
    const u64 before = g->news;
    ROOM(g, queued, queued_room, g->class_count);
    memset(g->queued, 0, g->class_count);
    g->queue_count = 0;
    for (u32 i = 0; i < g->linked_classes; i++) {
        Best *own = g->best + i;
        while (own->node != NONE && g->nodes[own->node].flags & DEAD) own->node = g->stamp[own->node];
    }
    // unions have renewed some, and a constant makes a division by it cheaper
    for (u32 i = 0; i < g->renewed_count; i++) {
        g->renewed[i] = find(g, g->renewed[i]);
        enqueue(g, g->renewed[i]);
    }
    for (u32 i = 0; i < g->changed_count; i++) {
        renew(g, find(g, g->changed[i]));
        enqueue(g, find(g, g->changed[i]));
    }
    for (u32 i = 0; i < g->delta_first[g->linked_heads]; i++) offer(g, g->delta[i].id);
    for (u32 k = 0; k < g->queue_count; k++) {
        const u32 cls = g->queue[k];
        g->queued[cls] = 0;
        for (u32 i = g->use_span[cls].first; i < g->use_span[cls + 1].first; i++) offer(g, g->uses[i].id);
    }
    // a term changes with the terms it is made of
    for (u32 k = 0; k < g->renewed_count; k++) {
        const u32 cls = g->renewed[k];
        for (u32 i = g->use_span[cls].first; i < g->use_span[cls + 1].first; i++) {
            const Node *n = g->nodes + g->uses[i].id;
            if (g->best[n->cls].node == g->uses[i].id) renew(g, n->cls);
        }
    }
    g->news = before + g->renewed_count;
}

// Nobody has asked for terms before: those of all that the last rebuild saw.
static void price_all(EGraph *g) {
    ROOM(g, queued, queued_room, g->class_count);
    memset(g->queued, 0, g->class_count);
    g->queue_count = 0;
    for (u32 i = 0; i < g->class_count; i++) {
        g->best[i] = (Best){-1.0, 0, NONE};
        g->term_stamp[i] = g->now;
    }
    for (u32 id = 0; id < g->linked; id++) {
        if (!(g->nodes[id].flags & DEAD)) offer(g, id);
    }
    for (u32 k = 0; k < g->queue_count; k++) {
        const u32 cls = g->queue[k];
        g->queued[cls] = 0;
        for (u32 i = g->use_span[cls].first; i < g->use_span[cls + 1].first; i++) offer(g, g->uses[i].id);
    }
}

static int begin_terms(EGraph *g) {
    if (setjmp(g->escape)) return 0;
    // between a search and the next rebuild the arrays are those that the caller's matches are from
    if (g->unlinked) ensure_linked(g);
    keep_terms(g);
    g->stale = 0;
    price_all(g);
    return 1;
}

// As the last rebuild left it, also while unions have been made since: `cls` and the children of
// the node are ids that were canonical then, and choices run in no circle.
u32 eg_best(EGraph *g, u32 cls, double *cost) {
    if (!g->asked || g->stale) {
        const u32 rebuilt = g->unlinked;
        if (!begin_terms(g)) return NONE;
        if (rebuilt) cls = find(g, cls);
    }
    const Best *own = g->best + cls;
    u32 id = own->node;
    while (id != NONE && g->nodes[id].flags & DEAD) id = g->stamp[id];
    *cost = own->cost;
    return id;
}

u32 eg_term_stamp(const EGraph *g, u32 cls) { return g->asked ? g->term_stamp[cls] : 0; }

// ---- once, at the end

static void cheapest_trees(const EGraph *g, const double *prices, Best *best, u32 *queue, u8 *queued) {
    const u32 classes = g->class_count;
    u64 first = 0, count = 0;
    for (u32 i = 0; i < classes; i++) best[i] = (Best){0, 0, NONE};
    memset(queued, 0, classes);
    for (u32 id = 0; id < g->node_count; id++) {
        const Node *n = g->nodes + id;
        Best made;
        if (n->flags & DEAD || !tree(g, best, id, prices[id], &made) || !better(&made, best + n->cls)) continue;
        best[n->cls] = made;
        if (!queued[n->cls]) {
            queued[n->cls] = 1;
            queue[count++ % classes] = n->cls;
        }
    }
    while (first < count) {
        const u32 cls = queue[first++ % classes];
        queued[cls] = 0;
        for (u32 i = g->use_span[cls].first; i < g->use_span[cls + 1].first; i++) {
            const u32 id = g->uses[i].id, own = g->nodes[id].cls;
            Best made;
            if (!tree(g, best, id, prices[id], &made) || !better(&made, best + own)) continue;
            best[own] = made;
            if (!queued[own]) {
                queued[own] = 1;
                queue[count++ % classes] = own;
            }
        }
    }
}

typedef struct {
    u32 *members, count, node;  // classes whose terms are part of the term
    double total;
} Chosen;

typedef struct {
    const EGraph *g;
    const double *prices;
    Chosen *chosen;
    u32 *mark, epoch, *list;
    u64 looked, kept;  // at members, and how many are held now
} Dag;

// Sets of members grow with the square of a chain's length: past these, trees will do.
enum { MOST_KEPT = 1 << 22, MOST_LOOKED = 1 << 26 };

// The price of a node with its children's present terms, everything in them once.
static int gather(Dag *d, u32 id, double *total, u32 *count) {
    const EGraph *g = d->g;
    const Node *n = g->nodes + id;
    const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
    d->epoch++;
    *total = d->prices[id];
    *count = 0;
    for (u32 i = 0; i < arity; i++) {
        const Chosen *kid = d->chosen + kids[i];
        if (kid->node == NONE) return 0;
        d->looked += kid->count;
        for (u32 k = 0; k < kid->count; k++) {
            const u32 cls = kid->members[k];
            if (cls == n->cls) return 0;
            if (d->mark[cls] == d->epoch) continue;
            d->mark[cls] = d->epoch;
            d->list[(*count)++] = cls;
            *total += d->prices[d->chosen[cls].node];
        }
    }
    d->list[(*count)++] = n->cls;
    return 1;
}

// The cost of what the choices make of the roots, everything once; below 0 if they run in a
// circle or lack a class. Depth first, without recursion.
static double price_choices(const EGraph *g, const double *prices, const u32 *choice, const u32 *roots,
                            u32 count, u8 *state, u32 *stack, u32 *place) {
    double total = 0;
    memset(state, 0, g->class_count);
    for (u32 r = 0; r < count; r++) {
        u32 top = 0;
        if (state[roots[r]]) continue;
        stack[top] = roots[r];
        place[top++] = 0;
        state[roots[r]] = 1;
        while (top) {
            const u32 cls = stack[top - 1], id = choice[cls];
            if (id == NONE) return -1;
            const Node *n = g->nodes + id;
            const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
            if (place[top - 1] == arity) {
                state[cls] = 2;
                total += prices[id];
                top--;
                continue;
            }
            const u32 kid = kids[place[top - 1]++];
            if (state[kid] == 1) return -1;
            if (state[kid]) continue;
            state[kid] = 1;
            stack[top] = kid;
            place[top++] = 0;
        }
    }
    return total;
}

// Greedy: each class takes the node whose term, shared parts counted once, is cheapest, until
// nothing changes. (The method that the public extraction benchmark calls greedy-dag.)
static int greedy_dag(Dag *d, const Best *best, u32 *choice, u32 *queue, u8 *queued) {
    const EGraph *g = d->g;
    const u32 classes = g->class_count;
    u64 first = 0, count = 0, steps = 0;
    const u64 limit = (u64)classes * 64 + 4096;
    for (u32 i = 0; i < classes; i++) d->chosen[i] = (Chosen){NULL, 0, NONE, 0};
    memset(queued, 0, classes);
    u64 pass = 0;
    for (;;) {
        u32 id;
        u32 from = 0, until;
        const Use *uses = NULL;
        if (pass == 0) until = g->node_count;
        else {
            if (first == count || steps > limit) break;
            const u32 cls = queue[first++ % classes];
            queued[cls] = 0;
            from = g->use_span[cls].first;
            until = g->use_span[cls + 1].first;
            uses = g->uses;
        }
        for (u32 at = from; at < until; at++) {
            id = uses ? uses[at].id : at;
            const Node *n = g->nodes + id;
            if (n->flags & DEAD) continue;
            double total;
            u32 members;
            steps++;
            if (!gather(d, id, &total, &members)) continue;
            Chosen *own = d->chosen + n->cls;
            if (own->node != NONE && total >= own->total - 1e-9) continue;
            d->kept += members - own->count;
            if (d->kept > MOST_KEPT || d->looked > MOST_LOOKED) return 0;
            u32 *kept = realloc(own->members, members * sizeof(u32));
            if (!kept) return 0;
            memcpy(kept, d->list, members * sizeof(u32));
            *own = (Chosen){kept, members, id, total};
            if (!queued[n->cls]) {
                queued[n->cls] = 1;
                queue[count++ % classes] = n->cls;
            }
        }
        pass++;
    }
    for (u32 i = 0; i < classes; i++) choice[i] = d->chosen[i].node != NONE ? d->chosen[i].node : best[i].node;
    return 1;
}

// Whether any class below the roots has a second node to choose.
static int has_alternatives(const EGraph *g, const u32 *choice, const u32 *roots, u32 count, u8 *seen,
                            u32 *stack) {
    u32 top = 0;
    memset(seen, 0, g->class_count);
    for (u32 i = 0; i < count; i++) {
        if (seen[roots[i]]) continue;
        seen[roots[i]] = 1;
        stack[top++] = roots[i];
    }
    while (top) {
        const u32 cls = stack[--top];
        if (g->row_span[cls + 1].first - g->row_span[cls].first > 1) return 1;
        if (choice[cls] == NONE) continue;
        const Node *n = g->nodes + choice[cls];
        const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
        for (u32 i = 0; i < arity; i++) {
            if (seen[kids[i]]) continue;
            seen[kids[i]] = 1;
            stack[top++] = kids[i];
        }
    }
    return 0;
}

// The price of each node by its id; 0 for those that are dead.
void eg_node_prices(const EGraph *g, double *out) {
    for (u32 id = 0; id < g->node_count; id++)
        out[id] = g->nodes[id].flags & DEAD ? 0 : price_of(g, g->nodes + id);
}

// A node for each class (NONE where it has no finite term), and what they cost for the roots.
// `prices`: of each node; NULL: of its head. `dag`: shared terms are paid once. The answer is
// never above that of the cheapest trees. False: out of memory.
int eg_extract(EGraph *g, const double *prices, const u32 *roots, u32 count, u32 dag, u32 *choice,
               double *cost) {
    if (!eg_linked(g)) return 0;
    const u64 n = (u64)g->class_count + 1;
    double *own = prices ? NULL : malloc(((u64)g->node_count + 1) * sizeof(double));
    Best *best = malloc(n * sizeof(Best));
    u32 *queue = malloc(n * sizeof(u32)), *place = malloc(n * sizeof(u32)), *wanted = malloc((count + 1u) * sizeof(u32));
    u8 *state = malloc(n);
    Dag d = {g, prices, NULL, NULL, 0, NULL, 0, 0};
    int done = 0;
    if ((!prices && !own) || !best || !queue || !place || !wanted || !state) goto out;
    if (!prices) {
        eg_node_prices(g, own);
        prices = d.prices = own;
    }
    for (u32 i = 0; i < count; i++) wanted[i] = find(g, roots[i]);
    cheapest_trees(g, prices, best, queue, state);
    for (u32 i = 0; i < g->class_count; i++) choice[i] = best[i].node;
    *cost = 0;
    if (dag && !has_alternatives(g, choice, wanted, count, state, queue)) {
        *cost = price_choices(g, prices, choice, wanted, count, state, queue, place);
    } else if (dag) {
        *cost = price_choices(g, prices, choice, wanted, count, state, queue, place);
        d.chosen = calloc(n, sizeof(Chosen));
        d.mark = calloc(n, sizeof(u32));
        d.list = malloc(n * sizeof(u32));
        u32 *other = malloc(n * sizeof(u32));
        if (d.chosen && d.mark && d.list && other && greedy_dag(&d, best, other, queue, state)) {
            const double found = price_choices(g, prices, other, wanted, count, state, queue, place);
            if (found >= 0 && (*cost < 0 || found < *cost - 1e-9)) {
                memcpy(choice, other, g->class_count * sizeof(u32));
                *cost = found;
            }
        }
        if (d.chosen)
            for (u32 i = 0; i < g->class_count; i++) free(d.chosen[i].members);
        free(other);
    } else {
        for (u32 i = 0; i < count; i++) *cost += best[wanted[i]].cost;
    }
    done = 1;
out:
    free(own);
    free(best);
    free(queue);
    free(place);
    free(wanted);
    free(state);
    free(d.chosen);
    free(d.mark);
    free(d.list);
    return done;
}

// The chosen nodes that the roots need, each behind those below it, as eg_dump shows nodes. Returns
// how many numbers that takes; 0: out of memory, or a class without a node, which `out` begins with.
u64 eg_chosen(EGraph *g, const u32 *choice, const u32 *roots, u32 count, u32 *out, u64 room) {
    const size_t classes = (size_t)g->class_count + 1;
    u8 *seen = calloc(classes, 1);
    u32 *stack = malloc(classes * sizeof(u32)), *place = malloc(classes * sizeof(u32));
    u64 at = 0;
    for (u32 r = 0; r < count && seen && stack && place; r++) {
        u32 top = 0;
        const u32 root = find(g, roots[r]);
        if (seen[root]) continue;
        seen[root] = 1;
        stack[top] = root;
        place[top++] = 0;
        while (top) {
            const u32 cls = stack[top - 1], id = choice[cls];
            if (id == NONE) {
                if (room) out[0] = cls;
                at = 0;
                goto out;
            }
            const Node *n = g->nodes + id;
            const u32 arity = (u32)g->heads[n->head].arity, *kids = kids_of(g, n);
            if (place[top - 1] < arity) {
                const u32 kid = find(g, kids[place[top - 1]++]);
                if (seen[kid]) continue;
                seen[kid] = 1;
                stack[top] = kid;
                place[top++] = 0;
                continue;
            }
            top--;
            if (at + 5 + arity <= room) {
                out[at] = id;
                out[at + 1] = n->head;
                out[at + 2] = cls;
                out[at + 3] = n->flags;
                out[at + 4] = arity;
                for (u32 i = 0; i < arity; i++) out[at + 5 + i] = find(g, kids[i]);
            }
            at += 5 + arity;
        }
    }
out:
    free(seen);
    free(stack);
    free(place);
    return at;
}
