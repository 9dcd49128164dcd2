/* A stand-in for libcupti: the functions the collector uses, and a few of its own (standin_*) with which a test program
 * plays work. Records are laid out by offset as CUPTI 13.0 has them. Built with -DOLD it is a CUPTI that cannot choose
 * calls one by one, like those before 12.9; with -DSMALL its records are as short as those of 11.8. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef SMALL
enum { KERNEL = 200, COPY = 88, SET = 88, GRAPH = 48, DEVICE = 176, CALL = 40 };
#else
enum { KERNEL = 216, COPY = 96, SET = 88, GRAPH = 56, DEVICE = 184, CALL = 40 };
#endif
enum { PEER = 96 };

typedef void (*requested_fn)(uint8_t **, size_t *, size_t *);
typedef void (*completed_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static requested_fn requested;
static completed_fn completed;
static uint8_t *buffer;
static size_t size, used, dropped;
static uint32_t correlation = 1;
static int enabled[64];
static int calls[2][1000];
/* Whether the program has a context, and whether records of runtime and driver calls were on when it was created. */
static int context, live[2];
static int promised;
static void (*callback)(void *, uint32_t, uint32_t, const void *);
static int called_back[4][1000];

/* Arguments of the call that is told to the subscriber. */
static __thread const void *arguments;

struct callback_data {
    uint32_t site;
    const char *name;
    const void *parameters;
    const uint32_t *result;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *ours;
    uint32_t correlation;
};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, 4); }
static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, 8); }
static void put_pointer(uint8_t *at, const void *value) { memcpy(at, &value, 8); }

static size_t length_of(uint32_t kind) {
    switch (kind) {
    case 1: return COPY;
    case 2: return SET;
    case 3: case 10: return KERNEL;
    case 4: case 5: return CALL;
    case 8: return DEVICE;
    case 22: return PEER;
    case 51: return GRAPH;
    default: return 0;
    }
}

/* A zeroed record of the kind, or null when it is not asked for or there is no buffer. Called with the lock held. */
static uint8_t *record(uint32_t kind) {
    size_t length = length_of(kind);
    if (!requested) return NULL;
    if (buffer && used + length > size) {
        uint8_t *full = buffer;
        buffer = NULL;
        completed(NULL, 0, full, size, used);
    }
    if (!buffer) {
        size_t most = 0;
        requested(&buffer, &size, &most);
        used = 0;
        if (!buffer) {
            dropped++;
            return NULL;
        }
        if (!promised) memset(buffer, 0, size);
    }
    uint8_t *at = buffer + used;
    for (size_t byte = 0; byte < length; byte++)
        if (at[byte]) abort(); /* the promise of zeroed buffers was broken */
    used += length;
    put32(at, kind);
    return at;
}

/* CUPTI records single calls only if some were on when the context was created. */
static void create_context(void) {
    if (context) return;
    context = 1;
    for (int number = 0; number < 1000; number++) live[0] |= calls[0][number], live[1] |= calls[1][number];
}

static void call_record(int driver, uint32_t number, uint32_t id, uint64_t start, uint64_t end) {
    create_context();
    if (!enabled[driver ? 4 : 5] && !(calls[driver][number] && live[driver])) return;
    uint8_t *at = record(driver ? 4 : 5);
    if (!at) return;
    put32(at + 4, number);
    put64(at + 8, start);
    put64(at + 16, end);
    put32(at + 28, (uint32_t)pthread_self());
    put32(at + 32, id);
}

/* What another thread does while the next runtime call runs. */
void (*standin_during)(void);

/* Tells the subscriber about a call, from its entry to its exit; a runtime call contains one of the driver. As in CUPTI, a thread whose
   call returns after it was turned off is lost: none of its calls is told any more. */
static void call_back(uint32_t domain, uint32_t number, uint32_t id, uint32_t inner) {
    static __thread int lost;
    static const uint32_t result = 0;
    uint64_t ours = 0;
    struct callback_data data = {0, "", arguments, &result, "", &lock, 1, &ours, id};
    if (lost || !called_back[domain][number]) return;
    callback(NULL, domain, number, &data);
    if (inner) call_back(1, inner, id, 0);
    void (*during)(void) = standin_during;
    standin_during = NULL;
    if (during) during();
    data.site = 1;
    lost = !called_back[domain][number];
    if (!lost) callback(NULL, domain, number, &data);
}

