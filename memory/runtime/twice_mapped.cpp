#include "memory/runtime/twice_mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "memory/base/error.h"

namespace spillway {
namespace {

std::size_t mapped(Bytes bytes) { return static_cast<std::size_t>(round_up(bytes, kExtentAlignment)); }

[[noreturn]] void refuse(const std::string& name, Bytes bytes) {
  throw BudgetError(fmt::format("{}: {} bytes of memory could not be mapped twice: {}", name, bytes, std::strerror(errno)),
                    "Give a smaller --device-memory, or end what else uses the machine's memory.");
}

}  // namespace

TwiceMapped::TwiceMapped(Bytes bytes, const std::string& name) : bytes_(bytes) {
  if (bytes == 0) return;
  const int file = memfd_create("spillway", MFD_CLOEXEC);
  if (file < 0) refuse(name, bytes);
  const auto map = [&](int protection) {
    void* at = mmap(nullptr, mapped(bytes), protection, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  };
  if (ftruncate(file, static_cast<off_t>(mapped(bytes))) == 0) {
    host_view_ = map(PROT_NONE);
    device_view_ = map(PROT_READ | PROT_WRITE);
  }
  const int error = errno;
  close(file);
  errno = error;
  if (host_view_ == nullptr || device_view_ == nullptr) {
    if (host_view_ != nullptr) munmap(host_view_, mapped(bytes));
    refuse(name, bytes);
  }
  madvise(device_view_, mapped(bytes), MADV_HUGEPAGE);
}

TwiceMapped::~TwiceMapped() {
  for (std::byte* view : {host_view_, device_view_}) {
    if (view != nullptr) munmap(view, mapped(bytes_));
  }
}

}  // namespace spillway
