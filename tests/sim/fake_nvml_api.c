/* The exported functions: those that kdwatch, nvitop and Zeus call. What is missing here is missing in an old
   driver too, and callers must cope. */
#include "fake_nvml.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

static int references;

static void sleep_s(double seconds) {
    if (seconds <= 0) return;
    struct timespec ts = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&ts, NULL);
}

static struct mig *as_mig(nvmlDevice_t device) {
    for (int i = 0; i < board_count; i++)
        for (int k = 0; k < boards[i].mig_count; k++)
            if (device == (nvmlDevice_t)&boards[i].migs[k]) return &boards[i].migs[k];
    return NULL;
}

static struct board *as_board(nvmlDevice_t device) {
    for (int i = 0; i < board_count; i++)
        if (device == (nvmlDevice_t)&boards[i]) return &boards[i];
    return NULL;
}

/* Checks every call passes before it answers. */
static nvmlReturn_t enter(nvmlDevice_t device, enum call kind) {
    struct board *b = as_board(device);
    if (!references) return NVML_ERROR_UNINITIALIZED;
    if (!b) return as_mig(device) ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    count_call(b, kind);
    double t = now_s();
    sleep_s(b->latency_s);
    const struct fault *slow = fault_at(b, FAULT_SLOW, t), *error = fault_at(b, FAULT_ERROR, t);
    if (slow) sleep_s(slow->value);
    if (fault_at(b, FAULT_LOST, t)) return NVML_ERROR_GPU_IS_LOST;
    if (error && kind != CALL_FACTS) return (nvmlReturn_t)error->value;
    return NVML_SUCCESS;
}