uint32_t cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t number) {
    if (subscriber != &lock) return 1;
    called_back[domain][number] = (int)on;
    return 0;
}

uint32_t cuptiGetVersion(uint32_t *version) {
    *version = 130001;
    return 0;
}

uint32_t cuptiGetTimestamp(uint64_t *time) {
    *time = now();
    return 0;
}

uint32_t cuptiGetResultString(uint32_t result, const char **text) {
    *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

uint32_t cuptiSubscribe(void **subscriber, void (*call)(void *, uint32_t, uint32_t, const void *), void *data) {
    callback = call;
    (void)data;
    const char *answer = getenv("STANDIN_SUBSCRIBE");
    *subscriber = &lock;
    return answer ? (uint32_t)atoi(answer) : 0;
}

struct subscriber_params {
    size_t size;
    const char *name;
    char *other;
    size_t length;
};

uint32_t cuptiSubscribe_v2(void **subscriber, void (*call)(void *, uint32_t, uint32_t, const void *), void *data,
                           struct subscriber_params *params) {
    uint32_t answer = cuptiSubscribe(subscriber, call, data);
    if (answer == 39 && params->size >= sizeof *params) strncpy(params->other, "CUPTI for Monitor", params->length);
    return answer;
}

uint32_t cuptiUnsubscribe(void *subscriber) {
    (void)subscriber;
    callback = NULL;
    return 0;
}

uint32_t cuptiActivityRegisterCallbacks(requested_fn ask, completed_fn give) {
    requested = ask;
    completed = give;
    return 0;
}

uint32_t cuptiActivitySetAttribute(uint32_t attribute, size_t *length, void *value) {
    if (*length != 1 || attribute != 5) return 1;
    promised = *(uint8_t *)value;
    return 0;
}

/* Only some GPUs time kernels themselves, and only if that is requested before there is a context. */
uint32_t cuptiActivityEnableHWTrace(uint8_t on) {
    return on && getenv("STANDIN_HARDWARE") && !context ? 0 : 27;
}

uint32_t cuptiActivityDisable(uint32_t kind) {
    if (kind >= 64 || !enabled[kind]) return 1;
    enabled[kind] = 0;
    return 0;
}

/* How many kinds, calls and callbacks are on: 0 is what a dormant collector must leave. */
int standin_active(void) {
    int active = 0;
    for (int kind = 0; kind < 64; kind++) active += enabled[kind];
    for (int number = 0; number < 1000; number++)
        active += calls[0][number] + calls[1][number] + called_back[1][number] + called_back[2][number] + called_back[3][number];
    return active;
}

/* Whether anybody subscribed. */
int standin_subscribed(void) { return callback != NULL; }

uint32_t cuptiActivityEnable(uint32_t kind) {
    const char *refuse = getenv("STANDIN_REFUSE");
    if (refuse && (uint32_t)atoi(refuse) == kind) return 999;
    if (kind < 64) enabled[kind] = 1;
    if (kind == 8) {
        pthread_mutex_lock(&lock);
        uint8_t *at = record(8);
        if (at) {
            put64(at + 8, 4800000000u);
            put64(at + 16, 150000000000u);
            put32(at + 28, 62914560);
            put32(at + 36, 1980000);
            put32(at + 44, 132);
            put32(at + 104, 9);
            put32(at + 112, 0);
            put_pointer(at + 136, "Stand-in H200");
            at[144] = 1;
        }
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

#ifndef OLD
uint32_t cuptiActivityEnableRuntimeApi(uint32_t number, uint8_t on) {
    calls[0][number] = on;
    return 0;
}

uint32_t cuptiActivityEnableDriverApi(uint32_t number, uint8_t on) {
    calls[1][number] = on;
    return 0;
}
#endif

uint32_t cuptiGetCallbackName(uint32_t domain, uint32_t number, const char **name) {
    static const struct { uint32_t domain, number; const char *name; } names[] = {
        {2, 17, "cudaGetDevice_v3020"},         {2, 41, "cudaMemcpyAsync_v3020"},
        {2, 51, "cudaMemsetAsync_v3020"},       {2, 131, "cudaStreamSynchronize_v3020"},
        {2, 211, "cudaLaunchKernel_v7000"},     {2, 311, "cudaGraphLaunch_v10000"},
        {1, 307, "cuLaunchKernel"},             {1, 5, "cuDeviceGetAttribute"},
        {2, 135, "cudaEventRecord_v3020"},      {1, 92, "cuEventRecord"},
        {2, 137, "cudaEventSynchronize_v3020"}, {1, 94, "cuEventSynchronize"},
        {2, 295, "cudaStreamWaitEvent_v3020"},  {1, 295, "cuStreamWaitEvent"},
        {1, 126, "cuStreamSynchronize"},
    };
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        if (names[at].domain == domain && names[at].number == number) {
            *name = names[at].name;
            return 0;
        }
    return 1;
}

uint32_t cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    pthread_mutex_lock(&lock);
    if (buffer) {
        uint8_t *full = buffer;
        buffer = NULL;
        completed(NULL, 0, full, size, used);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

uint32_t cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **next) {
    size_t at = 0;
    if (*next) {
        uint32_t kind;
        memcpy(&kind, *next, 4);
        at = (size_t)(*next - from) + length_of(kind);
    }
    if (at >= valid) return 12;
    *next = from + at;
    return 0;
}

uint32_t cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    (void)context;
    (void)stream;
    pthread_mutex_lock(&lock);
    *count = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* One launch through the runtime (or the driver), and the kernel it starts. */
void standin_launch(const char *name, uint32_t grid, int driver) {
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    pthread_mutex_unlock(&lock);
    if (driver) call_back(1, 307, id, 0);
    else call_back(2, 211, id, 307);
    pthread_mutex_lock(&lock);
    uint64_t start = now();
    call_record(driver, driver ? 307 : 211, id, start, start + 500);
    uint8_t *at = enabled[10] ? record(10) : enabled[3] ? record(3) : NULL;
    if (at) {
        uint16_t registers = 40;
        memcpy(at + 6, &registers, 2);
        put64(at + 16, start + 1000);
        put64(at + 24, start + 3000);
        put32(at + 40, 0);
        put32(at + 44, 1);
        put32(at + 48, strcmp(name, "kernel_c") ? 7 : 8);
        put32(at + 52, grid), put32(at + 56, 1), put32(at + 60, 1);
        put32(at + 64, 128), put32(at + 68, 1), put32(at + 72, 1);
        put32(at + 76, 1024);
        put32(at + 80, 2048);
        put32(at + 92, id);
        put_pointer(at + 104, name);
    }
    pthread_mutex_unlock(&lock);
    while (now() < start + 2000) { /* no launch takes less */
    }
}

/* A launch whose thread ends inside it: its entry is called back, its return is not. */
void standin_end_in_launch(void) {
    static const uint32_t result = 0;
    uint64_t ours = 0;
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    pthread_mutex_unlock(&lock);
    struct callback_data data = {0, "", NULL, &result, "", NULL, 1, &ours, id};
    if (called_back[2][211]) callback(NULL, 2, 211, &data);
    pthread_exit(NULL);
}

/* A call that is not worth recording. */
void standin_query(void) {
    pthread_mutex_lock(&lock);
    call_back(2, 17, correlation, 0);
    call_record(0, 17, correlation++, now(), now());
    pthread_mutex_unlock(&lock);
}

/* A graph of `nodes` kernels, node by node or as a whole. */
void standin_graph(const char *name, uint32_t nodes) {
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    uint64_t start = now();
    call_back(2, 311, id, 0);
    call_record(0, 311, id, start, start + 900);
    if (enabled[51]) {
        uint8_t *at = record(51);
        if (at) {
            put32(at + 4, id);
            put64(at + 8, start + 1000);
            put64(at + 16, start + 1000 + nodes * 100);
            put32(at + 28, 5);
            put32(at + 32, 1);
            put32(at + 36, 7);
        }
    } else {
        for (uint32_t node = 0; node < nodes; node++) {
            uint8_t *at = enabled[10] ? record(10) : enabled[3] ? record(3) : NULL;
            if (!at) continue;
            if (enabled[10]) { /* the serial kind has no times for kernels of graphs */
                put64(at + 16, start + 1000 + node * 100);
                put64(at + 24, start + 1080 + node * 100);
            }
            put32(at + 44, 1);
            put32(at + 48, 7);
            put32(at + 52, 4), put32(at + 56, 1), put32(at + 60, 1);
            put32(at + 64, 64), put32(at + 68, 1), put32(at + 72, 1);
            put32(at + 92, id);
            put_pointer(at + 104, name);
            put64(at + 144, node + 1);
            put32(at + 156, 5);
        }
    }
    pthread_mutex_unlock(&lock);
}

struct graph_data {
    void *graph, *original_graph, *node, *original_node;
    uint32_t node_kind;
    void *dependency, *executable;
};

struct resource_data {
    void *context, *handle;
    const void *descriptor;
};

/* A node stands for itself: its handle is its id. Node 13 is one that CUPTI does not know. */
uint32_t cuptiGetGraphNodeId(void *node, uint64_t *id) {
    *id = (uint64_t)node;
    return *id == 13;
}

/* A node is added to a graph, or cloned from another where `original` is not 0. */
void standin_node(uint64_t node, uint64_t original) {
    uint32_t number = original ? 20 : 13;
    struct graph_data graph = {NULL, NULL, (void *)node, (void *)original, 0, NULL, NULL};
    struct resource_data data = {NULL, NULL, &graph};
    if (called_back[3][number]) callback(NULL, 3, number, &data);
}

/* A copy to the device, a memory set, a copy between devices, and a wait for the stream. */
void standin_memory(uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    uint64_t start = now();
    call_back(2, 41, id, 0);
    call_record(0, 41, id, start, start + 300);
    uint8_t *at = enabled[1] ? record(1) : NULL;
    if (at) {
        at[4] = 1, at[5] = 2, at[6] = 3, at[7] = 1;
        put64(at + 8, bytes);
        put64(at + 16, start + 400);
        put64(at + 24, start + 900);
        put32(at + 36, 1);
        put32(at + 40, 13);
        put32(at + 44, id);
    }
    at = enabled[22] ? record(22) : NULL;
    if (at) {
        at[4] = 10, at[5] = 3, at[6] = 3;
        put64(at + 8, bytes + 1);
        put64(at + 16, start + 400);
        put64(at + 24, start + 900);
        put32(at + 36, 1);
        put32(at + 40, 13);
        put32(at + 60, id);
    }
    id = correlation++;
    call_record(0, 51, id, start + 300, start + 400);
    at = enabled[2] ? record(2) : NULL;
    if (at) {
        put64(at + 8, bytes + 2);
        put64(at + 16, start + 900);
        put64(at + 24, start + 950);
        put32(at + 36, 1);
        put32(at + 40, 13);
        put32(at + 44, id);
    }
    id = correlation++;
    call_record(0, 131, id, start + 400, start + 1000);
    pthread_mutex_unlock(&lock);
}

/* A handle of a stream is its id. */
uint32_t cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *id) {
    *id = (uint32_t)(uintptr_t)stream;
    return !context || per_thread;
}

/* A call with its arguments. The runtime calls the driver with the same. */
static void call_with(uint32_t runtime, uint32_t driver, uintptr_t first, uintptr_t second) {
    uintptr_t parameters[] = {first, second};
    arguments = parameters;
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    pthread_mutex_unlock(&lock);
    call_back(2, runtime, id, driver);
    pthread_mutex_lock(&lock);
    call_record(0, runtime, id, now(), now() + 300);
    pthread_mutex_unlock(&lock);
    arguments = NULL;
}

/* An event is recorded on stream 7, stream 13 waits for it, it is recorded on 13, and the thread waits for it and for stream 7. */
void standin_events(void) {
    call_with(135, 92, 0x1000, 7);
    call_with(295, 295, 13, 0x1000);
    call_with(135, 92, 0x1000, 13);
    call_with(137, 94, 0x1000, 0);
    call_with(131, 126, 7, 0);
}
