/* A stand-in for NVIDIA's NVML library, so that pynvml's own ctypes path runs in tests. It tells what MOCK_NVML_* says.
   WITHOUT_FUNCTIONS leaves out all of them: such a library loads, and nothing in it can be called. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, DRIVER_NOT_LOADED = 9, UNKNOWN = 999 };

#ifndef WITHOUT_FUNCTIONS

typedef struct { unsigned long long total, free, used; } memory_t;

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static int copy(char *into, unsigned int length, const char *text) {
    strncpy(into, text, length - 1);
    into[length - 1] = 0;
    return SUCCESS;
}

/* Opens a device file as the driver's library does. Codes: nvml.h, nvmlInit_v2; EPERM is a device cgroup's verdict
   (driver 580.159.04 in a container of runc). */
static int open_device(const char *path) {
    int device = open(path, O_RDWR | O_CLOEXEC);
    if (device >= 0) return close(device) ? UNKNOWN : SUCCESS;
    if (errno == EACCES) return NO_PERMISSION;
    return errno == ENOENT ? DRIVER_NOT_LOADED : UNKNOWN;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    printf("the library talks on stdout\n");
    fflush(stdout);
    if (getenv("MOCK_NVML_CRASH")) raise(SIGSEGV);
    if (getenv("MOCK_NVML_HANG")) for (;;) pause();
    const char *device = getenv("MOCK_NVML_DEVICE");
    return device ? open_device(device) : atoi(setting("MOCK_NVML_INIT", "0"));
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); } /* go-nvml's, which KAI's program has */
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "as the mock was told"; }
int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return copy(version, length, setting("MOCK_NVML_DRIVER", "540.4.0"));
}
int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = (unsigned int)atoi(setting("MOCK_NVML_COUNT", "1"));
    return atoi(setting("MOCK_NVML_LIST", "0"));
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    (void)device;
    return copy(name, length, setting("MOCK_NVML_NAME", "Orin (nvgpu)"));
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    char text[96];
    if (getenv("MOCK_NVML_NO_UUID")) return NOT_SUPPORTED;
    snprintf(text, sizeof text, "%s%zu", setting("MOCK_NVML_UUID", "54c53ba5-2d3b-5e8a-9d9d-7a21d6a0a1b"), (size_t)device);
    return copy(uuid, length, text);
}
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    (void)device;
    const char *bytes = getenv("MOCK_NVML_MEMORY");
    if (!bytes) return NOT_SUPPORTED;
    memory->total = strtoull(bytes, NULL, 10);
    memory->free = memory->total;
    memory->used = 0;
    return SUCCESS;
}
#endif
