// Adds two vectors on a GPU, wherever that GPU is.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                             \
    do {                                                                                        \
        cudaError_t status = (call);                                                            \
        if (status != cudaSuccess) {                                                            \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));                \
            std::exit(EXIT_FAILURE);                                                            \
        }                                                                                       \
    } while (false)

__global__ void add(const float *a, const float *b, float *sum, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        sum[i] = a[i] + b[i];
    }
}

int main() {
    const int count = 1 << 20;
    const size_t bytes = count * sizeof(float);
    std::vector<float> a(count), b(count), sum(count);
    for (int i = 0; i < count; ++i) {
        a[i] = static_cast<float>(i % 1000);
        b[i] = 2.0f * a[i];
    }

    float *on_gpu_a = nullptr, *on_gpu_b = nullptr, *on_gpu_sum = nullptr;
    CHECK(cudaMalloc(reinterpret_cast<void **>(&on_gpu_a), bytes));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&on_gpu_b), bytes));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&on_gpu_sum), bytes));
    CHECK(cudaMemcpy(on_gpu_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(on_gpu_b, b.data(), bytes, cudaMemcpyHostToDevice));
    add<<<(count + 255) / 256, 256>>>(on_gpu_a, on_gpu_b, on_gpu_sum, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sum.data(), on_gpu_sum, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(on_gpu_a));
    CHECK(cudaFree(on_gpu_b));
    CHECK(cudaFree(on_gpu_sum));

    for (int i = 0; i < count; ++i) {
        if (sum[i] != a[i] + b[i]) {
            std::fprintf(stderr, "element %d is %f, expected %f\n", i, sum[i], a[i] + b[i]);
            return EXIT_FAILURE;
        }
    }
    std::printf("%d sums are right\n", count);
    return EXIT_SUCCESS;
}
