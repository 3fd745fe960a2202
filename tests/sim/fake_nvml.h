/* A scripted libnvidia-ml.so.1: boards, traces, clock. The script's grammar is in sim_nvml.py. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdbool.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MAX_BOARDS 16
#define MAX_SEGMENTS 512
#define MAX_FAULTS 16
#define MAX_MIG 8
#define MAX_PROCESSES 16

/* Rows of the table of calls, one a board; columns in the order of sim_nvml.CALLS. */
enum call { CALL_ENERGY, CALL_POWER, CALL_FIELDS, CALL_FACTS, CALL_KINDS };

enum fault_kind {
    FAULT_LOST,         /* every call fails with GPU_IS_LOST */
    FAULT_ERROR,        /* every reading fails with the error number `value` */
    FAULT_NO_POWER,     /* power is N/A */
    FAULT_ZERO_POWER,   /* power reads 0 mW */
    FAULT_NO_COUNTER,   /* the counter is N/A */
    FAULT_FROZEN,       /* the counter stands still */
    FAULT_RELOAD,       /* the counter begins again at 0, once, at `from` */
    FAULT_SLOW,         /* every reading takes `value` seconds of real time */
    FAULT_SPIKE         /* power reads `value` watts */
};

struct segment { double length_s, from_w, to_w, joules; };
struct fault { enum fault_kind kind; double from, until, value; };
struct process { unsigned int pid; double from, until; };

struct board;
struct mig { struct board *parent; char uuid[96]; unsigned int gi, ci; };

struct board {
    int index;
    char uuid[96], name[96];
    double counter_s, counter_phase_s, base_j;
    double instant_s, instant_phase_s;
    double average_s, average_phase_s, average_window_s;
    double noise_w, shift_s, origin_s, limit_w, latency_s;
    bool fields, legacy, legacy_is_instant, module;
    int capability;
    struct segment segments[MAX_SEGMENTS];
    int segment_count;
    double period_s, period_j;
    struct fault faults[MAX_FAULTS];
    int fault_count;
    struct process processes[MAX_PROCESSES];
    int process_count;
    struct mig migs[MAX_MIG];
    int mig_count;
};

extern struct board boards[MAX_BOARDS];
extern int board_count;
extern char driver_version[64];

bool load_script(void);
double now_s(void);
void count_call(const struct board *b, enum call kind);
const struct fault *fault_at(const struct board *b, enum fault_kind kind, double t);

double trace_watts(const struct board *b, double t);
double trace_joules(const struct board *b, double t);
double counter_joules(const struct board *b, double t);
double instant_watts(const struct board *b, double t);
double average_watts(const struct board *b, double t);

#endif
