// All of CUDA that kernels use, behind one class: places of threads, memory, barriers, tensor cores, and every line of PTX.
// Where a host compiler compiles kernels, the emulation (tests/simt/) takes its place and checks the rules below.
//
// Rules for kernels: blocks have one dimension and a multiple of 32 threads. All threads of a block reach a barrier from one
// place of the source; all 32 lanes of a warp reach an operation of the warp together. Global memory is touched by load and store
// alone, aligned to the size of what is moved, up to 16 bytes at a time. There are no atomics. What depends on the number of SMs
// changes no bit.
//
// A kernel is a struct with its arguments as members, `kThreads`, and operator()(const Gpu&).
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "memory/base/bfloat16.h"
#include "memory/base/error.h"

#define SPILLWAY_GPU __device__ __forceinline__
#define SPILLWAY_UNROLL _Pragma("unroll")
#define SPILLWAY_NO_UNROLL _Pragma("unroll 1")

// --- wgmma of n = 64 or 128 columns: its sums are the first 32 or 64 operands ---

#define SPILLWAY_FOUR(how, c, i) how(c[i][0]), how(c[i][1]), how(c[i][2]), how(c[i][3])
#define SPILLWAY_SIXTEEN(how, c, i) \
  SPILLWAY_FOUR(how, c, i), SPILLWAY_FOUR(how, c, i + 1), SPILLWAY_FOUR(how, c, i + 2), SPILLWAY_FOUR(how, c, i + 3)
#define SPILLWAY_SUMS_64(how, c) SPILLWAY_SIXTEEN(how, c, 0), SPILLWAY_SIXTEEN(how, c, 4)
#define SPILLWAY_SUMS_128(how, c) SPILLWAY_SUMS_64(how, c), SPILLWAY_SIXTEEN(how, c, 8), SPILLWAY_SIXTEEN(how, c, 12)
#define SPILLWAY_NAMES_64                                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24," \
  "%25, %26, %27, %28, %29, %30, %31"
#define SPILLWAY_NAMES_128                                                                                               \
  SPILLWAY_NAMES_64                                                                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54," \
  "%55, %56, %57, %58, %59, %60, %61, %62, %63"
// Emits one wgmma. Sums are written ("=f", adds 0) or added to ("+f", 1); `sides` names the operands, which follow.
#define SPILLWAY_WGMMA(type, n, how, adds, sides, ...)                                                                   \
  asm volatile("{ .reg .pred adds; setp.ne.b32 adds, " #adds ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
               "." type " {" SPILLWAY_NAMES_##n "}, " sides "; }"                                                        \
               : SPILLWAY_SUMS_##n(how, c)                                                                               \
               : __VA_ARGS__                                                                                             \
               : "memory")
// Emits the wgmma for the type and the columns of c. Operands are numbered from the sums on.
#define SPILLWAY_WGMMA_OF(how, adds, sides_64, sides_128, ...)      \
  static_assert(eights == 8 || eights == 16);                       \
  if constexpr (std::is_same_v<T, BFloat16> && eights == 8) {       \
    SPILLWAY_WGMMA("bf16", 64, how, adds, sides_64, __VA_ARGS__);   \
  } else if constexpr (std::is_same_v<T, BFloat16>) {               \
    SPILLWAY_WGMMA("bf16", 128, how, adds, sides_128, __VA_ARGS__); \
  } else if constexpr (eights == 8) {                               \
    SPILLWAY_WGMMA("f16", 64, how, adds, sides_64, __VA_ARGS__);    \
  } else {                                                          \
    SPILLWAY_WGMMA("f16", 128, how, adds, sides_128, __VA_ARGS__);  \
  }

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
  // The address in the form that instructions on shared memory take.
  SPILLWAY_GPU unsigned address() const { return static_cast<unsigned>(__cvta_generic_to_shared(at_)); }

 private:
  T* at_;
};

// Rows of 64 numbers of 16 bits in shared memory, as products of a warpgroup take them: chunks of 16 bytes are turned within rows
// as in TileLayout<64>, and eight rows are 1024 bytes, aligned to 1024. Columns beyond the 64 lie `next_panel` elements further.
template <typename T>
class Panels {
 public:
  SPILLWAY_GPU explicit Panels(Shared<T> at, int next_panel = 0)
      : bits_(kTurned | static_cast<std::uint64_t>(next_panel) * sizeof(T) / 16 << 16 | (at.address() & 0x3ffff) / 16) {}
  // Moves on to a column that is a multiple of 16, or to a row that is a multiple of eight.
  SPILLWAY_GPU Panels operator+(int elements) const { return Panels(bits_ + elements * static_cast<int>(sizeof(T)) / 16); }
  // The descriptor of a matrix, as wgmma takes it.
  SPILLWAY_GPU std::uint64_t bits() const { return bits_; }

