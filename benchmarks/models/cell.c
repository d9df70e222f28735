/* The fleet's cell in C: what the compiled kernel could reach, on the same input, row for row.
 *
 * One leader, its partitions, the fetcher threads that read from it. The same bookkeeping as
 * isrlab/fleet/kernel, with the layout that C allows: structs as narrow as their values, one
 * translation unit, nothing checked. Left out, as no benchmark has it: slow leaders, restarts,
 * replica.fetch.min.bytes above 1, the pushed high watermark of 2.4 and 2.5, new leader epochs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
typedef int32_t i32;
#define NEVER ((i64)1 << 62)
#define HOUR_MS 3600000
#define CHUNK 16
#define GROUP 16 /* threads whose next time is kept as one */
#define EXACT_MS 16
#define STEPS 8
#define BUCKETS (EXACT_MS + STEPS * 27)
#define COLUMNS 13
enum { SHRINK, EXPAND, COMMIT, REMOVAL, REFUSED, TOO_FEW, TIMED_OUT, GIVEN_UP };

typedef struct { /* in the order of cells.C_RULES */
    i64 lag_clock, shrink_rule, expand_rule, high_watermark_set, held_under_min_isr, after_shrink,
        only_if_moved, waits_for_controller, lag_ms, lag_messages, check_ms, min_isr, commit_ms,
        timeout_ms, delivery_ms, latency_ms, fetch_bytes, response_bytes, wait_ms;
} Rules;

typedef struct { i64 sent_ms, tried_ms, required; } Produce;
typedef struct { i32 first, last; } List; /* rows of produces, 0 for none */
typedef struct {
    i64 end, high_watermark, due_ms, record_bytes;
    i32 isr, maximal, pending, epoch;
    i32 pending_isr, acks_all, held_back, unused;
    List waiting, held;
} Partition;
typedef struct {
    i64 end, seen_end, caught_up_ms, had_all_ms, fetch_ms, leader_end, turn;
    i32 partition, thread, slot, unused;
} Follower;
typedef struct {
    i64 fetch_ms, next_ms, bytes_per_s;
    i32 parked, words_from, words_to, partitions, stall_from, stall_to;
} Thread;
typedef struct {
    Rules r;
    i64 slots, partition_count, thread_count, capacity, events_count, covered, turn;
    i64 batch_sent_ms, batch_due_ms, queue_head, queue_count, answer_ms, thread_ms;
    Partition *p;
    Follower *f;
    i32 *at; /* [partition][slot] -> follower */
    Thread *t;
    uint64_t *active;
    Produce *produces;
    i32 *next_chunk;
    i32 chunks, free_chunk;
    i32 *queue, *scratch;
    const i64 *stalls;
    i64 *events, *latencies, *group_ms;
} Cell;

