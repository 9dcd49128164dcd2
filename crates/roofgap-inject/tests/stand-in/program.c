/* A program for the tests: it starts the injected library the way the CUDA driver and NVTX would, works, annotates, and
 * ends as its argument says. Work is played by the stand-in CUPTI; annotations go through a client that follows NVTX's
 * protocol. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
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

static void node(uint64_t id, uint64_t original) {
    void (*run)(uint64_t, uint64_t) = (void (*)(uint64_t, uint64_t))symbol("standin_node");
    if (run) run(id, original);
}

/* Captures a graph of three nodes inside ranges of modules, and makes it executable as nodes 1 to 3. */
static void capture_modules(void) {
    push("model");
    push("layer:model.layers.0.mlp");
    node(101, 0);
    node(13, 0);
    pop();
    push("layer:model.layers.1.mlp");
    node(102, 0);
    pop();
    pop();
    node(103, 0);
    for (uint64_t id = 1; id <= 3; id++) {
        node(id, 0);
        node(id, 100 + id);
    }
}

static uint64_t start_range(const char *text) { return core[5] ? ((uint64_t(*)(const char *))core[5])(text) : 0; }

static void end_range(uint64_t range) {
    if (core[7]) ((void (*)(uint64_t))core[7])(range);
}

/* Calls a function of the injected library, as a program does through ctypes. */
static int control(const char *name) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    int (*call)(void) = library ? (int (*)(void))dlsym(library, name) : NULL;
    return call ? call() : 99;
}

static int ask(const char *name) {
    int (*call)(void) = (int (*)(void))symbol(name);
    return call ? call() : -1;
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
    play("standin_events");
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

/* Waits for the test, which closes stdin once it has read what it waits for in the capture. */
static void await_test(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
}

/* The number of the descriptor of a capture, or -1. */
static int capture_descriptor(void) {
    int found = -1;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[64], target[4096];
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 6) continue;
        target[length] = 0;
        if (!strcmp(target + length - 6, ".rgcap")) found = atoi(entry->d_name);
    }
    if (folder) closedir(folder);
    return found;
}

/* Closes everything but the standard streams, as daemons do. */
static void close_from_3(void) {
    for (int number = 3; number < 70000; number++) close(number);
}

static int victim = -1;

static int open_victim(void) {
    const char *path = getenv("VICTIM");
    int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || write(file, "precious", 8) != 8) _exit(20);
    return file;
}

/* Runs after the library has finished: its file is as the program left it, and open. */
static void check_victim(void) {
    char text[16];
    if (pread(victim, text, sizeof text, 0) != 8 || memcmp(text, "precious", 8)) _exit(21);
    if (pwrite(victim, " data", 5, 8) != 5) _exit(22);
}

static void *launch_and_end(void *unused) {
    (void)unused;
    push("ending");
    for (int at = 0; at < 3; at++) launch("kernel_thread", 2, 0);
    /* The thread ends between the entry of the call and its return. */
    play("standin_end_in_launch");
    return NULL;
}

/* Resident memory, KiB. */
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) pages = -1;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Launches SOAK_LAUNCHES kernels under ranges, in windows if SOAK_WINDOW is their length in launches. Prints the launches that
 * should be recorded and the memory that the last two thirds added, KiB; a line a minute if SOAK_LOG is set. */
static int soak(void) {
    const char *wanted = getenv("SOAK_LAUNCHES"), *length = getenv("SOAK_WINDOW");
    long launches = wanted ? atol(wanted) : 1000, window = length ? atol(length) : 0, recorded = 0, before = 0;
    int armed = window == 0;
    time_t told = time(NULL);
    llm = domain("LLM");
    for (long at = 0; at < launches; at++) {
        if (window && at % window == 0) {
            armed = !armed;
            if (control(armed ? "roofgap_arm" : "roofgap_disarm") != 0) return 38;
        }
        if (at % 1000 == 0) push_in(llm, 1, "decode_step");
        launch(at % 7 ? "kernel_a" : "kernel_b", (uint32_t)(at % 50) + 1, 0);
        recorded += armed;
        if (at % 1000 == 999) pop_in(llm);
        if (at == launches / 3) before = resident();
        if (getenv("SOAK_LOG") && time(NULL) >= told + 60) {
            told = time(NULL);
            fprintf(stderr, "%ld launches, %ld KiB resident\n", at, resident());
        }
    }
    printf("%ld %ld\n", recorded, resident() - before);
    return 0;
}