 private:
  // Chunks are turned within 128 bytes; the next eight rows begin 1024 bytes after the last.
  static constexpr std::uint64_t kTurned = std::uint64_t{1} << 62 | std::uint64_t{1024 / 16} << 32;
  SPILLWAY_GPU explicit Panels(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_;
};

class Gpu {
 public:
  SPILLWAY_GPU int thread() const { return static_cast<int>(threadIdx.x); }
  SPILLWAY_GPU int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  SPILLWAY_GPU int warp() const { return static_cast<int>(threadIdx.x) / 32; }
  // Returns x, which is the same in all lanes of the warp, in a form in which the compiler knows that it is.
  SPILLWAY_GPU int uniform(int x) const { return __shfl_sync(0xffffffffu, x, 0); }
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
  // This block's shared memory, from a byte of what the launch gave it.
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
  // Begins to copy 16 bytes, or zeros unless `is_there`. The copy is in flight until this thread has waited for the group that it
  // was committed with; other threads see it after a barrier behind that wait. No thread may touch its destination meanwhile.
  template <typename T>
  SPILLWAY_GPU void copy_16(Shared<T> to, const T* from, bool is_there = true) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to.address()), "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
  }
  SPILLWAY_GPU void commit_copies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Waits until at most `left` groups of this thread's copies are in flight.
  template <int left>
  SPILLWAY_GPU void wait_for_copies() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
  }

  // --- with others ---

  SPILLWAY_GPU void sync() const { __syncthreads(); }
  // Like sync(), for warps that come to it at different steps of theirs, from different instructions: the aligned bar.sync would
  // promise that they do not. `threads` is the number of all threads of the block.
  template <int threads>
  SPILLWAY_GPU void sync_steps() const {
    asm volatile("barrier.sync 1, %0;" ::"n"(threads) : "memory");
  }
  SPILLWAY_GPU void sync_warp() const { __syncwarp(); }
  // Returns the x of the lane whose number differs from this one's in the bits of the mask.
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
  // Loads four matrices of 8 x 8 numbers of 16 bits; lanes 8 i to 8 i + 7 name the rows of the i-th. Each lane gets two
  // neighbours of row lane / 4; load_transposed gives it two neighbours of column lane / 4.
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

  // --- products of a warpgroup, four warps of which the first one's number is a multiple of four: on sm_90a alone ---
  //
  // A product is in flight until the group that it was committed with is waited for; products are done in their order. Meanwhile
  // no thread may touch its sums, its left side's registers or its shared memory. All four warps do all of this together.

  // Lets products see, after the next barrier, what this thread has written to shared memory, and copies that it has waited for.
  SPILLWAY_GPU void show_to_products() const { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  // Lets the products that follow see registers as they are now.
  SPILLWAY_GPU void begin_products() const { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  // c = a b, of 64 x 16 and 16 x n numbers, rows of a by rows of b. The old content of c is not read, and takes no registers.
  template <typename T, int eights>
  SPILLWAY_GPU void multiply_rows(float (&c)[eights][4], const Panels<T>& a, const Panels<T>& b) const {
    SPILLWAY_WGMMA_OF("=f", 0, "%32, %33, adds, 1, 1, 0, 0", "%64, %65, adds, 1, 1, 0, 0", "l"(a.bits()), "l"(b.bits()));
  }
  // c += a b
  template <typename T, int eights>
  SPILLWAY_GPU void add_rows(float (&c)[eights][4], const Panels<T>& a, const Panels<T>& b) const {
    SPILLWAY_WGMMA_OF("+f", 1, "%32, %33, adds, 1, 1, 0, 0", "%64, %65, adds, 1, 1, 0, 0", "l"(a.bits()), "l"(b.bits()));
  }
  // c += a b, with a's rows as each warp's fragment of mma, by columns of b, whose rows are the depth.
  template <typename T, int eights>
  SPILLWAY_GPU void add_columns(float (&c)[eights][4], const std::uint32_t (&a)[4], const Panels<T>& b) const {
    SPILLWAY_WGMMA_OF("+f", 1, "{%32, %33, %34, %35}, %36, adds, 1, 1, 1", "{%64, %65, %66, %67}, %68, adds, 1, 1, 1", "r"(a[0]),
                      "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()));
  }
  SPILLWAY_GPU void commit_products() const { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  // Waits until at most `left` groups are in flight; these sums are not among them.
  template <int left, int eights>
  SPILLWAY_GPU void wait_for_products(float (&c)[eights][4]) const {
    static_assert(eights == 8 || eights == 16);
    if constexpr (eights == 8) {
      asm volatile("wgmma.wait_group.sync.aligned %32;" : SPILLWAY_SUMS_64("+f", c) : "n"(left) : "memory");
    } else {
      asm volatile("wgmma.wait_group.sync.aligned %64;" : SPILLWAY_SUMS_128("+f", c) : "n"(left) : "memory");
    }
  }

  // Makes the compiler compute x >= 0, and all that it is made of, before any wait that follows; by itself it would wait first. A
  // branch holds it to that: it is never taken, but the compiler cannot know.
  SPILLWAY_GPU void settle(float x) const {
    asm volatile("{ .reg .pred p; setp.lt.f32 p, %0, 0f00000000; @!p bra SETTLED; membar.cta; SETTLED: }" ::"f"(x) : "memory");
  }

  // --- arithmetic that rounds each operation to the nearest, fused with no other ---

  static SPILLWAY_GPU float add(float a, float b) { return __fadd_rn(a, b); }
  static SPILLWAY_GPU float multiply(float a, float b) { return __fmul_rn(a, b); }
  static SPILLWAY_GPU float divide(float a, float b) { return __fdiv_rn(a, b); }
  static SPILLWAY_GPU float root(float x) { return __fsqrt_rn(x); }

  // --- arithmetic that has an instruction of its own, which rounds a little differently ---

  // Gives zero for results below the smallest normal number: to keep those would take three instructions more.
  SPILLWAY_GPU float exp2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
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
  // Moves sixteen bytes by one instruction; structs of that size would otherwise go word by word.
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

// The destination of launches: a stream of the CUDA runtime.
class Queue {
 public:
  explicit Queue(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  // True where kernels for warpgroups run. The code that was loaded says so, not the chip: a program without code for sm_90a
  // runs on that chip, too, and then those kernels are empty.
  bool has_warpgroups() const;

 private:
  cudaStream_t stream_;
};

// A kernel sets `kBlocks`, the number of its blocks that an SM must have room for, if it wants more registers than the compiler
// thinks worth while; 0 leaves that to the compiler.
template <typename K>
constexpr int blocks_of_sm() {
  if constexpr (requires { K::kBlocks; }) {
    return K::kBlocks;
  } else {
    return 0;
  }
}

// A kernel sets `kNeedsWarpgroups` if its warpgroups multiply. For chips other than sm_90a it is compiled empty.
template <typename K>
constexpr bool needs_warpgroups() {
  return requires { K::kNeedsWarpgroups; };
}
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWarpgroups = true;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#error "For compute capability 9.0 kernels are compiled by -gencode=arch=compute_90a,code=sm_90a."
#else
inline constexpr bool kHasWarpgroups = false;
#endif

template <typename K>
__global__ void __launch_bounds__(K::kThreads, blocks_of_sm<K>()) run_kernel(const __grid_constant__ K kernel) {
  if constexpr (kHasWarpgroups || !needs_warpgroups<K>()) kernel(Gpu());
}

// An empty kernel, which tells which code was loaded.
struct AskForWarpgroups {
  static constexpr int kThreads = 32;
  SPILLWAY_GPU void operator()(const Gpu&) const {}
};
inline bool Queue::has_warpgroups() const {
  static const bool loaded = [] {
    cudaFuncAttributes attributes{};
    // Code for sm_90a is compiled from PTX of its own version; code that the driver makes from other chips' PTX has their
    // version.
    return cudaFuncGetAttributes(&attributes, run_kernel<AskForWarpgroups>) == cudaSuccess && attributes.binaryVersion == 90 &&
           attributes.ptxVersion == 90;
  }();
  return loaded;
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
using simt::Panels;
using simt::Queue;
using simt::Shared;
}  // namespace spillway::cuda

#endif
