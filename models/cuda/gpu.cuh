// All of CUDA that kernels use, behind one class: places of threads, memory, barriers, tensor cores, and every line of PTX.
// Where a host compiler compiles kernels, the emulation (tests/simt/) takes its place and checks what is said here.
//
// What kernels keep to: blocks of one dimension, a multiple of 32 threads; a barrier is reached by all threads of its block from
// one place of the source, an operation of a warp by all 32 lanes; global memory is touched by load and store alone, aligned to
// the size of what is moved, up to 16 bytes at a time; no atomics; what depends on the number of SMs changes no bit.
//
// A kernel is a struct with its arguments as members, `kThreads`, and operator()(const Gpu&).
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "memory/bfloat16.h"
#include "memory/error.h"

#define SPILLWAY_GPU __device__ __forceinline__
#define SPILLWAY_UNROLL _Pragma("unroll")
#define SPILLWAY_NO_UNROLL _Pragma("unroll 1")

namespace spillway::cuda {

// A place in the shared memory of a block.
template <typename T>
class Shared {
 public:
  SPILLWAY_GPU explicit Shared(std::byte* at) : at_(reinterpret_cast<T*>(at)) {}
  SPILLWAY_GPU Shared operator+(std::int64_t elements) const { return Shared(reinterpret_cast<std::byte*>(at_ + elements)); }
  template <typename U>
  SPILLWAY_GPU Shared<U> as() const {
    return Shared<U>(reinterpret_cast<std::byte*>(at_));
  }
  SPILLWAY_GPU T* data() const { return at_; }
  // As instructions on shared memory take it.
  SPILLWAY_GPU unsigned address() const { return static_cast<unsigned>(__cvta_generic_to_shared(at_)); }

 private:
  T* at_;
};

class Gpu {
 public:
  SPILLWAY_GPU int thread() const { return static_cast<int>(threadIdx.x); }
  SPILLWAY_GPU int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  SPILLWAY_GPU int warp() const { return static_cast<int>(threadIdx.x) / 32; }
  SPILLWAY_GPU std::int64_t block() const { return blockIdx.x; }
  SPILLWAY_GPU std::int64_t blocks() const { return gridDim.x; }

  // --- memory ---