static inline i64 max(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 min(i64 a, i64 b) { return a < b ? a : b; }

/* the rules */

static inline i64 clock_after(i64 form, i64 offset, i64 end, i64 before_end, i64 before_ms, i64 clock, i64 now) {
    if (form == 0) return now;
    if (offset >= end) return max(clock, now);
    return form == 2 && offset >= before_end ? max(clock, before_ms) : clock;
}

static inline int holds_back(const Rules *r, int in_isr, int in_maximal, i64 seen, i64 end, i64 clock, i64 now) {
    int is_fresh = now - clock <= r->lag_ms;
    switch (r->high_watermark_set) {
    case 0: return in_isr;
    case 1: return in_isr || is_fresh;
    case 2: return in_maximal || is_fresh;
    default: return in_maximal || seen == end || is_fresh;
    }
}

static inline int out_of_sync(const Rules *r, i64 seen, i64 end, i64 clock, i64 now) {
    if (r->shrink_rule == 2 && seen == end) return 0;
    if (now - clock > r->lag_ms) return 1;
    return r->shrink_rule == 0 && seen >= 0 && end - seen > r->lag_messages;
}

static inline int enough(const Cell *c, i32 members) {
    return 1 + __builtin_popcount(members) >= c->r.min_isr;
}

/* what is written down */

static void emit(Cell *c, i64 now, int kind, i32 p, i32 after) {
    i64 row = c->events_count++;
    if (row >= c->capacity) return;
    Partition *l = &c->p[p];
    i32 changed = l->isr ^ after;
    i64 lag = 0, fetch = now, all = now;
    for (int s = 0; s < c->slots; s++)
        if (changed >> s & 1) {
            Follower *f = &c->f[c->at[p * c->slots + s]];
            lag = max(lag, l->end - f->seen_end);
            fetch = min(fetch, now - f->fetch_ms);
            all = min(all, now - f->had_all_ms);
        }
    i64 values[COLUMNS] = {now, kind, p, changed, l->isr, after, l->high_watermark, l->end, 0, l->epoch, lag, fetch, all};
    memcpy(c->events + row * COLUMNS, values, sizeof values);
}

static void emit_produce(Cell *c, i64 at, int kind, i32 p, i64 end) {
    i64 row = c->events_count++;
    if (row >= c->capacity) return;
    i64 values[COLUMNS] = {at, kind, p, 0, 0, 0, -1, end};
    memcpy(c->events + row * COLUMNS, values, sizeof values);
}

static inline i64 bucket(i64 waited) {
    if (waited < EXACT_MS) return waited;
    int doubling = 0;
    while (waited >> doubling >= EXACT_MS) doubling++;
    return min(EXACT_MS + STEPS * (doubling - 2) + (waited >> doubling), BUCKETS - 1);
}

/* lists of produces */

static inline void push(Cell *c, List *list, i64 sent, i64 tried, i64 required) {
    i32 row = list->last + 1;
    if (!list->first || row % CHUNK == 0) {
        i32 chunk = c->free_chunk;
        if (chunk) c->free_chunk = c->next_chunk[chunk];
        else chunk = c->chunks++;
        if (list->first) c->next_chunk[list->last / CHUNK] = chunk;
        row = chunk * CHUNK;
        if (!list->first) list->first = row;
    }
    list->last = row;
    c->produces[row] = (Produce){sent, tried, required};
}

static inline void pop(Cell *c, List *list) {
    i32 row = list->first;
    if (row != list->last && (row + 1) % CHUNK) { list->first = row + 1; return; }
    i32 chunk = row / CHUNK;
    list->first = row == list->last ? 0 : c->next_chunk[chunk] * CHUNK;
    c->next_chunk[chunk] = c->free_chunk;
    c->free_chunk = chunk;
}

/* who is at rest */

static inline int is_active(const Cell *c, i32 row) { return c->active[row >> 6] >> (row & 63) & 1; }

static inline i64 lag_clock(const Cell *c, i32 row) {
    return is_active(c, row) ? c->f[row].caught_up_ms : c->t[c->f[row].thread].fetch_ms;
}

static inline void wake(Cell *c, i32 row) {
    if (is_active(c, row)) return;
    Follower *f = &c->f[row];
    f->caught_up_ms = f->had_all_ms = f->fetch_ms = c->t[f->thread].fetch_ms;
    f->leader_end = c->p[f->partition].end;
    c->active[row >> 6] |= (uint64_t)1 << (row & 63);
}

static inline void make_due(Cell *c, i64 now, i32 thread) {
    c->t[thread].next_ms = c->group_ms[thread / GROUP] = c->thread_ms = now;
}

/* the log */

static void complete(Cell *c, i64 now, i32 p) {
    Partition *l = &c->p[p];
    while (l->waiting.first && c->produces[l->waiting.first].required <= l->high_watermark) {
        Produce *produce = &c->produces[l->waiting.first];
        i64 over = produce->tried_ms + c->r.timeout_ms;
        if (over <= now) emit_produce(c, over, TIMED_OUT, p, produce->required);
        else if (!enough(c, l->maximal)) emit_produce(c, now, TOO_FEW, p, produce->required);
        else c->latencies[now / HOUR_MS * BUCKETS + bucket(now - produce->sent_ms)]++;
        pop(c, &l->waiting);
    }
}

static inline void raise_high_watermark(Cell *c, i64 now, i32 p) {
    Partition *l = &c->p[p];
    i64 end = l->end, before = l->high_watermark, least = end, member = end;
    for (int s = 0; s < c->slots; s++) {
        i32 row = c->at[p * c->slots + s];
        i64 seen = c->f[row].seen_end;
        int in_isr = l->isr >> s & 1;
        if (holds_back(&c->r, in_isr, l->maximal >> s & 1, seen, end, lag_clock(c, row), now)) {
            least = min(least, seen);
            if (in_isr) member = min(member, seen);
        }
    }
    if (!c->r.held_under_min_isr || 1 + __builtin_popcount(l->isr) >= c->r.min_isr)
        l->high_watermark = max(before, least);
    l->held_back = member <= l->high_watermark && member < end;
    if (l->high_watermark > before && l->waiting.first) complete(c, now, p);
}

static inline void append(Cell *c, i64 now, i32 p, i32 records, i64 sent) {
    Partition *l = &c->p[p];
    for (int s = 0; s < c->slots; s++) {
        i32 row = c->at[p * c->slots + s];
        wake(c, row);
        if (c->t[c->f[row].thread].parked) make_due(c, now, c->f[row].thread);
    }
    l->end += records;
    if (l->acks_all) push(c, &l->waiting, sent, now, l->end);
    if (!l->held_back) raise_high_watermark(c, now, p);
}

static void give_up(Cell *c, i64 now, i32 p) {
    List *held = &c->p[p].held;
    while (held->first && c->produces[held->first].sent_ms + c->r.delivery_ms <= now) {
        emit_produce(c, c->produces[held->first].sent_ms + c->r.delivery_ms, GIVEN_UP, p, -1);
        pop(c, held);
    }
}

static void retry_held(Cell *c, i64 now, i32 p) {
    if (!enough(c, c->p[p].isr)) return;
    for (give_up(c, now, p); c->p[p].held.first; give_up(c, now, p)) {
        Produce produce = c->produces[c->p[p].held.first];
        pop(c, &c->p[p].held);
        append(c, now, p, produce.required, produce.sent_ms);
    }
}

static inline void on_append(Cell *c, i64 now, i32 p, i32 records) {
    if (c->p[p].acks_all && !enough(c, c->p[p].isr)) {
        emit_produce(c, now, REFUSED, p, -1);
        if (c->r.delivery_ms) push(c, &c->p[p].held, now, now, records);
    } else
        append(c, now, p, records, now);
}

/* membership */

static void commit(Cell *c, i64 now, i32 p, i32 isr) {
    c->p[p].epoch++;
    emit(c, now, COMMIT, p, isr);
    c->p[p].isr = c->p[p].maximal = isr;
    c->p[p].held_back = 0;
    if (c->p[p].held.first) retry_held(c, now, p);
}

static void next_answer(Cell *c) {
    c->answer_ms = c->queue_count ? c->p[c->queue[c->queue_head]].due_ms : NEVER;
}

static void change_isr(Cell *c, i64 now, int kind, i32 p, i32 isr) {
    Partition *l = &c->p[p];
    for (int s = 0; s < c->slots; s++) wake(c, c->at[p * c->slots + s]);
    emit(c, now, kind, p, isr);
    if (c->r.waits_for_controller) {
        l->pending = 1, l->pending_isr = isr, l->maximal = l->isr | isr;
        if (c->batch_sent_ms <= now) {
            c->batch_sent_ms = max(now, c->batch_due_ms);
            c->batch_due_ms = c->batch_sent_ms + c->r.commit_ms;
        }
        l->due_ms = c->batch_due_ms;
        c->queue[(c->queue_head + c->queue_count++) % c->partition_count] = p;
        next_answer(c);
    } else
        commit(c, now, p, isr);
    if (kind == SHRINK && c->r.after_shrink != 2) raise_high_watermark(c, now, p);
}

static void on_answers(Cell *c, i64 now) {
    while (c->answer_ms <= now) {
        i32 p = c->queue[c->queue_head];
        c->queue_head = (c->queue_head + 1) % c->partition_count;
        c->queue_count--;
        next_answer(c);
        c->p[p].pending = 0;
        commit(c, now, p, c->p[p].pending_isr);
        if (c->r.after_shrink == 2) raise_high_watermark(c, now, p);
    }
}

static void on_isr_expiration(Cell *c, i64 now) {
    for (i32 p = 0; p < c->partition_count; p++) {
        Partition *l = &c->p[p];
        if (l->pending) continue;
        i32 isr = l->isr;
        for (int s = 0; s < c->slots; s++) {
            i32 row = c->at[p * c->slots + s];
            if (l->isr >> s & 1 && out_of_sync(&c->r, c->f[row].seen_end, l->end, lag_clock(c, row), now))
                isr &= ~(1 << s);
        }
        if (isr != l->isr) change_isr(c, now, SHRINK, p, isr);
    }
}

/* fetches */

static inline void on_position(Cell *c, i64 now, i32 row) {
    Follower *f = &c->f[row];
    Partition *l = &c->p[f->partition];
    i64 offset = f->end;
    f->caught_up_ms = clock_after(c->r.lag_clock, offset, l->end, f->leader_end, f->fetch_ms, f->caught_up_ms, now);
    f->had_all_ms = clock_after(2, offset, l->end, f->leader_end, f->fetch_ms, f->had_all_ms, now);
    f->fetch_ms = now;
    f->leader_end = l->end;
    int has_moved = f->seen_end != offset;
    if (has_moved) f->seen_end = offset, l->held_back = 0;
    if (!l->pending && !(l->isr >> f->slot & 1) && offset >= l->high_watermark)
        change_isr(c, now, EXPAND, f->partition, l->isr | 1 << f->slot);
    if (has_moved || !c->r.only_if_moved) raise_high_watermark(c, now, f->partition);
    if (f->seen_end == l->end && !l->pending && l->isr >> f->slot & 1 &&
        (c->r.only_if_moved || c->r.high_watermark_set == 0 || l->isr == (1 << c->slots) - 1 ||
         l->high_watermark == l->end))
        c->active[row >> 6] &= ~((uint64_t)1 << (row & 63));
}

static inline i64 readable(const Cell *c, const Follower *f) {
    const Partition *l = &c->p[f->partition];
    i64 behind = (l->end - f->end) * l->record_bytes;
    return behind <= c->r.fetch_bytes ? behind : max(1, c->r.fetch_bytes / l->record_bytes) * l->record_bytes;
}

static inline i64 send(Cell *c, i32 row, i64 left) {
    Follower *f = &c->f[row];
    i64 size = c->p[f->partition].record_bytes, sent = readable(c, f), behind = c->p[f->partition].end - f->end;
    if (sent > left) sent = left / size * size;
    if (sent > 0) {
        f->end += sent == behind * size ? behind : sent / size;
        f->turn = ++c->turn;
    }
    return sent;
}

static inline i64 turn_of(const Cell *c, i32 row) { return c->f[row].turn * c->partition_count + c->f[row].partition; }

static i64 serve_in_turn(Cell *c, int count) {
    i64 sent = 0;
    for (; count; count--) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (turn_of(c, c->scratch[i]) < turn_of(c, c->scratch[best])) best = i;
        i32 row = c->scratch[best];
        i64 left = c->r.response_bytes - sent;
        if (!sent) left = max(left, c->p[c->f[row].partition].record_bytes);
        i64 more = send(c, row, left);
        if (!more) break;
        sent += more;
        c->scratch[best] = c->scratch[count - 1];
    }
    return sent;
}

