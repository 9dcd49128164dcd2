/* Launches empty kernels and prints the CPU time of a launch, ns: medians of blocks before and after the collector is loaded.
 * usage: launches none|load|arm|finalize|injected BLOCKS
 * load: loads the library of COLLECTOR as the driver does. arm: records once and stops, too. finalize: then detaches CUPTI.
 * injected: the driver has loaded the library. cupti:LETTERS: turns parts of CUPTI (CUPTI_LIBRARY) on for a block and off again, without
 * the collector: k kernel records, c a subscriber with callbacks of launches, r records of all calls, u unsubscribes, f detaches CUPTI.
 * Needs the driver only. Prints {"before": [...], "after": [...]}. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 200, BATCHES = 25 };

static const char *ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n";

typedef int (*call)();
static call launch, synchronize;
static void *function;

static call of(void *library, const char *name) {
    call found = (call)dlsym(library, name);
    if (!found) fprintf(stderr, "%s is missing\n", name), exit(2);
    return found;
}

static void check(int status, const char *name) {
    if (status) fprintf(stderr, "%s returned %d\n", name, status), exit(3);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int smaller(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return first < second ? -1 : first > second;
}

/* The median of batches that are short enough not to fill the queue of the GPU. */
static double block(void) {
    double each[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t begun = now();
        for (int at = 0; at < BATCH; at++)
            launch(function, 1, 1, 1, 32, 1, 1, 0, (void *)NULL, (void **)NULL, (void **)NULL);
        each[batch] = (double)(now() - begun) / BATCH;
        synchronize();
    }
    qsort(each, BATCHES, sizeof *each, smaller);
    return each[BATCHES / 2];
}

static void blocks(const char *name, int count, const char *after) {
    printf("\"%s\": [", name);
    for (int at = 0; at < count; at++) printf("%s%.1f", at ? ", " : "", block());
    printf("]%s", after);
}

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 1 << 20, *records = 0;
    *buffer = aligned_alloc(8, *size);
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size, (void)valid;
    free(buffer);
}

static void on_call(void *data, uint32_t domain, uint32_t number, const void *call) {
    (void)data, (void)domain, (void)number, (void)call;
}

/* Turns parts of CUPTI on, launches, and turns them off. */
static void use_cupti(const char *parts) {
    enum { DRIVER = 1, LAUNCH = 307, KERNELS = 10, DRIVER_CALLS = 4, RUNTIME_CALLS = 5 };
    const char *path = getenv("CUPTI_LIBRARY");
    void *cupti = path ? dlopen(path, RTLD_NOW) : NULL, *subscriber = NULL;
    if (!cupti) fprintf(stderr, "CUPTI_LIBRARY does not name CUPTI\n"), exit(2);
    int kernels = strchr(parts, 'k') != NULL, callbacks = strchr(parts, 'c') != NULL, calls = strchr(parts, 'r') != NULL;
    call enable = of(cupti, "cuptiActivityEnable"), disable = of(cupti, "cuptiActivityDisable");
    if (callbacks) {
        check(of(cupti, "cuptiSubscribe")(&subscriber, on_call, (void *)NULL), "cuptiSubscribe");
        check(of(cupti, "cuptiEnableCallback")(1, subscriber, DRIVER, LAUNCH), "cuptiEnableCallback");
    }
    check(of(cupti, "cuptiActivityRegisterCallbacks")(requested, completed), "cuptiActivityRegisterCallbacks");
    if (calls) check(enable(DRIVER_CALLS) | enable(RUNTIME_CALLS), "cuptiActivityEnable");
    if (kernels) check(enable(KERNELS), "cuptiActivityEnable");
    block();
    if (kernels) check(disable(KERNELS), "cuptiActivityDisable");
    if (calls) check(disable(DRIVER_CALLS) | disable(RUNTIME_CALLS), "cuptiActivityDisable");
    if (callbacks) check(of(cupti, "cuptiEnableCallback")(0, subscriber, DRIVER, LAUNCH), "cuptiEnableCallback");
    synchronize();
    check(of(cupti, "cuptiActivityFlushAll")(1), "cuptiActivityFlushAll");
    if (strchr(parts, 'u')) check(of(cupti, "cuptiUnsubscribe")(subscriber), "cuptiUnsubscribe");
    if (strchr(parts, 'f')) check(of(cupti, "cuptiFinalize")(), "cuptiFinalize");
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "none";
    int each = count > 2 ? atoi(arguments[2]) : 12, device = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL, *module = NULL;
    if (!driver) return fprintf(stderr, "libcuda.so.1 is missing\n"), 2;
    launch = of(driver, "cuLaunchKernel"), synchronize = of(driver, "cuCtxSynchronize");
    check(of(driver, "cuInit")(0), "cuInit");
    check(of(driver, "cuDeviceGet")(&device, 0), "cuDeviceGet");
    check(of(driver, "cuDevicePrimaryCtxRetain")(&context, device), "cuDevicePrimaryCtxRetain");
    check(of(driver, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    check(of(driver, "cuModuleLoadData")(&module, ptx), "cuModuleLoadData");
    check(of(driver, "cuModuleGetFunction")(&function, module, "empty"), "cuModuleGetFunction");
    for (int at = 0; at < 4; at++) block();
    printf("{");
    blocks("before", each, ", ");
    int finalize = !strcmp(how, "finalize"), arm = finalize || !strcmp(how, "arm");
    if (!strcmp(how, "load") || arm) {
        const char *path = getenv("COLLECTOR");
        void *library = path ? dlopen(path, RTLD_NOW) : NULL;
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
        of(library, "InitializeInjection")();
        if (arm) {
            check(of(library, "roofgap_arm")(), "roofgap_arm");
            block();
            check(of(library, "roofgap_disarm")(), "roofgap_disarm");
            check(of(library, "roofgap_flush")(), "roofgap_flush");
        }
        if (finalize) {
            void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
            if (!cupti) cupti = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
            if (!cupti) return fprintf(stderr, "CUPTI is not loaded under its usual name\n"), 2;
            synchronize();
            check(of(cupti, "cuptiFinalize")(), "cuptiFinalize");
        }
    }
    if (!strncmp(how, "cupti:", 6)) use_cupti(how + 6);
    block();
    blocks("after", each, "}\n");
    return 0;
}
