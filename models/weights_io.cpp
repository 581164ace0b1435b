#include "models/weights_io.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <string>

#include "memory/base/bfloat16.h"
#include "memory/base/error.h"
#include "memory/base/float16.h"
#include "memory/base/random.h"

namespace spillway {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::array<std::string_view, 3> kEmbeddings = {"model.embed_tokens.weight", "transformer.wte.weight",
                                                         "model.language_model.embed_tokens.weight"};

// A file of the bare model (GPT2Model, LlamaModel, an embedding model) has the names without the prefix, and no head.
std::string_view bare(std::string_view name) {
  for (const std::string_view prefix : {"transformer.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

const StoredTensor* find_stored(const SafetensorsReader& reader, std::string_view name) {
  const StoredTensor* stored = reader.find(name);
  if (stored == nullptr) stored = reader.find(bare(name));
  if (stored != nullptr) return stored;
  for (const std::string& form : text_name_forms(name)) {
    if ((stored = reader.find(form)) != nullptr) return stored;
  }
  return nullptr;
}

const StoredTensor* embedding_in(const SafetensorsReader& reader) {
  for (const std::string_view name : kEmbeddings) {
    if (const StoredTensor* stored = find_stored(reader, name)) return stored;
  }
  return nullptr;
}

bool have_equal_values(const SafetensorsReader& reader, const StoredTensor& a, const StoredTensor& b) {
  if (a.shape != b.shape) return false;
  std::vector<float> of_a, of_b;
  for (std::int64_t begin = 0; begin < a.elements; begin += kWeightsRange) {
    const auto count = static_cast<std::size_t>(std::min(kWeightsRange, a.elements - begin));
    of_a.resize(count), of_b.resize(count);
    reader.read(a, begin, of_a);
    reader.read(b, begin, of_b);
    if (of_a != of_b) return false;
  }
  return true;
}

const StoredTensor& require_stored(const SafetensorsReader& reader, const TensorPiece& piece) {
  const StoredTensor* stored = find_stored(reader, piece.tensor);
  return reader.require(stored != nullptr ? stored->name : piece.tensor, piece.file_shape);
}

bool is_tied_head(std::string_view name, const ModelConfig& config) {
  return config.tied_embeddings && (name == kHead || (config.is_text_half() && name == text_name_forms(kHead).front()));
}

bool is_known_extra(std::string_view name, const ModelConfig& config) {
  static constexpr std::array<std::string_view, 4> buffers = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq",
                                                              "embeddings.position_ids"};
  for (const std::string_view buffer : buffers) {
    if (name.ends_with(buffer)) return true;
  }
  return is_tied_head(name, config);
}

// The beginning of the names of a text half's layers, as its file has them.
std::string prefix_of_layers(const SafetensorsReader& reader) {
  const StoredTensor* embedding = embedding_in(reader);
  if (embedding == nullptr) return "";
  return embedding->name.substr(0, embedding->name.rfind("embed_tokens.")) + "layers.";
}

std::string join(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  const std::size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string place_of(const SafetensorsReader& reader) {
  return reader.files().size() == 1 ? reader.files()[0].string() : reader.files()[0].parent_path().string();
}

// A tensor of three dimensions is the matrix of its matrices, one below the other.
std::int64_t columns_of_file(const TensorPiece& piece) { return piece.file_shape.size() < 2 ? 1 : piece.file_shape.back(); }
std::int64_t rows_of_file(const TensorPiece& piece) {
  return piece.file_shape.size() < 3 ? piece.file_shape[0] : piece.file_shape[0] * piece.file_shape[1];
}

// The place in the file's tensor of the piece's element (row, column).
std::int64_t file_element(const TensorPiece& piece, std::int64_t row, std::int64_t column) {
  const std::int64_t r = piece.file_row(row), c = piece.column_begin + column;
  return piece.layout == FileLayout::as_stored ? r * columns_of_file(piece) + c : c * columns_of_file(piece) + r;
}

// A range of a piece as rectangles: the rest of a row, whole rows, the beginning of a row.
struct Rectangle {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  std::int64_t begin = 0;  // in the piece
};
template <typename Body>
void for_rectangles(const TensorPiece& piece, std::int64_t begin, std::int64_t end, Body body) {
  while (begin < end) {
    Rectangle part{begin / piece.columns, 1, begin % piece.columns, 0, begin};
    if (part.column == 0 && end - begin >= piece.columns) {
      part.rows = (end - begin) / piece.columns;
      part.columns = piece.columns;
    } else {
      part.columns = std::min(end - begin, piece.columns - part.column);
    }
    body(part);
    begin += part.rows * part.columns;
  }
}

// Calls body(piece, begin in the piece, out) for the part of each piece that a range of a block covers; padding becomes 0.
template <typename Body>
void for_pieces(const ParameterBlock& block, std::int64_t begin, std::span<float> out, Body body) {
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  SPILLWAY_CHECK(begin >= 0 && end <= block.elements, "{}: elements {} to {} of {}", block.name, begin, end, block.elements);
  std::fill(out.begin(), out.end(), 0.0f);
  for (const TensorPiece& piece : block.pieces) {
    const std::int64_t first = std::max(begin, piece.begin), last = std::min(end, piece.begin + piece.elements());
    if (first >= last) continue;
    body(piece, first - piece.begin,
         out.subspan(static_cast<std::size_t>(first - begin), static_cast<std::size_t>(last - first)));
  }
}

// Calls run(file element, floats) for the longest contiguous runs of the file's tensor, which go into `out`, the piece's range. A
// transposed rectangle goes through `staging`, column by column.
template <typename Run>
void for_file_runs(const TensorPiece& piece, std::int64_t begin, std::span<float> out, Run run) {
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  std::vector<float> staging;
  for_rectangles(piece, begin, end, [&](const Rectangle& part) {
    float* to = out.data() + (part.begin - begin);
    if (piece.layout == FileLayout::transposed) {
      staging.resize(static_cast<std::size_t>(part.rows));
      for (std::int64_t j = 0; j < part.columns; ++j) {
        run(file_element(piece, part.row, part.column + j), std::span(staging));
        for (std::int64_t i = 0; i < part.rows; ++i) to[i * part.columns + j] = staging[static_cast<std::size_t>(i)];
      }
    } else if (piece.columns == columns_of_file(piece) && piece.row_step == 1) {
      run(file_element(piece, part.row, part.column), std::span(to, static_cast<std::size_t>(part.rows * part.columns)));
    } else {
      for (std::int64_t i = 0; i < part.rows; ++i) {
        run(file_element(piece, part.row + i, part.column),
            std::span(to + i * part.columns, static_cast<std::size_t>(part.columns)));
      }
    }
  });
}

// --- Drawing from a seed --------------------------------------------------------------------------------------------------

// A normal number, as exactly as weights need, by integer arithmetic alone, so that every machine draws the same bits: the number
// of ones among 64 fair bits (variance 16) is normal on a grid; the sum of two uniform numbers (variance 1/6) fills the grid
// linearly.
float normal(std::uint64_t key, std::int64_t element) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  const std::uint64_t first = mix64(key + golden * (2 * static_cast<std::uint64_t>(element) + 1));
  const std::uint64_t second = mix64(key + golden * (2 * static_cast<std::uint64_t>(element) + 2));
  const double fine = static_cast<double>(second >> 32) + static_cast<double>(second & 0xffffffffu);
  const double deviations = std::popcount(first) - 32 + (fine * 0x1p-32 - 1.0);
  return static_cast<float>(deviations * 0.24870800168690346);  // 1 / sqrt(16 + 1/6)
}

// A uniform number in [-1, 1), of 53 bits.
double uniform(std::uint64_t key, std::int64_t element) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  const std::uint64_t bits = mix64(key + golden * (static_cast<std::uint64_t>(element) + 1));
  return static_cast<double>(bits >> 11) * 0x1p-52 - 1;
}

// --- Export ---------------------------------------------------------------------------------------------------------------

struct PlacedPiece {
  int block = -1;
  const TensorPiece* piece = nullptr;
};

// The pieces of each tensor, by tensor_index.
std::vector<std::vector<PlacedPiece>> pieces_of_tensors(const UnitGraph& graph, TensorsOf of) {
  std::vector<std::vector<PlacedPiece>> tensors(static_cast<std::size_t>(graph.tensors));
  for (std::size_t block = 0; block < graph.blocks.size(); ++block) {
    if (graph.blocks[block].of_adapter != (of == TensorsOf::adapter)) continue;
    for (const TensorPiece& piece : graph.blocks[block].pieces) {
      tensors[static_cast<std::size_t>(piece.tensor_index)].push_back({static_cast<int>(block), &piece});
    }
  }
  std::erase_if(tensors, [](const auto& pieces) { return pieces.empty(); });
  return tensors;
}

// Reads file rows [row, row + rows) of a tensor from every piece that has some of them.
class StripReader {
 public:
  StripReader(const BlockSource& source, const std::vector<PlacedPiece>& pieces) : source_(source), pieces_(pieces) {}

  void read(std::int64_t row, std::int64_t rows, std::span<float> out) {
    for (const PlacedPiece& placed : pieces_) {
      if (placed.piece->layout == FileLayout::as_stored) {
        read_as_stored(placed, row, rows, out);
      } else {
        read_transposed(placed, row, rows, out);
      }
    }
  }

 private:
  std::span<float> fetch(const PlacedPiece& placed, std::int64_t begin, std::int64_t elements) {
    staging_.resize(static_cast<std::size_t>(elements));
    source_(placed.block, placed.piece->begin + begin, staging_);
    return staging_;
  }

  void read_as_stored(const PlacedPiece& placed, std::int64_t row, std::int64_t rows, std::span<float> out) {
    const TensorPiece& piece = *placed.piece;
    const auto first_from = [&](std::int64_t file_row) {
      return std::clamp<std::int64_t>((file_row - piece.row_begin + piece.row_step - 1) / piece.row_step, 0, piece.rows);
    };
    const std::int64_t first = first_from(row), last = first_from(row + rows);
    if (first >= last) return;
    const std::int64_t width = columns_of_file(piece);
    const std::span<const float> values = fetch(placed, first * piece.columns, (last - first) * piece.columns);
    for (std::int64_t r = first; r < last; ++r) {
      std::copy_n(values.data() + (r - first) * piece.columns, piece.columns,
                  out.data() + (piece.file_row(r) - row) * width + piece.column_begin);
    }
  }

  // The file's rows are the piece's columns: whole rows of the piece are fetched, and the wanted columns picked from them.
  void read_transposed(const PlacedPiece& placed, std::int64_t row, std::int64_t rows, std::span<float> out) {
    const TensorPiece& piece = *placed.piece;
    const std::int64_t first = std::max(row, piece.column_begin), last = std::min(row + rows, piece.column_begin + piece.columns);
    if (first >= last) return;
    const std::int64_t width = columns_of_file(piece);
    const std::int64_t group = std::max<std::int64_t>(1, kWeightsRange / piece.columns);
    for (std::int64_t i = 0; i < piece.rows; i += group) {
      const std::int64_t count = std::min(group, piece.rows - i);
      const std::span<const float> values = fetch(placed, i * piece.columns, count * piece.columns);
      for (std::int64_t k = 0; k < count; ++k) {
        for (std::int64_t r = first; r < last; ++r) {
          out[static_cast<std::size_t>((r - row) * width + piece.row_begin + i + k)] =
              values[static_cast<std::size_t>(k * piece.columns + r - piece.column_begin)];
        }
      }
    }
  }

  const BlockSource& source_;
  const std::vector<PlacedPiece>& pieces_;
  std::vector<float> staging_;
};

}  // namespace

void check_weights(const SafetensorsReader& reader, const ModelConfig& config, const UnitGraph& graph) {
  std::set<std::string> expected;
  std::vector<std::string> missing;
  for (const std::vector<PlacedPiece>& pieces : pieces_of_tensors(graph, TensorsOf::model)) {
    const TensorPiece& piece = *pieces.front().piece;
    const StoredTensor* stored = find_stored(reader, piece.tensor);
    if (stored == nullptr) {
      if (piece.tensor != kHead || head_in(reader, config) != HeadInFile::missing) missing.push_back(piece.tensor);
      continue;
    }
    require_stored(reader, piece);
    expected.insert(stored->name);
  }
  if (!missing.empty()) {
    throw InputError(fmt::format("{}: {} of the model's {} tensors are missing: {}", place_of(reader), missing.size(),
                                 pieces_of_tensors(graph, TensorsOf::model).size(), join(missing)),
                     "the weights and config.json must be of the same model, and every shard must be there");
  }
  std::vector<std::string> unexpected;
  const std::string layers = config.is_text_half() ? prefix_of_layers(reader) : "";
  for (const StoredTensor& stored : reader.tensors()) {
    if (!expected.contains(stored.name) && !is_known_extra(stored.name, config) && stored.name.starts_with(layers))
      unexpected.push_back(stored.name);
  }
  if (!unexpected.empty()) {
    throw InputError(fmt::format("{}: {} tensors that the model of config.json does not have: {}", place_of(reader),
                                 unexpected.size(), join(unexpected)),
                     "the weights and config.json must be of the same model");
  }
}

void check_adapter_weights(const SafetensorsReader& reader, const UnitGraph& graph) {
  constexpr const char* kOneOf =
      "the adapter must be one of this model, with both factors of each layer that its "
      "adapter_config.json names";
  std::set<std::string> expected;
  for (const std::vector<PlacedPiece>& pieces : pieces_of_tensors(graph, TensorsOf::adapter)) {
    const TensorPiece& piece = *pieces.front().piece;
    const StoredTensor* stored = find_stored(reader, piece.tensor);
    if (stored == nullptr) throw InputError(fmt::format("{}: {} is missing", place_of(reader), piece.tensor), kOneOf);
    require_stored(reader, piece);
    expected.insert(stored->name);
  }
  std::vector<std::string> unexpected;
  for (const StoredTensor& stored : reader.tensors()) {
    if (!expected.contains(stored.name)) unexpected.push_back(stored.name);
  }
  if (unexpected.empty()) return;
  throw InputError(
      fmt::format("{}: {} tensors that no adapter of this model has: {}", place_of(reader), unexpected.size(), join(unexpected)),
      kOneOf);
}

HeadInFile head_in(const SafetensorsReader& reader, const ModelConfig& config) {
  const StoredTensor *head = find_stored(reader, kHead), *embedding = embedding_in(reader);
  if (head == nullptr) {
    const bool is_bare = embedding != nullptr &&
                         std::ranges::any_of(kEmbeddings, [&](std::string_view name) { return embedding->name == bare(name); });
    return is_bare && !config.tied_embeddings ? HeadInFile::missing : HeadInFile::as_configured;
  }
  if (!config.tied_embeddings || embedding == nullptr || have_equal_values(reader, *head, *embedding))
    return HeadInFile::as_configured;
  return HeadInFile::differs;
}

std::vector<const StoredTensor*> tensors_beside(const SafetensorsReader& reader, const ModelConfig& config,
                                                const UnitGraph& graph) {
  std::set<std::string> own;
  for (const std::vector<PlacedPiece>& pieces : pieces_of_tensors(graph, TensorsOf::model)) {
    const StoredTensor* stored = find_stored(reader, pieces.front().piece->tensor);
    if (stored != nullptr) own.insert(stored->name);
  }
  std::vector<const StoredTensor*> beside;
  for (const StoredTensor& stored : reader.tensors()) {
    if (!own.contains(stored.name) && !is_tied_head(stored.name, config)) beside.push_back(&stored);
  }
  return beside;
}

std::string name_in_file(const SafetensorsReader& reader, const std::string& tensor) {
  const StoredTensor* stored = find_stored(reader, tensor);
  return stored != nullptr ? stored->name : tensor;
}

bool is_of_head(const ParameterBlock& block) {
  return std::ranges::any_of(block.pieces, [](const TensorPiece& piece) { return piece.tensor == kHead; });
}

void read_block_range(const SafetensorsReader& reader, const ParameterBlock& block, std::int64_t begin, std::span<float> out) {
  for_pieces(block, begin, out, [&](const TensorPiece& piece, std::int64_t first, std::span<float> to) {
    const StoredTensor& stored = require_stored(reader, piece);
    for_file_runs(piece, first, to, [&](std::int64_t element, std::span<float> run) { reader.read(stored, element, run); });
  });
}

void initial_block_range(const ModelConfig& config, const ParameterBlock& block, std::uint64_t seed, std::int64_t begin,
                         std::span<float> out) {
  for_pieces(block, begin, out, [&](const TensorPiece& piece, std::int64_t first, std::span<float> to) {
    if (piece.initial == Initial::ones || piece.initial == Initial::zeros) {
      std::fill(to.begin(), to.end(), piece.initial == Initial::ones ? 1.0f : 0.0f);
      return;
    }
    const std::uint64_t key = mix64(mix64(seed) + static_cast<std::uint64_t>(piece.tensor_index) + 1);
    if (piece.initial == Initial::uniform) {
      for_file_runs(piece, first, to, [&](std::int64_t element, std::span<float> run) {
        for (std::size_t i = 0; i < run.size(); ++i)
          run[i] = static_cast<float>(uniform(key, element + static_cast<std::int64_t>(i)) / piece.deviation_divisor);
      });
      return;
    }
    const float deviation = static_cast<float>(config.initializer_range / piece.deviation_divisor);
    for_file_runs(piece, first, to, [&](std::int64_t element, std::span<float> run) {
      for (std::size_t i = 0; i < run.size(); ++i) run[i] = deviation * normal(key, element + static_cast<std::int64_t>(i));
    });
  });
}

std::vector<TensorToWrite> tensors_to_write(const UnitGraph& graph, ElementType type, TensorsOf of) {
  std::vector<TensorToWrite> tensors;
  for (const std::vector<PlacedPiece>& pieces : pieces_of_tensors(graph, of)) {
    tensors.push_back({pieces.front().piece->tensor, type, pieces.front().piece->file_shape});
  }
  return tensors;
}

void export_weights(const UnitGraph& graph, ElementType type, const BlockSource& source, const TensorSink& sink, TensorsOf of) {
  const bool is_known = type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16;
  SPILLWAY_CHECK(is_known, "export as {}", name_of(type));
  std::vector<float> strip;
  std::vector<std::byte> data;
  for (const std::vector<PlacedPiece>& pieces : pieces_of_tensors(graph, of)) {
    const TensorPiece& any = *pieces.front().piece;
    const std::int64_t rows = rows_of_file(any), width = columns_of_file(any);
    const std::int64_t strip_rows = std::clamp<std::int64_t>(kWeightsRange / width, 1, rows);
    StripReader reader(source, pieces);
    for (std::int64_t row = 0; row < rows; row += strip_rows) {
      const std::int64_t count = std::min(strip_rows, rows - row);
      strip.resize(static_cast<std::size_t>(count * width));
      reader.read(row, count, strip);
      data.resize(strip.size() * static_cast<std::size_t>(size_of(type)));
      for (std::size_t i = 0; i < strip.size(); ++i) {
        if (type == ElementType::f32) {
          std::memcpy(data.data() + 4 * i, &strip[i], 4);
        } else {
          const std::uint16_t rounded =
              type == ElementType::bf16 ? BFloat16::from_float(strip[i]).bits : finite_float16(strip[i]).bits;
          std::memcpy(data.data() + 2 * i, &rounded, 2);
        }
      }
      sink(any.tensor, data);
    }
  }
}

}  // namespace spillway
