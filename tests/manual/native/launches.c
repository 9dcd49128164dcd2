/* Launches empty kernels and prints the CPU time of a launch, ns: medians of blocks before and after the collector is loaded.
 * usage: launches none|load|arm|finalize|injected BLOCKS
 * load: loads the library of COLLECTOR as the driver does. arm: records once and stops, too. finalize: then detaches CUPTI.
 * injected: the driver has loaded the library.
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
    block();
    blocks("after", each, "}\n");
    return 0;
}
