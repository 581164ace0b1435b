#include "files/placeholder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "files/strict_json.h"
#include "memory/base/error.h"

namespace spillway {

void refuse_placeholder(const std::string& path, std::string_view head, Bytes size) {
  if (head.starts_with("version https://git-lfs.github.com/")) {
    throw InputError(fmt::format("{}: is a Git LFS pointer of {} bytes, not the file that it stands for", path, size),
                     "Fetch the file itself: `git lfs pull` in its repository.");
  }
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (head.starts_with(kMark)) head.remove_prefix(kMark.size());
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  std::string begins(head.substr(0, 9));
  std::ranges::transform(begins, begins.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view tag : {"<!doctype", "<html", "<head", "<body", "<?xml", "<!--"}) {
    if (!begins.starts_with(tag)) continue;
    throw InputError(fmt::format("{}: is a web page (it begins with {}), not the file that was to be fetched", path,
                                 shown_name(head.substr(0, 16))),
                     "The server answered with a page, perhaps for want of a login; fetch the file itself.");
  }
}

}  // namespace spillway