/* Becomes a daemon that uses CUDA: forks, leaves the session, closes what it inherited, and works. */
static void become_daemon(void) {
    start_nvtx();
    push("before");
    pop();
    await_test();
    if (fork() != 0) _exit(0);
    if (capture_descriptor() >= 0) _exit(23);
    setsid();
    if (chdir("/")) _exit(24);
    close_from_3();
    victim = open_victim();
    start_cuda();
    work(5);
    check_victim();
    exit(0);
}

static void disarm(void) { control("roofgap_disarm"); }

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "exit";
    if (!strcmp(how, "holds-none")) {
        puts(capture_descriptor() < 0 ? "none" : "inherited");
        return 0;
    }
    if (!strcmp(how, "daemon")) {
        /* The daemon has no parent left to wait for it, so this process adopts it. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (fork() == 0) become_daemon();
        int status, failed = 0;
        while (wait(&status) > 0) failed |= status;
        puts("done");
        return failed ? 1 : 0;
    }
    if (!strcmp(how, "close") || !strcmp(how, "reuse")) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max < 1024 ? limit.rlim_max : 1024;
        setrlimit(RLIMIT_NOFILE, &limit);
        /* Registered before the library's handler, it runs after it. */
        if (!strcmp(how, "reuse")) atexit(check_victim);
    }
    if (!strcmp(how, "nothing")) {
        /* Loads the library and never uses CUDA or NVTX. */
        const char *path = getenv("CUDA_INJECTION64_PATH");
        if (!path || !dlopen(path, RTLD_NOW)) return 3;
        puts("done");
        return 0;
    }
    if (!strcmp(how, "workers")) {
        /* A program without CUDA whose two children have it. */
        for (int at = 0; at < 2; at++)
            if (fork() == 0) {
                execl("/proc/self/exe", arguments[0], "loop", (char *)NULL);
                _exit(9);
            }
        while (wait(NULL) > 0) {
        }
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
    if (!strcmp(how, "windows")) {
        /* Two windows with gaps between, before and after them; a dormant collector leaves nothing turned on. */
        llm = domain("LLM");
        push_in(llm, 1, "decode_all");
        for (int window = 0; window < 2; window++) {
            launch("kernel_unseen", 1, 0);
            if (ask("standin_active") != 0) return 30;
            if (control("roofgap_arm") != 0) return 31;
            if (ask("standin_active") == 0) return 32;
            for (int at = 0; at < 3; at++) launch("kernel_seen", 2, at % 2);
            memory(64);
            if (control("roofgap_disarm") != 0 || control("roofgap_flush") != 0) return 33;
        }
        launch("kernel_unseen", 1, 0);
        pop_in(llm);
        if (ask("standin_active") != 0) return 34;
        puts("done");
        return 0;
    }
    if (!strcmp(how, "inside")) {
        /* Windows that end while a call runs. */
        void (**during)(void) = (void (**)(void))symbol("standin_during");
        for (int window = 0; window < 3; window++) {
            if (control("roofgap_arm") != 0) return 31;
            launch("kernel_seen", 2, 0);
            *during = disarm;
            launch("kernel_unseen", 1, 0);
            if (control("roofgap_flush") != 0) return 33;
        }
        launch("kernel_unseen", 1, 0);
        if (ask("standin_active") != 0) return 34;
        puts("done");
        return 0;
    }
    if (!strcmp(how, "lazy")) {
        /* CUPTI is not touched before the first request. */
        launch("kernel_unseen", 1, 0);
        if (ask("standin_subscribed")) return 35;
        if (control("roofgap_arm") != 0 || !ask("standin_subscribed")) return 36;
        launch("kernel_seen", 1, 0);
        puts("done");
        return 0;
    }
    if (!strcmp(how, "modules")) {
        /* A graph that is captured at the start and replayed once GPU work is recorded. */
        capture_modules();
        if (control("roofgap_arm") != 0) return 41;
        graph(3);
        puts("done");
        return 0;
    }
    if (!strcmp(how, "steps")) {
        /* A prefill and ten steps, or STEPS, each with its launches, and ranges inside them. */
        const char *steps = getenv("STEPS");
        llm = domain("LLM");
        void *step = registered(llm, "decode_step");
        push_in(llm, 1, "prefill");
        launch("kernel_prefill", 1, 0);
        pop_in(llm);
        for (int at = 0; at < (steps ? atoi(steps) : 10); at++) {
            push_in(llm, 3, step);
            push_in(llm, 1, "layer");
            for (int kernel = 0; kernel < 4; kernel++) launch("kernel_step", (uint32_t)at + 1, 0);
            pop_in(llm);
            pop_in(llm);
        }
        puts("done");
        return 0;
    }
    if (!strcmp(how, "soak")) return soak();
    if (!strcmp(how, "loop")) {
        /* Steps of two kernels until stdin ends. One that begins after a byte takes 300 ms longer. */
        llm = domain("LLM");
        struct pollfd input = {0, POLLIN, 0};
        for (;;) {
            char byte = 0;
            if (poll(&input, 1, 1) != 0 && read(0, &byte, 1) <= 0) break;
            push_in(llm, 1, "decode_step");
            launch("kernel_step", 8, 0);
            if (byte) usleep(300000);
            launch("kernel_step", 8, 0);
            pop_in(llm);
        }
        puts("done");
        return 7;
    }
    if (!strcmp(how, "secure")) {
        /* Runs with more rights than its user, who therefore must not choose where files are written. */
        printf("%lu %d\n", getauxval(AT_SECURE), control("roofgap_arm"));
        return 0;
    }
    if (!strcmp(how, "chroot") || !strcmp(how, "setuid")) {
        work(5);
        await_test();
        if (!strcmp(how, "setuid") && setuid(65534)) return 39;
        if (!strcmp(how, "chroot") && (chroot(getenv("JAIL")) || chdir("/"))) return 40;
        push("after");
        launch("kernel_after", 1, 0);
        pop();
        puts("done");
        return 0;
    }
    if (!strcmp(how, "serve")) {
        /* Works until the test has had what it wants from the socket. */
        work(5);
        await_test();
        puts("done");
        return 0;
    }
    work(5);
    if (!strcmp(how, "close") || !strcmp(how, "reuse")) {
        await_test();
        int number = capture_descriptor();
        if (number < 512 || !(fcntl(number, F_GETFD) & FD_CLOEXEC)) return 25;
        close_from_3();
        if (!strcmp(how, "reuse")) {
            int file = open_victim();
            victim = dup2(file, number);
        }
        push("after");
        pop();
    }
    if (!strcmp(how, "end-in-launch")) {
        for (int round = 0; round < 10; round++) {
            pthread_t threads[8];
            for (int at = 0; at < 8; at++) pthread_create(&threads[at], NULL, launch_and_end, NULL);
            for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL);
        }
    }
    if (!strcmp(how, "exec-check")) {
        if (capture_descriptor() < 0) return 26;
        execl("/proc/self/exe", arguments[0], "holds-none", (char *)NULL);
        return 9;
    }
    if (!strcmp(how, "_exit") || !strcmp(how, "kill") || !strcmp(how, "term") || !strcmp(how, "crash") ||
        !strcmp(how, "exec")) {
        push("never closed");
        await_test();
        fflush(stdout);
        if (!strcmp(how, "_exit")) _exit(7);
        if (!strcmp(how, "term")) kill(getpid(), SIGTERM);
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
        await_test();
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
        /* What cannot be written is not recorded either. */
        for (int at = 0; ask("standin_active") != 0; at++) {
            if (at == 1000) return 37;
            usleep(10000);
        }
    }
    puts("done");
    return 0;
}
