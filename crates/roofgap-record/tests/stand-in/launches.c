/* A driver (-DDRIVER) and a program that finds it as the CUDA runtime does: by dlsym and cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned grid[3], block[3], shared; void *stream; } Config;
typedef int (*Find)(const char *, void **, int, unsigned long, int *);
typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*LaunchEx)(const Config *, void *, void **, void **);
typedef int (*Graph)(void *, void *);
typedef int (*Wait)(void *);

#ifdef DRIVER
static unsigned long sum;
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **params, void **extra) {
    sum += (unsigned long)f + gx + gy + gz + bx + by + bz + shared + (unsigned long)stream + (unsigned long)params + (unsigned long)extra;
    return 0;
}
int cuLaunchKernelEx(const Config *config, void *f, void **params, void **extra) { sum += config->shared; return 0; }
int cuGraphLaunch(void *graph, void *stream) { return 0; }
int cuStreamSynchronize(void *stream) { return stream ? 400 : 0; }
int cuGetProcAddress_v2(const char *name, void **answer, int version, unsigned long flags, int *status) {
    if (!strcmp(name, "sum")) { *answer = &sum; return 0; }
    *answer = dlsym(RTLD_DEFAULT, name);
    if (!*answer) *answer = dlsym(dlopen(getenv("DRIVER"), RTLD_NOW | RTLD_NOLOAD), name);
    return *answer ? 0 : 500;
}
#else
int main(void) {
    void *driver = dlopen(getenv("DRIVER"), RTLD_NOW | RTLD_LOCAL);
    Find find = driver ? (Find)dlsym(driver, "cuGetProcAddress_v2") : NULL;
    Launch launch; LaunchEx launch_ex; Graph graph; Wait wait; unsigned long *sum; void *none = NULL;
    if (!find || find("cuLaunchKernel", (void **)&launch, 12080, 0, NULL) || find("cuLaunchKernelEx", (void **)&launch_ex, 12080, 0, NULL) ||
        find("cuStreamSynchronize", (void **)&wait, 12080, 0, NULL) || find("sum", (void **)&sum, 12080, 0, NULL)) return 2;
    if (find("cuNothing", &none, 12080, 0, NULL) != 500 || none || dlsym(driver, "cuNothing") || !dlerror()) return 3;
    graph = (Graph)dlsym(driver, "cuGraphLaunch");
    for (int step = 0; step < 3; step++) {
        Config config = {{2, 3, 4}, {64, 1, 1}, 1000, NULL};
        launch((void *)10, 1, 2, 3, 4, 5, 6, 7, (void *)8, (void *)9, (void *)100);
        launch((void *)20, step, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        launch_ex(&config, (void *)10, NULL, NULL);
        graph((void *)5, NULL);
        if (wait(NULL) || wait((void *)1) != 400) return 4;
    }
    if (*sum != 3 * (155 + 56 + 1000) + 3) return 5;
    /* The next library after the program is the preloaded one, and after that it is not. */
    unsigned long (*count)(void) = (unsigned long (*)(void))dlsym(RTLD_NEXT, "roofgap_launch_count");
    printf("%lu\n", count ? count() : 0);
    return 0;
}
#endif
