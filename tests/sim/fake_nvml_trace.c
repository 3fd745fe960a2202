/* What a board's sensors show at a time: all of it follows from the trace, nothing is stored. */
#include "fake_nvml.h"
#include <math.h>

/* Joules of the trace from its own zero to `tau`, exact for segments that are straight lines. */
static double integral(const struct board *b, double tau) {
    double periods = floor(tau / b->period_s);
    double rest = tau - periods * b->period_s;
    double joules = periods * b->period_j;
    for (int i = 0; i < b->segment_count; i++) {
        const struct segment *s = &b->segments[i];
        if (rest < s->length_s) {
            double slope = (s->to_w - s->from_w) / s->length_s;
            return joules + rest * (s->from_w + 0.5 * slope * rest);
        }
        rest -= s->length_s;
        joules += s->joules;
    }
    return joules;
}

static double tau(const struct board *b, double t) { return t - b->origin_s + b->shift_s; }

double trace_joules(const struct board *b, double t) { return integral(b, tau(b, t)); }

double trace_watts(const struct board *b, double t) {
    double rest = fmod(tau(b, t), b->period_s);
    if (rest < 0) rest += b->period_s;
    for (int i = 0; i < b->segment_count; i++) {
        const struct segment *s = &b->segments[i];
        if (rest < s->length_s) return s->from_w + (s->to_w - s->from_w) * rest / s->length_s;
        rest -= s->length_s;
    }
    return b->segments[b->segment_count - 1].to_w;
}

/* The last update at or before t of something renewed every `period` at `phase`. */
static double updated(double t, double period, double phase) { return floor((t - phase) / period) * period + phase; }

/* Uniform in -1 .. 1, the same for the same board and moment. */
static double noise(const struct board *b, double t, uint64_t salt) {
    uint64_t x = (uint64_t)(int64_t)llround(t * 1e6) * 0x9E3779B97F4A7C15ULL + (uint64_t)b->index * 7919 + salt;
    x ^= x >> 30; x *= 0xBF58476D1CE4E5B9ULL; x ^= x >> 27; x *= 0x94D049BB133111EBULL; x ^= x >> 31;
    return (double)(x >> 11) / 4503599627370496.0 - 1.0;
}

double counter_joules(const struct board *b, double t) {
    double u = updated(t, b->counter_s, b->counter_phase_s);
    const struct fault *frozen = fault_at(b, FAULT_FROZEN, t);
    if (frozen && u > frozen->from) u = updated(frozen->from, b->counter_s, b->counter_phase_s);
    double zero = b->origin_s, base = b->base_j;
    for (int i = 0; i < b->fault_count; i++) {
        const struct fault *f = &b->faults[i];
        if (f->kind == FAULT_RELOAD && t >= f->from && f->from > zero) { zero = f->from; base = 0; }
    }
    if (base == 0 && u < zero) return 0;
    return base + trace_joules(b, u) - trace_joules(b, zero);
}

double instant_watts(const struct board *b, double t) {
    const struct fault *spike = fault_at(b, FAULT_SPIKE, t);
    if (spike) return spike->value;
    double u = updated(t, b->instant_s, b->instant_phase_s);
    return trace_watts(b, u) + b->noise_w * noise(b, u, 1);
}

double average_watts(const struct board *b, double t) {
    double u = updated(t, b->average_s, b->average_phase_s), w = b->average_window_s;
    return (trace_joules(b, u) - trace_joules(b, u - w)) / w + b->noise_w * noise(b, u, 2);
}
