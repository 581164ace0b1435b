// Products by cuBLASLt. The library's matrices are column-major: row-major C[m,n] = A B is its C'[n,m] = B' A'.
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "memory/base/error.h"
#include "memory/base/wheel_library.h"
#include "models/cuda/gemm.h"
#include "models/cuda/gemm_identity.h"

// The library's name stands in the program as it is: tools/package reads the version off it.
#define SPILLWAY_TEXT_OF(number) #number
#define SPILLWAY_NAME_OF(number) "libcublasLt.so." SPILLWAY_TEXT_OF(number)

namespace spillway::cuda {
namespace {

// The functions in use, found at run time.
class Library {
 public:
  Library() : handle_(open()) {
    find(create, "cublasLtCreate"), find(destroy, "cublasLtDestroy"), find(version, "cublasLtGetVersion");
    find(make_product, "cublasLtMatmulDescCreate"), find(end_product, "cublasLtMatmulDescDestroy");
    find(set_product, "cublasLtMatmulDescSetAttribute");
    find(make_layout, "cublasLtMatrixLayoutCreate"), find(end_layout, "cublasLtMatrixLayoutDestroy");
    find(make_preference, "cublasLtMatmulPreferenceCreate"), find(end_preference, "cublasLtMatmulPreferenceDestroy");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(choose, "cublasLtMatmulAlgoGetHeuristic"), find(validate, "cublasLtMatmulAlgoCheck");
    find(get_algorithm, "cublasLtMatmulAlgoConfigGetAttribute"), find(multiply, "cublasLtMatmul");
  }

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmulDescCreate) make_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) end_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) make_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) end_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) end_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) validate = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_algorithm = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;

 private:
  static void* open() {
    constexpr const char* kName = SPILLWAY_NAME_OF(CUBLAS_VER_MAJOR);
    std::string why;
    void* const handle = open_library(kName, why);
    if (handle == nullptr)
      throw InputError(fmt::format("{} cannot be loaded: {}", kName, why),
                       "Install NVIDIA's CUDA libraries of that version, or pip's nvidia-cublas in the active environment; or "
                       "add their folder to LD_LIBRARY_PATH.");
    return handle;
  }
  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(handle_, name));
    if (function == nullptr) throw InputError(fmt::format("cuBLASLt has no {}", name), "Install a whole CUDA toolkit's library.");
  }

  void* handle_;  // open to the end of the process: its threads may outlive us
};

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(1, fmt::format("{} failed with status {}", call, static_cast<int>(status)),
                "This is a fault of spillway or of the library: see the device's log.");
}