#define ENTER(kind) do { nvmlReturn_t r = enter(device, kind); if (r != NVML_SUCCESS) return r; } while (0)
#define BOARD as_board(device)

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!references && !load_script()) return NVML_ERROR_DRIVER_NOT_LOADED;
    references++;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlShutdown(void) {
    if (!references) return NVML_ERROR_UNINITIALIZED;
    references--;
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t copy(char *out, unsigned int length, const char *text) {
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return references ? copy(version, length, driver_version) : NVML_ERROR_UNINITIALIZED;
}
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) { return copy(version, length, driver_version); }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return NVML_SUCCESS; }
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return NVML_SUCCESS; }

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!references) return NVML_ERROR_UNINITIALIZED;
    *count = (unsigned int)board_count;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (!references) return NVML_ERROR_UNINITIALIZED;
    if (index >= (unsigned int)board_count) return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)&boards[index];
    return fault_at(&boards[index], FAULT_LOST, now_s()) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (!references) return NVML_ERROR_UNINITIALIZED;
    for (int i = 0; i < board_count; i++) {
        if (!strcmp(boards[i].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2((unsigned int)i, device);
        for (int k = 0; k < boards[i].mig_count; k++)
            if (!strcmp(boards[i].migs[k].uuid, uuid)) {
                *device = (nvmlDevice_t)&boards[i].migs[k];
                return NVML_SUCCESS;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

static void bus_id(const struct board *b, char *out, size_t size, const char *domain) {
    snprintf(out, size, "%s:%02X:00.0", domain, (0x10u + (unsigned int)b->index) & 0xFFu);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    char own[32];
    for (int i = 0; i < board_count; i++) {
        bus_id(&boards[i], own, sizeof own, "00000000");
        if (!strcmp(own, bus)) return nvmlDeviceGetHandleByIndex_v2((unsigned int)i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}
API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER(CALL_FACTS);
    memset(pci, 0, sizeof *pci);
    bus_id(BOARD, pci->busId, sizeof pci->busId, "00000000");
    bus_id(BOARD, pci->busIdLegacy, sizeof pci->busIdLegacy, "0000");
    pci->bus = 0x10u + (unsigned int)BOARD->index;
    pci->pciDeviceId = 0x233010DEu;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    struct mig *m = as_mig(device);
    if (m) return copy(name, length, m->parent->name);
    ENTER(CALL_FACTS);
    return copy(name, length, BOARD->name);
}
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    struct mig *m = as_mig(device);
    if (m) return copy(uuid, length, m->uuid);
    ENTER(CALL_FACTS);
    return copy(uuid, length, BOARD->uuid);
}
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER(CALL_FACTS);
    *index = (unsigned int)BOARD->index;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) { return nvmlDeviceGetIndex(device, minor); }

/* -- energy and power */

static nvmlReturn_t energy_mj(const struct board *b, double t, unsigned long long *out) {
    if (b->counter_s <= 0 || fault_at(b, FAULT_NO_COUNTER, t)) return NVML_ERROR_NOT_SUPPORTED;
    *out = (unsigned long long)(counter_joules(b, t) * 1e3);
    return NVML_SUCCESS;
}
static nvmlReturn_t power_mw(const struct board *b, double t, bool instant, unsigned int *out) {
    if ((instant ? b->instant_s : b->average_s) <= 0 || fault_at(b, FAULT_NO_POWER, t)) return NVML_ERROR_NOT_SUPPORTED;
    *out = fault_at(b, FAULT_ZERO_POWER, t) ? 0 : (unsigned int)((instant ? instant_watts(b, t) : average_watts(b, t)) * 1e3 + 0.5);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    ENTER(CALL_ENERGY);
    return energy_mj(BOARD, now_s(), energy);
}
API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
    ENTER(CALL_POWER);
    if (!BOARD->legacy || BOARD->module) return NVML_ERROR_NOT_SUPPORTED;
    return power_mw(BOARD, now_s(), BOARD->legacy_is_instant, power);
}

static void field(const struct board *b, double t, nvmlFieldValue_t *v) {
    v->timestamp = (long long)(t * 1e6);
    v->latencyUsec = 0;
    bool right_scope = v->scopeId == (b->module ? NVML_POWER_SCOPE_MODULE : NVML_POWER_SCOPE_GPU);
    v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    if (!b->fields) return;
    if (v->fieldId == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION) {
        v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        v->nvmlReturn = energy_mj(b, t, &v->value.ullVal);
    } else if (v->fieldId == NVML_FI_DEV_POWER_INSTANT || v->fieldId == NVML_FI_DEV_POWER_AVERAGE) {
        v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        if (right_scope) v->nvmlReturn = power_mw(b, t, v->fieldId == NVML_FI_DEV_POWER_INSTANT, &v->value.uiVal);
    }
}
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER(CALL_FIELDS);
    double t = now_s();
    for (int i = 0; i < count; i++) field(BOARD, t, &values[i]);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t *info) {
    ENTER(CALL_FACTS);
    info->isC2cEnabled = BOARD->module;
    return NVML_SUCCESS;
}

/* -- facts */

API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit) {
    ENTER(CALL_FACTS);
    if (BOARD->limit_w <= 0) return NVML_ERROR_NOT_SUPPORTED;
    *limit = (unsigned int)(BOARD->limit_w * 1e3);
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit) {
    return nvmlDeviceGetEnforcedPowerLimit(device, limit);
}
API nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *limit) {
    return nvmlDeviceGetEnforcedPowerLimit(device, limit);
}
API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *low, unsigned int *high) {
    *low = 100000;
    return nvmlDeviceGetEnforcedPowerLimit(device, high);
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER(CALL_FACTS);
    memory->total = 80ULL << 30;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER(CALL_FACTS);
    memory->total = 80ULL << 30;
    memory->reserved = 0;
    memory->used = 1ULL << 30;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    ENTER(CALL_FACTS);
    rates->gpu = 50;
    rates->memory = 10;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t kind, unsigned int *clock) {
    (void)kind;
    ENTER(CALL_FACTS);
    *clock = 1410;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t kind, unsigned int *clock) {
    (void)kind;
    ENTER(CALL_FACTS);
    *clock = 1980;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores) {
    ENTER(CALL_FACTS);
    *cores = BOARD->capability >= 90 ? 16896 : 6912;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) {
    (void)sensor;
    ENTER(CALL_FACTS);
    *celsius = 55;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ENTER(CALL_FACTS);
    *reasons = nvmlClocksThrottleReasonSwPowerCap;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER(CALL_FACTS);
    *major = BOARD->capability / 10;
    *minor = BOARD->capability % 10;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
    ENTER(CALL_FACTS);
    *architecture = BOARD->capability >= 90 ? NVML_DEVICE_ARCH_HOPPER
                    : BOARD->capability >= 80 ? NVML_DEVICE_ARCH_AMPERE
                    : BOARD->capability >= 70 ? NVML_DEVICE_ARCH_VOLTA : NVML_DEVICE_ARCH_PASCAL;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state) {
    ENTER(CALL_FACTS);
    *state = NVML_PSTATE_0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    ENTER(CALL_FACTS);
    *mode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

/* -- processes and MIG */

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    ENTER(CALL_FACTS);
    struct board *b = BOARD;
    double t = now_s();
    unsigned int found = 0, room = *count;
    for (int i = 0; i < b->process_count; i++) {
        if (t < b->processes[i].from || t >= b->processes[i].until) continue;
        if (found < room) {
            memset(&infos[found], 0, sizeof infos[found]);
            infos[found].pid = b->processes[i].pid;
            infos[found].usedGpuMemory = 1ULL << 30;
            infos[found].gpuInstanceId = infos[found].computeInstanceId = 0xFFFFFFFFu;
        }
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    (void)infos;
    ENTER(CALL_FACTS);
    *count = 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    ENTER(CALL_FACTS);
    *current = *pending = BOARD->mig_count > 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    ENTER(CALL_FACTS);
    *count = BOARD->mig_count ? MAX_MIG : 0;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    ENTER(CALL_FACTS);
    if (index >= (unsigned int)BOARD->mig_count) return NVML_ERROR_NOT_FOUND;
    *mig = (nvmlDevice_t)&BOARD->migs[index];
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    *is_mig = as_mig(device) != NULL;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    struct mig *m = as_mig(mig);
    if (!m) return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)m->parent;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    struct mig *m = as_mig(device);
    if (!m) return NVML_ERROR_NOT_SUPPORTED;
    *id = m->gi;
    return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    struct mig *m = as_mig(device);
    if (!m) return NVML_ERROR_NOT_SUPPORTED;
    *id = m->ci;
    return NVML_SUCCESS;
}
