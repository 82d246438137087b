/* A stand-in for CUDA's driver library, so that the agent's own ctypes path runs in tests. It tells what MOCK_CUDA_* says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 3 };

static int initialized;

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static int code(const char *name) {
    return initialized ? atoi(setting(name, "0")) : NOT_INITIALIZED;
}

int cuInit(unsigned int flags) {
    (void)flags;
    printf("the library talks on stdout\n");
    fflush(stdout);
    if (getenv("MOCK_CUDA_CRASH")) raise(SIGSEGV);
    if (getenv("MOCK_CUDA_HANG")) for (;;) pause();
    initialized = 1;
    return code("MOCK_CUDA_INIT");
}
int cuGetErrorName(int error, const char **name) {
    (void)error;
    *name = "AS_THE_MOCK_WAS_TOLD";
    return SUCCESS;
}
int cuDeviceGetCount(int *count) {
    /* What the login's environment hides is not counted. */
    *count = getenv("CUDA_VISIBLE_DEVICES") ? 0 : atoi(setting("MOCK_CUDA_COUNT", "1"));
    return code("MOCK_CUDA_LIST");
}
int cuDeviceGet(int *device, int index) {
    *device = 10 + index;
    return code("MOCK_CUDA_DEVICE");
}
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    strncpy(name, setting("MOCK_CUDA_NAME", "Orin"), (size_t)length - 1);
    return code("MOCK_CUDA_NAMELESS");
}
#ifndef WITHOUT_UUID
int cuDeviceGetUuid(unsigned char uuid[16], int device) {
    memset(uuid, setting("MOCK_CUDA_UUID", "1")[0] - '0', 16);
    uuid[15] += (unsigned char)(device - 10);
    return code("MOCK_CUDA_NO_UUID");
}
#endif
#ifndef WITHOUT_MEMORY
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)strtoull(setting("MOCK_CUDA_MEMORY", "65893945344"), NULL, 10) + ((size_t)(device - 10) << 30);
    return code("MOCK_CUDA_NO_MEMORY");
}
#endif
