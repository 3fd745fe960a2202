/* Reads the script named by FAKE_NVML_SCRIPT, holds the clock and the table of calls. */
#include "fake_nvml.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct board boards[MAX_BOARDS];
int board_count;
char driver_version[64] = "580.65.06";

static volatile double *virtual_clock;
static volatile uint64_t *calls;

double now_s(void) {
    if (virtual_clock) return *virtual_clock;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void count_call(const struct board *b, enum call kind) {
    if (calls) __sync_fetch_and_add(&calls[b->index * CALL_KINDS + kind], 1);
}

const struct fault *fault_at(const struct board *b, enum fault_kind kind, double t) {
    for (int i = 0; i < b->fault_count; i++) {
        const struct fault *f = &b->faults[i];
        if (f->kind == kind && t >= f->from && t < f->until) return f;
    }
    return NULL;
}

static void *map(const char *path, size_t size) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static const char *const FAULT_NAMES[] = {
    "lost", "error", "no_power", "zero_power", "no_counter", "frozen", "reload", "slow", "spike"
};

static void board_value(struct board *b, const char *key, const char *text) {
    double v = atof(text);
    if (!strcmp(key, "uuid")) snprintf(b->uuid, sizeof b->uuid, "%s", text);
    else if (!strcmp(key, "name")) {
        snprintf(b->name, sizeof b->name, "%s", text);
        for (char *c = b->name; *c; c++) if (*c == '_') *c = ' ';
    }
    else if (!strcmp(key, "counter_s")) b->counter_s = v;
    else if (!strcmp(key, "counter_phase_s")) b->counter_phase_s = v;
    else if (!strcmp(key, "base_j")) b->base_j = v;
    else if (!strcmp(key, "instant_s")) b->instant_s = v;
    else if (!strcmp(key, "instant_phase_s")) b->instant_phase_s = v;
    else if (!strcmp(key, "average_s")) b->average_s = v;
    else if (!strcmp(key, "average_phase_s")) b->average_phase_s = v;
    else if (!strcmp(key, "average_window_s")) b->average_window_s = v;
    else if (!strcmp(key, "noise_w")) b->noise_w = v;
    else if (!strcmp(key, "shift_s")) b->shift_s = v;
    else if (!strcmp(key, "origin_s")) b->origin_s = v;
    else if (!strcmp(key, "limit_w")) b->limit_w = v;
    else if (!strcmp(key, "latency_s")) b->latency_s = v;
    else if (!strcmp(key, "fields")) b->fields = v != 0;
    else if (!strcmp(key, "legacy")) b->legacy = v != 0;
    else if (!strcmp(key, "legacy_is_instant")) b->legacy_is_instant = v != 0;
    else if (!strcmp(key, "module")) b->module = v != 0;
    else if (!strcmp(key, "capability")) b->capability = (int)v;
    else { fprintf(stderr, "fake nvml: unknown board key %s\n", key); abort(); }
}

static void read_board(char *rest) {
    struct board *b = &boards[board_count];
    memset(b, 0, sizeof *b);
    b->index = board_count++;
    b->fields = b->legacy = true;
    b->capability = 90;
    char *save = NULL;
    for (char *word = strtok_r(rest, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        char *equals = strchr(word, '=');
        if (!equals) abort();
        *equals = 0;
        board_value(b, word, equals + 1);
    }
}

static void read_segment(struct board *b, const char *rest) {
    struct segment *s = &b->segments[b->segment_count++];
    if (sscanf(rest, "%lf %lf %lf", &s->length_s, &s->from_w, &s->to_w) != 3) abort();
    s->joules = 0.5 * (s->from_w + s->to_w) * s->length_s;
    b->period_s += s->length_s;
    b->period_j += s->joules;
}

static void read_fault(struct board *b, const char *rest) {
    struct fault *f = &b->faults[b->fault_count++];
    char name[32];
    if (sscanf(rest, "%31s %lf %lf %lf", name, &f->from, &f->until, &f->value) != 4) abort();
    for (unsigned i = 0; i < sizeof FAULT_NAMES / sizeof *FAULT_NAMES; i++)
        if (!strcmp(name, FAULT_NAMES[i])) { f->kind = (enum fault_kind)i; return; }
    abort();
}

static void read_line(char *line) {
    char *rest = strchr(line, ' ');
    if (!rest) return;
    *rest++ = 0;
    rest[strcspn(rest, "\n")] = 0;
    struct board *b = board_count ? &boards[board_count - 1] : NULL;
    if (!strcmp(line, "clock")) virtual_clock = map(rest, sizeof(double));
    else if (!strcmp(line, "calls")) calls = map(rest, sizeof(uint64_t) * MAX_BOARDS * CALL_KINDS);
    else if (!strcmp(line, "driver")) snprintf(driver_version, sizeof driver_version, "%s", rest);
    else if (!strcmp(line, "board") && board_count < MAX_BOARDS) read_board(rest);
    else if (!strcmp(line, "segment") && b && b->segment_count < MAX_SEGMENTS) read_segment(b, rest);
    else if (!strcmp(line, "fault") && b && b->fault_count < MAX_FAULTS) read_fault(b, rest);
    else if (!strcmp(line, "process") && b && b->process_count < MAX_PROCESSES) {
        struct process *p = &b->processes[b->process_count++];
        if (sscanf(rest, "%u %lf %lf", &p->pid, &p->from, &p->until) != 3) abort();
    } else if (!strcmp(line, "mig") && b && b->mig_count < MAX_MIG) {
        struct mig *m = &b->migs[b->mig_count++];
        m->parent = b;
        if (sscanf(rest, "%95s %u %u", m->uuid, &m->gi, &m->ci) != 3) abort();
    } else { fprintf(stderr, "fake nvml: bad line %s\n", line); abort(); }
}

bool load_script(void) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *f = path ? fopen(path, "re") : NULL;
    if (!f) return false;
    board_count = 0;
    virtual_clock = NULL;
    calls = NULL;
    char line[1024];
    while (fgets(line, sizeof line, f)) read_line(line);
    fclose(f);
    return true;
}
