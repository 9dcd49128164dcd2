/* A program for the tests: it starts the injected library the way the CUDA driver and NVTX would, works, annotates, and
 * ends as its argument says. Work is played by the stand-in CUPTI; annotations go through a client that follows NVTX's
 * protocol. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

typedef void (*function)(void);

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_kind;
    uint32_t color;
    int32_t payload_kind, reserved;
    uint64_t payload;
    int32_t message_kind;
    const void *message;
};

static function core[16], core2[16];
static function *core_table[17], *core2_table[17];

static int get_module(uint32_t module, function ***table, unsigned *size) {
    for (int at = 0; at < 16; at++) core_table[at] = &core[at], core2_table[at] = &core2[at];
    *table = module == 1 ? core_table : module == 5 ? core2_table : NULL;
    *size = 17;
    return *table != NULL;
}

static struct {
    size_t size;
    int (*get)(uint32_t, function ***, unsigned *);
} callbacks = {sizeof callbacks, get_module};

static const void *get_export(uint32_t table) { return table == 1 ? &callbacks : NULL; }

static void start_nvtx(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    if (!library) return;
    int (*start)(const void *(*)(uint32_t)) = (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2");
    if (!start || !start(get_export)) {
        memset(core, 0, sizeof core);
        memset(core2, 0, sizeof core2);
        dlclose(library);
    }
}

static void start_cuda(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    if (!library) return;
    int (*start)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (start) start();
}

static void *symbol(const char *name) {
    static void *library;
    const char *path = getenv("CUPTI_LIBRARY");
    if (!library && path) library = dlopen(path, RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

static void launch(const char *name, uint32_t grid, int driver) {
    void (*play)(const char *, uint32_t, int) = (void (*)(const char *, uint32_t, int))symbol("standin_launch");
    if (play) play(name, grid, driver);
}

static void play(const char *what) {
    void (*run)(void) = (void (*)(void))symbol(what);
    if (run) run();
}

static void graph(uint32_t nodes) {
    void (*run)(const char *, uint32_t) = (void (*)(const char *, uint32_t))symbol("standin_graph");
    if (run) run("graph_kernel", nodes);
}

static void memory(uint64_t bytes) {
    void (*run)(uint64_t) = (void (*)(uint64_t))symbol("standin_memory");
    if (run) run(bytes);
}

static void *domain(const char *name) { return core2[12] ? ((void *(*)(const char *))core2[12])(name) : NULL; }

static void *registered(void *domain, const char *text) {
    return core2[10] ? ((void *(*)(void *, const char *))core2[10])(domain, text) : NULL;
}

static void push_in(void *domain, int kind, const void *message) {
    struct attributes event = {3, sizeof event, 0, 0, 0, 1, 0, 42, kind, message};
    if (core2[4]) ((int (*)(void *, const struct attributes *))core2[4])(domain, &event);
}

static void pop_in(void *domain) {
    if (core2[5]) ((int (*)(void *))core2[5])(domain);
}

static void push(const char *text) {
    if (core[9]) ((int (*)(const char *))core[9])(text);
}

static void pop(void) {
    if (core[11]) ((int (*)(void))core[11])();
}

static uint64_t start_range(const char *text) { return core[5] ? ((uint64_t(*)(const char *))core[5])(text) : 0; }

static void end_range(uint64_t range) {
    if (core[7]) ((void (*)(uint64_t))core[7])(range);
}

static void *llm;

/* What every scenario does first: a prefill of three launches and two decode steps. */
static void work(int launches) {
    llm = domain("LLM");
    void *step = registered(llm, "decode_step");
    push_in(llm, 1, "prefill");
    push("sam");
    for (int at = 0; at < launches; at++) launch(at % 2 ? "kernel_b" : "kernel_a", (uint32_t)(1 + at % 3), at % 5 == 4);
    pop();
    pop_in(llm);
    uint64_t range = start_range("request");
    push_in(llm, 2, L"decode_all");
    for (int at = 0; at < 2; at++) {
        push_in(llm, 3, step);
        launch("kernel_c", 9, 0);
        play("standin_query");
        pop_in(llm);
    }
    pop_in(llm);
    end_range(range);
    memory(4096);
    graph(3);
    if (core[2]) ((void (*)(const char *))core[2])("done");
}

static void *annotate(void *name) {
    for (int at = 0; at < 50; at++) {
        push(name);
        pop();
    }
    return NULL;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "exit";
    if (!strcmp(how, "nothing")) {
        /* Loads the library and never uses CUDA or NVTX. */
        const char *path = getenv("CUDA_INJECTION64_PATH");
        if (!path || !dlopen(path, RTLD_NOW)) return 3;
        puts("done");
        return 0;
    }
    if (strcmp(how, "cuda-only")) start_nvtx();
    if (strcmp(how, "nvtx-only") && strcmp(how, "fork-first")) start_cuda();
    if (!strcmp(how, "fork-first")) {
        /* The parent annotates; the child is the one that starts CUDA. */
        llm = domain("LLM");
        push_in(llm, 1, "parent");
        pop_in(llm);
        pid_t child = fork();
        if (child == 0) {
            start_cuda();
            push_in(llm, 1, "child");
            launch("child_kernel", 1, 0);
            pop_in(llm);
            exit(0);
        }
        waitpid(child, NULL, 0);
        return 0;
    }
    if (!strcmp(how, "many")) {
        /* A capture of some size: 100,000 launches. */
        llm = domain("LLM");
        for (int step = 0; step < 2000; step++) {
            push_in(llm, 1, "decode_step");
            for (int at = 0; at < 50; at++) launch("kernel_many", 8, 0);
            pop_in(llm);
        }
        return 0;
    }
    work(5);
    if (!strcmp(how, "_exit") || !strcmp(how, "kill") || !strcmp(how, "crash") || !strcmp(how, "exec")) {
        usleep(1500000);
        push("never closed");
        usleep(500000);
        fflush(stdout);
        if (!strcmp(how, "_exit")) _exit(7);
        if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
        if (!strcmp(how, "crash")) raise(SIGSEGV);
        execl("/proc/self/exe", arguments[0], "nvtx-only", (char *)NULL);
        return 9;
    }
    if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            push("in the child");
            pop();
            exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        push("after the fork");
        pop();
    }
    if (!strcmp(how, "threads")) {
        for (int round = 0; round < 40; round++) {
            pthread_t threads[8];
            for (int at = 0; at < 8; at++) pthread_create(&threads[at], NULL, annotate, "worker");
            for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL);
        }
    }
    if (!strcmp(how, "full")) {
        usleep(1000000);
        /* No file may grow beyond a little: writing fails as on a full disk. */
        struct rlimit limit = {4096, 4096};
        setrlimit(RLIMIT_FSIZE, &limit);
        char text[64];
        for (int at = 0; at < 20000; at++) {
            snprintf(text, sizeof text, "text %d of many %d", at, at * 7919);
            push(text);
            pop();
            if (at % 1000 == 0) usleep(20000);
        }
    }
    puts("done");
    return 0;
}
