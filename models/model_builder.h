// What blocks of a model share while they are compiled: adding parameter blocks, values and units to the graph, and sizing a
// pass. Not here: the blocks themselves (attention.h, mlp.h, ...), families (gpt2.h, llama.h).
//
// Legend: B sequences of T tokens, n = B * T rows of a micro-batch, P parameters of a block.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/build.h"

namespace spillway {

// A tensor of the model file; a matrix always means [out, in] to a unit, whichever way the file has it.
struct FileTensor {
  std::string name;
  std::int64_t rows = 0;     // out
  std::int64_t columns = 1;  // in
  FileLayout layout = FileLayout::as_stored;
  bool is_matrix = false;
  Initial initial = Initial::normal;
  double deviation_divisor = 1;
};
FileTensor file_matrix(std::string name, std::int64_t out, std::int64_t in, FileLayout layout = FileLayout::as_stored,
                       double deviation_divisor = 1);
FileTensor file_vector(std::string name, std::int64_t elements, Initial initial = Initial::zeros);

// Places pieces in a block. Pieces that are added without `align` between them lie without a gap: together they are one matrix.
class BlockLayout {
 public:
  std::int64_t align();  // the place of the next piece, made a multiple of kPieceAlignment
  void add(const FileTensor& tensor);
  void add_rows(const FileTensor& tensor, std::int64_t row_begin, std::int64_t rows);
  void add_columns(const FileTensor& tensor, std::int64_t column_begin, std::int64_t columns);
  // align, then each of the tensors (none: -1).
  std::int64_t add_stack(const std::vector<FileTensor>& tensors);

 private:
  friend class ModelBuilder;
  void add_piece(const FileTensor& tensor, std::int64_t row_begin, std::int64_t rows, std::int64_t column_begin,
                 std::int64_t columns);
  std::vector<TensorPiece> pieces_;
  std::int64_t end_ = 0;
};

// What every operation computes with.
struct Compute {
  const ThreadPool& pool;
  ops::MatmulEngine& engine;
  DType dtype;
  std::int64_t sequences;  // B
  std::int64_t sequence;   // T
  std::int64_t rows;       // n
  std::int64_t context;    // positions whose keys and values are kept between calls; 0: none, rows see only themselves
};

// A value of the residual stream and its gradient, both [n,H] in the compute type.
struct StreamValue {
  int value = -1;
  int gradient = -1;
};

class ModelBuilder {
 public:
  ModelBuilder(const BuildOptions& options, const Cuts& cuts);

  const Compute& compute() const { return compute_; }
  const Cuts& cuts() const { return cuts_; }
  int add_block(std::string name, BlockLayout layout);
  int add_value(std::string name, Bytes bytes);
  int add_lasting_value(std::string name, Bytes bytes);
  StreamValue add_stream_value(const std::string& name, std::int64_t hidden);
  void set_logits_bytes(Bytes bytes) { model_.graph.logits_bytes = bytes; }
  void add_unit(Unit unit, std::unique_ptr<UnitOps> ops);
  CompiledModel finish();

 private:
  Compute compute_;
  Cuts cuts_;
  CompiledModel model_;
  std::map<std::string, int> tensor_index_;
};

// Adds a use to a pass; the result is its place in UnitCall::values.
int add_use(std::vector<ValueUse>& uses, int value, Access access);

// What one pass of a unit needs and costs, gathered while its operation is made: regions of the workspace, then one scratch
// region that the kernels use one after the other.
class PassSize {
 public:
  explicit PassSize(ops::MatmulEngine& engine) : engine_(&engine) {}
  Bytes reserve(Bytes bytes);  // the region's offset
  // Compiles the product and counts it `times` times.
  ops::GemmSpec gemm(const ops::GemmSpec& spec, double times = 1);
  void add_scratch(Bytes bytes);
  void add_attention(double flops) { work_.attention_flops += flops; }
  void add_moved(double bytes) { work_.bytes += bytes; }
  Bytes scratch_offset() const { return regions_; }
  Bytes workspace() const { return round_up(regions_ + scratch_, 64); }
  const Work& work() const { return work_; }

 private:
  ops::MatmulEngine* engine_;
  Bytes regions_ = 0, scratch_ = 0;
  Work work_;
};

// The views of a call, typed.
template <typename T>
T* value_of(const UnitCall& call, int place) {
  return reinterpret_cast<T*>(call.values[static_cast<std::size_t>(place)]);
}
template <typename T>
const T* weights_of(const UnitCall& call, int place) {
  return reinterpret_cast<const T*>(call.weights[static_cast<std::size_t>(place)]);
}
inline float* gradient_of(const UnitCall& call, int place) { return call.gradients[static_cast<std::size_t>(place)]; }
template <typename T>
T* region_of(const UnitCall& call, Bytes offset) {
  return reinterpret_cast<T*>(call.workspace + offset);
}
inline ops::Store store_of(const UnitCall& call) {
  return call.gradient_mode == GradientMode::write ? ops::Store::write : ops::Store::add;
}

// Calls `make.template operator()<E>()` with the compute type E.
template <typename Make>
std::unique_ptr<UnitOps> make_ops(DType dtype, Make make) {
  if (dtype == DType::float32) return make.template operator()<float>();
  return make.template operator()<BFloat16>();
}

}  // namespace spillway
