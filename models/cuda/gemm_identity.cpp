#include "models/cuda/gemm_identity.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>

#include "memory/base/error.h"

namespace spillway::cuda {
namespace {

constexpr std::string_view kName = "cublaslt-1";  // and the version of this text

// Reads the numbers of a text, one after the other, each behind a separator of its own.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool is_at_end() const { return text_.empty(); }
  bool take(std::string_view what) {
    if (!text_.starts_with(what)) return false;
    text_.remove_prefix(what.size());
    return true;
  }
  template <typename T>
  bool number(char before, T& x, int base = 10) {
    if (!take({&before, 1})) return false;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), x, base);
    if (error != std::errc()) return false;
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return true;
  }
  template <typename E>
  bool choice(char before, E& x, int choices) {
    int number_of = 0;
    if (!number(before, number_of) || number_of < 0 || number_of >= choices) return false;
    x = static_cast<E>(number_of);
    return true;
  }

 private:
  std::string_view text_;
};

bool read(Reader& from, ops::GemmSpec& s) {
  for (std::int64_t* number : {&s.m, &s.n, &s.k, &s.lda, &s.ldb, &s.ldc, &s.ld_residual}) {
    if (!from.number(number == &s.m ? ' ' : ',', *number)) return false;
  }
  return from.choice(':', s.transpose_a, 2) && from.choice(',', s.transpose_b, 2) && from.choice(',', s.input, 3) &&
         from.choice(',', s.output, 3) && from.choice(',', s.store, 2) && from.choice(',', s.has_bias, 2) &&
         from.choice(',', s.has_residual, 2);
}

std::optional<GemmIdentity> read(Reader from) {
  GemmIdentity identity;
  if (!from.take(kName) || !from.number(' ', identity.library_version) || !from.take(" sm") ||
      !from.number('_', identity.capability) || !from.number(' ', identity.processors))
    return std::nullopt;
  while (!from.is_at_end()) {
    PinnedProduct product;
    if (!read(from, product.spec) || !from.choice(',', product.adds, 2)) return std::nullopt;
    for (std::uint64_t& word : product.algorithm) {
      if (!from.number(&word == product.algorithm.data() ? ':' : '.', word, 16)) return std::nullopt;
    }
    identity.products.push_back(product);
  }
  return identity;
}

}  // namespace

const PinnedProduct* GemmIdentity::find(const ops::GemmSpec& spec, bool adds) const {
  for (const PinnedProduct& product : products) {
    if (product.spec == spec && product.adds == adds) return &product;
  }
  return nullptr;
}

std::string encode(const GemmIdentity& identity) {
  std::string text = fmt::format("{} {} sm_{} {}", kName, identity.library_version, identity.capability, identity.processors);
  const auto number = [](auto choice) { return static_cast<int>(choice); };
  for (const PinnedProduct& product : identity.products) {
    const ops::GemmSpec& s = product.spec;
    text += fmt::format(" {},{},{},{},{},{},{}:{},{},{},{},{},{},{},{}", s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.ld_residual,
                        number(s.transpose_a), number(s.transpose_b), number(s.input), number(s.output), number(s.store),
                        number(s.has_bias), number(s.has_residual), number(product.adds));
    for (const std::uint64_t& word : product.algorithm)
      text += fmt::format("{}{:x}", &word == product.algorithm.data() ? ':' : '.', word);
  }
  return text;
}

GemmIdentity decode_gemm_identity(std::string_view text) {
  const std::optional<GemmIdentity> identity = read(Reader(text));
  // An identity has only one text: a text that reads as the same with other digits was not written by us.
  if (!identity || encode(*identity) != text)
    throw InputError("the record of a run's matrix products is damaged, or of another version of spillway",
                     "Go on with the version that the run was made by, or begin a new run.");
  return *identity;
}

std::string difference(const GemmIdentity& pinned, const GemmIdentity& here) {
  std::string text;
  const auto compare = [&](const char* what, auto before, auto now) {
    if (before != now) text += fmt::format("{}{} {}, now {}", text.empty() ? "" : "; ", what, before, now);
  };
  compare("cuBLASLt was", pinned.library_version, here.library_version);
  compare("the compute capability was", pinned.capability, here.capability);
  compare("multiprocessors were", pinned.processors, here.processors);
  return text;
}

}  // namespace spillway::cuda