static i64 end_of_work(const Cell *c, const Thread *t, i64 start, i64 work) {
    i64 done = start + work;
    for (int i = t->stall_from; i < t->stall_to; i++) {
        const i64 *stall = c->stalls + 3 * i;
        i64 begin = max(stall[0], start), end = stall[1], speed = stall[2];
        if (begin > done) break;
        if (end <= begin) continue;
        i64 left = (done - begin) * 1000, can = (end - begin) * speed;
        if (speed > 0 && left <= can) return begin + (left + speed - 1) / speed;
        done = end + (left - can + 999) / 1000;
    }
    return done;
}

static inline void on_thread(Cell *c, i64 now, Thread *t) {
    i64 wanted = 0, sent;
    int count = 0, positions = !t->parked;
    if (positions) t->fetch_ms = now, c->covered += t->partitions;
    for (int w = t->words_from; w < t->words_to; w++)
        for (uint64_t word = c->active[w]; word; word &= word - 1) {
            i32 row = (w << 6) + __builtin_ctzll(word);
            if (positions) on_position(c, now, row);
            i64 more = readable(c, &c->f[row]);
            if (more) wanted += more, c->scratch[count++] = row;
        }
    if (positions && !wanted) { t->parked = 1; t->next_ms = now + c->r.wait_ms; return; }
    if (wanted > c->r.response_bytes) sent = serve_in_turn(c, count);
    else for (int n = (sent = wanted, 0); n < count; n++) send(c, c->scratch[n], wanted);
    i64 write = t->bytes_per_s ? (sent * 1000 + t->bytes_per_s - 1) / t->bytes_per_s : 0;
    t->parked = 0;
    t->next_ms = end_of_work(c, t, now + c->r.latency_ms, write) + c->r.latency_ms;
}

