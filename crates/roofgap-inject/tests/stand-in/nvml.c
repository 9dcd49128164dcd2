// An NVML of one device, as far as the sampler of vitals uses it. Its energy counter moves every 100 ms, at 500 W.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { unsigned field, scope; int64_t at, latency; unsigned type; int status; uint64_t value; } Field;
typedef struct { unsigned pid; uint64_t bytes; unsigned gpu, compute; } Process;
typedef struct { unsigned pid; uint64_t at; unsigned sm, memory, encoder, decoder; } Use;

static uint64_t now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000ull + time.tv_nsec / 1000;
}

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) { return *device = (void *)7, at; }
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    return snprintf(text, length, "NVIDIA \"H200\""), device != (void *)7;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) { return snprintf(text, length, "GPU-07"), 0; }
int nvmlDeviceGetMaxClockInfo(void *device, unsigned what, unsigned *mhz) { return *mhz = 1980, what != 1; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw) { return *mw = 600000, 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *mw) { return *mw = 700000, 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) { return 3; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    return *mj = now_us() / 100000 * 50000, 0;
}
int nvmlDeviceGetClockInfo(void *device, unsigned what, unsigned *mhz) { return *mhz = what == 1 ? 1575 : 3201, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) { return *reasons = 4, 0; }
int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    for (int at = 0; at < count; at++) {
        fields[at].status = fields[at].field == 186 ? 0 : 3;
        fields[at].value = 0xdead00000000ull | 698000;
    }
    return sizeof(Field) != 40;
}
int nvmlDeviceGetTemperature(void *device, unsigned what, unsigned *celsius) { return *celsius = 61, what; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) { return rates[0] = 99, rates[1] = 50, 0; }
int nvmlDeviceGetMemoryInfo(void *device, uint64_t memory[3]) { return memory[2] = 1 << 20, 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *found) {
    Process hidden = {getpid(), UINT64_MAX, 0, 0};
    return found[0] = hidden, *count = 1, sizeof(Process) != 24;
}
int nvmlDeviceGetProcessUtilization(void *device, Use *used, unsigned *count, unsigned long long since) {
    Use own = {getpid(), now_us() + 1, 42, 0, 0, 0}, old = {getpid(), since, 99, 0, 0, 0};
    return used[0] = own, used[1] = old, *count = 2, sizeof(Use) != 32;
}
typedef struct { unsigned id; int status; double value; char *names[3]; } Metric;
typedef struct { unsigned version, count; void *samples[2]; Metric metrics[333]; } Request;
int nvmlGpmQueryDeviceSupport(void *device, unsigned support[2]) { return support[1] = 1, support[0] != 1; }
int nvmlGpmSampleAlloc(void **sample) {
    static char samples[2];
    static int taken;
    return *sample = &samples[taken++], 0;
}
int nvmlGpmSampleGet(void *device, void *sample) { return *(char *)sample = 1, 0; }
int nvmlGpmMetricsGet(Request *request) {
    for (unsigned at = 0; at < request->count; at++) {
        Metric *metric = &request->metrics[at];
        metric->status = metric->id == 5 ? 3 : 0;
        metric->value = metric->id == 2 ? 90.0 : metric->id == 10 ? 12.5 : -1.0;
    }
    int is_sampled = *(char *)request->samples[0] && *(char *)request->samples[1];
    return request->version != 1 || request->count != 3 || !is_sampled || sizeof(Metric) != 40;
}