cudaDataType_t type_of(DType type) {
  return type == DType::float32 ? CUDA_R_32F : type == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

class CublasLtGemm final : public Gemm {
 public:
  CublasLtGemm(cudaStream_t stream, const GemmOptions& options) : options_(options), stream_(stream) {
    int device = 0, major = 0, minor = 0;
    // An attribute that cannot be asked for stays 0, which no other run has.
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    cudaDeviceGetAttribute(&here_.processors, cudaDevAttrMultiProcessorCount, device);
    here_.capability = 10 * major + minor, here_.library_version = library_.version();
    if (!options.pinned.empty()) {
      pinned_ = decode_gemm_identity(options.pinned);
      if (const std::string differs = difference(*pinned_, here_); !differs.empty())
        throw InputError("the run's matrix products would have other bits here: " + differs,
                         "Go on where the library and the GPU are those of the run, or begin a new run.");
    }
    cuda::check(library_.create(&context_), "cublasLtCreate");
  }
  ~CublasLtGemm() override {
    for (const Prepared& product : prepared_) end(product);
    library_.destroy(context_);
  }

  void prepare(const ops::GemmSpec& spec) override {
    if (find(spec, false) != nullptr) return;
    for (const bool adds : {false, true}) {
      if (!(adds && spec.has_residual)) prepared_.push_back(made(spec, adds));
    }
  }

  void run(const ops::GemmSpec& spec, bool adds, const GemmOperands& operands) override {
    const Prepared* of = find(spec, adds);
    SPILLWAY_CHECK(of != nullptr, "a product of {} x {} x {} that was not prepared", spec.m, spec.n, spec.k);
    if (spec.has_bias) set(of->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    const float alpha = spec.scale, beta = adds || spec.has_residual ? 1.0f : 0.0f;
    const std::byte* added = spec.has_residual ? operands.residual : operands.c;
    cuda::check(library_.multiply(context_, of->product, &alpha, operands.b, of->b, operands.a, of->a, &beta, added, of->added,
                                  operands.c, of->c, &of->algorithm, operands.workspace,
                                  static_cast<std::size_t>(kWorkspaceBytes), stream_),
                "cublasLtMatmul");
  }

  std::string identity() const override {
    GemmIdentity identity = here_;
    for (const Prepared& product : prepared_)
      identity.products.push_back({product.spec, product.adds, std::to_array(product.algorithm.data)});
    return encode(identity);
  }

 private:
  struct Prepared {
    ops::GemmSpec spec;
    bool adds = false;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, added = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };

  const Prepared* find(const ops::GemmSpec& spec, bool adds) const {
    for (const Prepared& product : prepared_) {
      if (product.spec == spec && product.adds == adds) return &product;
    }
    return nullptr;
  }

  template <typename T>
  void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    cuda::check(library_.set_product(product, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }
  template <typename T>
  void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    cuda::check(library_.set_preference(preference, attribute, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
  }
  // The layout of a row-major matrix as it is stored.
  cublasLtMatrixLayout_t layout(DType type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    cuda::check(
        library_.make_layout(&made, type_of(type), static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), stride),
        "cublasLtMatrixLayoutCreate");
    return made;
  }

  Prepared made(const ops::GemmSpec& spec, bool adds) {
    Prepared of{.spec = spec, .adds = adds};
    cuda::check(library_.make_product(&of.product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const bool turns_a = spec.transpose_a == ops::Transpose::yes, turns_b = spec.transpose_b == ops::Transpose::yes;
    // B comes first: see the top of this file.
    set(of.product, CUBLASLT_MATMUL_DESC_TRANSA, turns_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(of.product, CUBLASLT_MATMUL_DESC_TRANSB, turns_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (spec.has_bias) {
      set(of.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(of.product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(spec.input));
    }
    of.a = turns_a ? layout(spec.input, spec.k, spec.m, spec.lda) : layout(spec.input, spec.m, spec.k, spec.lda);
    of.b = turns_b ? layout(spec.input, spec.n, spec.k, spec.ldb) : layout(spec.input, spec.k, spec.n, spec.ldb);
    of.c = layout(spec.output, spec.m, spec.n, spec.ldc);
    check_types(spec);
    of.added = layout(spec.output, spec.m, spec.n, spec.has_residual ? spec.ld_residual : spec.ldc);
    ops::GemmSpec unscaled = spec;  // the algorithm does not depend on the factor
    unscaled.scale = 1;
    const PinnedProduct* pinned = pinned_ ? pinned_->find(unscaled, adds) : nullptr;
    of.algorithm = pinned != nullptr ? validated(of, *pinned) : chosen(of);
    return of;
  }

  // The algorithm that the continued run has had, if the library still takes it.
  cublasLtMatmulAlgo_t validated(const Prepared& of, const PinnedProduct& pinned) {
    cublasLtMatmulAlgo_t algorithm{};
    std::ranges::copy(pinned.algorithm, algorithm.data);
    cublasLtMatmulHeuristicResult_t found{};
    const cublasStatus_t status = library_.validate(context_, of.product, of.b, of.a, of.added, of.c, &algorithm, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > static_cast<std::size_t>(kWorkspaceBytes) || !has_one_order(algorithm))
      throw InputError(fmt::format("cuBLASLt does not take the run's algorithm of a product of {} x {} x {} in {}", of.spec.m,
                                   of.spec.n, of.spec.k, name_of(of.spec.input)),
                       "Go on where the library and the GPU are those of the run, or begin a new run.");
    return algorithm;
  }
  // True if the algorithm alone determines the bits: it splits no sum over blocks, or adds the parts in fp32, in the workspace,
  // one after the other.
  bool has_one_order(const cublasLtMatmulAlgo_t& algorithm) const {
    std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    cuda::check(library_.get_algorithm(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme), nullptr),
                "cublasLtMatmulAlgoConfigGetAttribute");
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }

  cublasLtMatmulAlgo_t chosen(const Prepared& of) {
    cublasLtMatmulPreference_t preference = nullptr;
    cuda::check(library_.make_preference(&preference), "cublasLtMatmulPreferenceCreate");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(options_.any_order ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(preference, which, static_cast<std::uint32_t>(kAlignment));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(options_.proposal) + 1);
    int count = 0;
    const cublasStatus_t status = library_.choose(context_, of.product, of.b, of.a, of.added, of.c, preference,
                                                  static_cast<int>(found.size()), found.data(), &count);
    library_.end_preference(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count < static_cast<int>(found.size()))
      throw Error(1,
                  fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {} in {}", of.spec.m, of.spec.n, of.spec.k,
                              name_of(of.spec.input)),
                  "Use --dtype bf16 on a device that has it, or --device cpu.");
    SPILLWAY_CHECK(options_.any_order || has_one_order(found.back().algo), "an algorithm that adds parts of sums in any order");
    return found.back().algo;
  }

  void end(const Prepared& of) {
    library_.end_product(of.product);
    for (cublasLtMatrixLayout_t layout : {of.a, of.b, of.c, of.added}) library_.end_layout(layout);
  }

  Library library_;
  GemmOptions options_;
  GemmIdentity here_;                   // without products
  std::optional<GemmIdentity> pinned_;  // of the run that goes on
  cudaStream_t stream_;
  cublasLtHandle_t context_ = nullptr;
  std::vector<Prepared> prepared_;
};

}  // namespace

std::unique_ptr<Gemm> make_cublaslt_gemm(void* stream, const GemmOptions& options) {
  return std::make_unique<CublasLtGemm>(static_cast<cudaStream_t>(stream), options);
}

}  // namespace spillway::cuda