/* rules: Rules; sizes: slots, partitions, threads, capacity of events, first tick, batches;
 * threads: [threads][bytes_per_s, stall_from, stall_to]; the number of events. */
i64 run_cell(const i64 *rules, const i64 *sizes, const i64 *thread_of, const i64 *record_bytes, const i64 *acks_all,
             const i64 *threads, const i64 *stalls, const i64 *ts, const i32 *partition, const i32 *records,
             i64 until_ms, i64 *events, i64 *latencies, i64 *covered) {
    Cell c = {.slots = sizes[0], .partition_count = sizes[1], .thread_count = sizes[2], .capacity = sizes[3]};
    i64 tick = sizes[4], batches = sizes[5], words = 0, now, i = 0;
    memcpy(&c.r, rules, sizeof c.r);
    c.events = events, c.latencies = latencies, c.stalls = stalls;
    c.batch_sent_ms = c.batch_due_ms = -1, c.answer_ms = NEVER, c.chunks = 1;
    c.p = calloc(c.partition_count, sizeof *c.p);
    c.t = calloc(c.thread_count, sizeof *c.t);
    c.group_ms = calloc(c.thread_count / GROUP + 1, sizeof *c.group_ms);
    c.at = calloc(c.partition_count * c.slots, sizeof *c.at);
    c.f = calloc((c.partition_count * c.slots / 64 + c.thread_count) * 64, sizeof *c.f);
    c.queue = calloc(c.partition_count, sizeof *c.queue);
    c.scratch = calloc(c.partition_count, sizeof *c.scratch);
    i64 chunks = 1 + batches / CHUNK + 4 * c.partition_count;
    c.produces = malloc(chunks * CHUNK * sizeof *c.produces);
    c.next_chunk = calloc(chunks, sizeof *c.next_chunk);
    for (i32 p = 0; p < c.partition_count; p++) {
        c.p[p].record_bytes = record_bytes[p], c.p[p].acks_all = acks_all[p];
        c.p[p].isr = c.p[p].maximal = (1 << c.slots) - 1;
    }
    for (i32 t = 0; t < c.thread_count; t++) {
        i32 row = words * 64;
        for (i64 k = 0; k < c.partition_count * c.slots; k++)
            if (thread_of[k] == t) {
                c.f[row].partition = k / c.slots, c.f[row].slot = k % c.slots, c.f[row].thread = t;
                c.at[k] = row++;
            }
        c.t[t] = (Thread){.next_ms = c.r.latency_ms, .bytes_per_s = threads[3 * t], .words_from = words,
                          .partitions = row - words * 64, .stall_from = threads[3 * t + 1],
                          .stall_to = threads[3 * t + 2]};
        c.t[t].words_to = words = (row + 63) / 64;
    }
    c.active = calloc(words + 1, sizeof *c.active);
    for (;;) {
        now = min(min(tick, c.thread_ms), min(c.answer_ms, i < batches ? ts[i] : NEVER));
        if (now >= until_ms) break;
        if (c.answer_ms <= now) on_answers(&c, now);
        for (; i < batches && ts[i] <= now; i++) on_append(&c, now, partition[i], records[i]);
        if (c.thread_ms <= now) {
            c.thread_ms = NEVER;
            for (i32 first = 0; first < c.thread_count; first += GROUP) {
                i64 *group_ms = &c.group_ms[first / GROUP];
                if (*group_ms <= now) {
                    *group_ms = NEVER;
                    for (i32 t = first; t < min(first + GROUP, c.thread_count); t++) {
                        if (c.t[t].next_ms <= now) on_thread(&c, now, &c.t[t]);
                        *group_ms = min(*group_ms, c.t[t].next_ms);
                    }
                }
                c.thread_ms = min(c.thread_ms, *group_ms);
            }
        }
        if (tick <= now) on_isr_expiration(&c, now), tick += c.r.check_ms;
    }
    for (i32 p = 0; p < c.partition_count; p++) {
        give_up(&c, until_ms - 1, p);
        for (List *w = &c.p[p].waiting; w->first && c.produces[w->first].tried_ms + c.r.timeout_ms < until_ms; pop(&c, w))
            emit_produce(&c, c.produces[w->first].tried_ms + c.r.timeout_ms, TIMED_OUT, p, c.produces[w->first].required);
    }
    *covered = c.covered;
    free(c.p), free(c.t), free(c.at), free(c.f), free(c.queue), free(c.scratch), free(c.produces), free(c.next_chunk);
    free(c.active), free(c.group_ms);
    return c.events_count;
}
