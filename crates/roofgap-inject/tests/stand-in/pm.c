// A driver and a CUPTI with PM sampling, as far as the sampler uses them. Every function takes a struct of eight-byte words.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE, NONE, OBJECT };
static size_t interval, added, decoded;
static uint64_t started, stopped;
static int collectors;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int is(const char *how) {
    const char *set = getenv("STANDIN_PM");
    return set && !strcmp(set, how);
}

int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int id) { return *device = id, 0; }
int cuDeviceGetName(char *name, int length, int device) { return strncpy(name, "NVIDIA H200", length), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 141ull << 30, 0; }
int cuDeviceGetAttribute(int *value, int what, int device) { return *value = 9, 0; }
int cuDeviceGetUuid(uint8_t *uuid, int device) { return memset(uuid, 7, 16), 0; }

int cuptiGetResultString(unsigned code, const char **text) {
    return *text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN", 0;
}
int cuptiDeviceGetChipName(size_t *p) { return p[3] = (size_t) "GH100", p[SIZE] != 32; }
int cuptiPmSamplingGetCounterAvailability(size_t *p) {
    return is("forbidden") ? 35 : (p[3] = 8, p[SIZE] != 40);
}
// As CUPTI 13.0, which does not know the last word of newer versions.
int cuptiProfilerHostInitialize(size_t *p) { return p[5] = 11, p[SIZE] != 48; }
int cuptiProfilerHostDeinitialize(size_t *p) { return p[SIZE] != 24; }
int cuptiProfilerHostConfigAddMetrics(size_t *p) {
    const char *last = ((const char **)p[3])[p[4] - 1];
    return strstr(last, "tensor") ? 17 : (added = p[4], p[SIZE] != 40);
}
int cuptiProfilerHostGetConfigImageSize(size_t *p) { return p[3] = 16, p[SIZE] != 32; }
int cuptiProfilerHostGetConfigImage(size_t *p) { return p[SIZE] != 40; }
// Three counters fit.
int cuptiProfilerHostGetNumOfPasses(size_t *p) { return p[4] = added > 3 ? 2 : 1, p[SIZE] != 40; }
int cuptiPmSamplingEnable(size_t *p) { return p[3] = 12, collectors++, p[SIZE] != 32; }
int cuptiPmSamplingDisable(size_t *p) { return p[SIZE] != 24; }
int cuptiPmSamplingSetConfig(size_t *p) { return interval = p[6], p[SIZE] != 64 || p[7] != 1; }
int cuptiPmSamplingGetCounterDataSize(size_t *p) { return p[6] = 64, p[SIZE] != 56 || p[4] != 3; }
// An image belongs to one collector.
int cuptiPmSamplingCounterDataImageInitialize(size_t *p) {
    static size_t first;
    if (!first) first = p[4];
    return first != p[4] || collectors != 1 ? 7 : p[SIZE] != 40;
}
int cuptiPmSamplingStart(size_t *p) { return started = now(), decoded = 0, p[SIZE] != 24; }
int cuptiPmSamplingStop(size_t *p) { return stopped = now(), p[SIZE] != 24; }
static size_t left(void) { return (stopped - started) / interval - decoded; }
int cuptiPmSamplingDecodeData(size_t *p) { return is("full") ? 8 : (p[5] = 2, p[SIZE] != 45); }
int cuptiPmSamplingGetCounterDataInfo(size_t *p) { return p[6] = left(), p[SIZE] != 56; }
int cuptiPmSamplingCounterDataGetSampleInfo(size_t *p) {
    p[6] = decoded ? started + decoded * interval : 0;
    p[7] = started + ++decoded * interval;
    return p[SIZE] != 64;
}
int cuptiProfilerHostEvaluateToGpuValues(size_t *p) {
    for (size_t at = 0; at < p[7]; at++) ((double *)p[8])[at] = 1000.0 * (at + 1);
    return p[SIZE] != 72;
}