  template <typename T>
  SPILLWAY_GPU T load(const T* from) const {
    return get(from);
  }
  template <typename T>
  SPILLWAY_GPU void store(T* to, const std::type_identity_t<T>& x) const {
    put(to, x);
  }
  // Of this block, from a byte of what the launch gave it.
  template <typename T>
  SPILLWAY_GPU Shared<T> shared(std::int64_t byte = 0) const {
    extern __shared__ __align__(1024) std::byte all[];
    return Shared<T>(all + byte);
  }
  template <typename T>
  SPILLWAY_GPU T load(Shared<T> from) const {
    return get(from.data());
  }
  template <typename T>
  SPILLWAY_GPU void store(Shared<T> to, const std::type_identity_t<T>& x) const {
    put(to.data(), x);
  }
  // 16 bytes, or zeros where they are not there: on their way until this thread has waited for the group that it was committed
  // with; other threads see them behind a barrier after that. Nobody touches their place meanwhile.
  template <typename T>
  SPILLWAY_GPU void copy_16(Shared<T> to, const T* from, bool is_there = true) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.address()), "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
  }
  SPILLWAY_GPU void commit_copies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Until no more groups than `left` of this thread's are on their way.
  template <int left>
  SPILLWAY_GPU void wait_for_copies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
  }

  // --- with others ---

  SPILLWAY_GPU void sync() const { __syncthreads(); }
  SPILLWAY_GPU void sync_warp() const { __syncwarp(); }
  // What the lane has whose number differs in the bits of the mask.
  template <typename T>
  SPILLWAY_GPU T shuffle_xor(T x, int mask) const {
    return __shfl_xor_sync(0xffffffffu, x, mask);
  }
  // c += a b, of 16 x 16 and 16 x 8 numbers of type T, in the fragments of mma.m16n8k16.
  template <typename T>
  SPILLWAY_GPU void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) const {
    if constexpr (std::is_same_v<T, BFloat16>) {
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
  // Two numbers, rounded, in the order in which fragments and memory have them.
  template <typename T>
  SPILLWAY_GPU std::uint32_t pack(float first, float second) const {
    std::uint32_t both;
    if constexpr (std::is_same_v<T, BFloat16>) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    }
    return both;
  }
  // Four matrices of 8 x 8 numbers of 16 bits: lanes 8 i to 8 i + 7 name the rows of the i-th. Each lane gets two neighbours of
  // row lane / 4; transposed, of column lane / 4.
  template <typename T>
  SPILLWAY_GPU void load_matrices(std::uint32_t (&registers)[4], Shared<T> row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(row.address())
                 : "memory");
  }
  template <typename T>
  SPILLWAY_GPU void load_transposed(std::uint32_t (&registers)[4], Shared<T> row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(row.address())
                 : "memory");
  }

  // --- arithmetic that rounds each operation to the nearest, fused with no other ---

  static SPILLWAY_GPU float add(float a, float b) { return __fadd_rn(a, b); }
  static SPILLWAY_GPU float multiply(float a, float b) { return __fmul_rn(a, b); }
  static SPILLWAY_GPU float divide(float a, float b) { return __fdiv_rn(a, b); }
  static SPILLWAY_GPU float root(float x) { return __fsqrt_rn(x); }

  // --- arithmetic that has an instruction of its own, which rounds a little differently ---

  SPILLWAY_GPU float exp2(float x) const {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  SPILLWAY_GPU float reciprocal(float x) const {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  SPILLWAY_GPU float reciprocal_sqrt(float x) const {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

 private:
  // Sixteen bytes as one instruction moves them; structs of so many would otherwise go word by word.
  template <typename T>
  static SPILLWAY_GPU T get(const T* from) {
    if constexpr (sizeof(T) == 16) {
      const uint4 bits = *reinterpret_cast<const uint4*>(from);
      T x;
      memcpy(&x, &bits, 16);
      return x;
    } else {
      return *from;
    }
  }
  template <typename T>
  static SPILLWAY_GPU void put(T* to, const T& x) {
    if constexpr (sizeof(T) == 16) {
      uint4 bits;
      memcpy(&bits, &x, 16);
      *reinterpret_cast<uint4*>(to) = bits;
    } else {
      *to = x;
    }
  }
};

struct Grid {
  std::int64_t blocks = 1;
  std::int64_t shared_bytes = 0;  // of a block
};

// Where launches go: a stream of the runtime's.
class Queue {
 public:
  explicit Queue(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_;
};

// A kernel may say how few blocks of it an SM need have room for, `kBlocks`, where it wants more registers than the compiler
// thinks worth while; 0 leaves that to the compiler.
template <typename K>
constexpr int blocks_of_sm() {
  if constexpr (requires { K::kBlocks; }) {
    return K::kBlocks;
  } else {
    return 0;
  }
}

template <typename K>
__global__ void __launch_bounds__(K::kThreads, blocks_of_sm<K>()) run_kernel(const __grid_constant__ K kernel) {
  kernel(Gpu());
}

// Enqueues kernel(gpu) for each thread of a grid of blocks of K::kThreads.
template <typename K>
void launch(Queue& queue, const Grid& grid, const K& kernel) {
  constexpr std::int64_t without_asking = 48 << 10;
  cudaError_t error = cudaSuccess;
  if (grid.shared_bytes > without_asking)
    error = cudaFuncSetAttribute(run_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared_bytes));
  if (error == cudaSuccess) {
    run_kernel<K>
        <<<static_cast<unsigned>(grid.blocks), K::kThreads, static_cast<std::size_t>(grid.shared_bytes), queue.stream()>>>(
            kernel);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess)
    throw Error(1,
                fmt::format("a kernel's launch failed: {} ({} blocks of {} threads, {} bytes of shared memory)",
                            cudaGetErrorString(error), grid.blocks, K::kThreads, grid.shared_bytes),
                "This is a fault of spillway or of the device: see the kernel's log.");
}

}  // namespace spillway::cuda

#else  // the emulation

#include <simt/gpu.h>

namespace spillway::cuda {
using simt::Gpu;
using simt::Grid;
using simt::launch;
using simt::Queue;
using simt::Shared;
}  // namespace spillway::cuda

#endif
