#include "trainer/data/text_tools.h"

#include <fmt/core.h>

#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "memory/base/error.h"
#include "trainer/text/end_tokens.h"
#include "trainer/text/resource_error.h"

namespace spillway {
namespace {

// A value that is made once, or failed once: all callers get the value or the same exception.
template <typename T>
class MadeOnce {
 public:
  template <typename Make>
  const T& get(const Make& make) {
    std::call_once(once_, [&] {
      try {
        value_.emplace(make());
      } catch (...) {
        failed_ = std::current_exception();
      }
    });
    if (failed_) std::rethrow_exception(failed_);
    return *value_;
  }

 private:
  std::once_flag once_;
  std::exception_ptr failed_;
  std::optional<T> value_;
};

}  // namespace

struct TextTools::Impl {
  TemplateDate date;
  std::string path;
  MadeOnce<LoadedTokenizer> tokenizer;
  MadeOnce<ChatTemplate> chat;
};

TextTools::TextTools(std::string tokenizer, const TemplateDate& date) : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(tokenizer);
  impl_->date = date;
}
TextTools::~TextTools() = default;
TextTools::TextTools(TextTools&&) noexcept = default;
TextTools& TextTools::operator=(TextTools&&) noexcept = default;

TextKind TextTools::kind() const {
  return impl_->path.empty() ? TextKind::none : impl_->path == "bytes" ? TextKind::bytes : TextKind::tokenizer;
}

const LoadedTokenizer& TextTools::tokenizer(const std::string& file) const {
  return impl_->tokenizer.get([&] {
    std::error_code ignored;
    if (!std::filesystem::exists(impl_->path, ignored)) {
      throw ResourceError(fmt::format("--tokenizer: found {} for {}, allowed: bytes, a tokenizer.json, a directory that has one",
                                      impl_->path, file),
                          "there is no such file or directory");
    }
    return loaded_resource([&] {
      Tokenizer tokenizer = Tokenizer::load(impl_->path);
      const auto end = end_token_of(tokenizer);
      std::vector<std::int32_t> turn_ends = turn_ends_of(tokenizer);
      return LoadedTokenizer{std::move(tokenizer), end, std::move(turn_ends)};
    });
  });
}

const ChatTemplate& TextTools::chat() const {
  return impl_->chat.get([&] { return loaded_resource([&] { return ChatTemplate::load(impl_->path, impl_->date); }); });
}

}  // namespace spillway
