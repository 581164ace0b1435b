// Moves parameters between a block's layout and the model file's: reads them from safetensors, draws them from a seed, exports
// them. Everything goes in ranges or strips of a bounded size, so that a model larger than memory passes through.
// Not here: the file format (safetensors.h), where a block's bytes live, configuration and tokenizer files of an export.
//
// Legend: P elements of a block.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "files/safetensors.h"
#include "files/safetensors_writer.h"
#include "memory/plan/unit.h"
#include "models/config.h"

namespace spillway {

// The largest range that callers should ask for at a time, in elements (8 MiB of float).
inline constexpr std::int64_t kWeightsRange = 2 << 20;

// Throws InputError, naming the tensors, if the file lacks one that the model has, has one that the model does not know, or has
// one in another shape. Buffers that old files carry along (attention masks, rotary frequencies) and the copy of a tied head
// pass; names without the prefix of a model with a head are those of the bare model. A wrapper's other tensors pass, too: all
// that are not in a layer of its text half.
void check_weights(const SafetensorsReader& reader, const ModelConfig& config, const UnitGraph& graph);

// Throws InputError, naming the tensor, if an adapter's file lacks one that the graph's adapters have, has another, or has one in
// another shape.
void check_adapter_weights(const SafetensorsReader& reader, const UnitGraph& graph);

// How the head in a file compares with the configuration.
enum class HeadInFile : std::uint8_t {
  as_configured,
  differs,  // from the embedding to which the configuration ties it
  missing,  // the file is of the bare model, which has none, and the configuration does not tie it
};
HeadInFile head_in(const SafetensorsReader& reader, const ModelConfig& config);
// What a wrapper's file has besides its text half, but for the copy of a tied head, in the file's order.
std::vector<const StoredTensor*> tensors_beside(const SafetensorsReader& reader, const ModelConfig& config,
                                                const UnitGraph& graph);
// The name by which the file has a tensor of a graph; that of the graph, if it has none.
std::string name_in_file(const SafetensorsReader& reader, const std::string& tensor);
bool is_of_head(const ParameterBlock& block);  // true for a block of an untied head

// Reads elements [begin, begin + out.size()) of a block as fp32; padding is 0. Throws InputError for a value that is not finite.
void read_block_range(const SafetensorsReader& reader, const ParameterBlock& block, std::int64_t begin, std::span<float> out);

// Draws the same range from a seed, as each piece is to begin (TensorPiece::initial). An element depends only on the seed, the
// tensor and its place in the file's tensor, whatever the cuts.
void initial_block_range(const ModelConfig& config, const ParameterBlock& block, std::uint64_t seed, std::int64_t begin,
                         std::span<float> out);

// The tensors of a graph that are in the model's files, or in those of its adapter.
enum class TensorsOf : std::uint8_t { model, adapter };

// The files' tensors in canonical order.
std::vector<TensorToWrite> tensors_to_write(const UnitGraph& graph, ElementType type, TensorsOf of = TensorsOf::model);

// Fills a range of a block with its weights.
using BlockSource = std::function<void(int block, std::int64_t begin, std::span<float> out)>;
// Takes the next bytes of a tensor, in the order of tensors_to_write: the append() of one of the writers.
using TensorSink = std::function<void(std::string_view tensor, std::span<const std::byte> data)>;
// Writes all tensors as `type` (f32 or bf16, rounded to nearest even).
void export_weights(const UnitGraph& graph, ElementType type, const BlockSource& source, const TensorSink& sink,
                    TensorsOf of = TensorsOf::model);

}  // namespace spillway
