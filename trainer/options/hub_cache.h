// Models by their names on Hugging Face's hub, in the cache that its own programs fill. Nothing is downloaded.
// Source: huggingface_hub's guide "Understand caching": models--ORG--NAME/refs/REVISION has the hash of a commit, whose files are
// in snapshots/HASH, as links into blobs/.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

struct HubName {
  std::string name;      // ORG/NAME
  std::string revision;  // a branch, a tag or a commit's hash; empty: main
  bool operator==(const HubName&) const = default;
};

// Reads ORG/NAME or ORG/NAME@REVISION; nothing for what cannot be such a name.
std::optional<HubName> hub_name_in(std::string_view text);

struct HubSnapshot {
  std::string name, hash;
  std::filesystem::path directory;
  std::string words() const { return name + "@" + hash; }  // a name that is found again as long as the cache has it
};

// $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub ($XDG_CACHE_HOME/huggingface/hub). Empty: no home is known.
std::filesystem::path hub_cache();
// Nothing if the cache has no such model or revision. IoError for a cache that cannot be read, InputError for one that is
// damaged.
std::optional<HubSnapshot> find_in_hub_cache(const HubName& name, const std::filesystem::path& cache);
// The sentence of how to fetch it.
std::string how_to_fetch(const HubName& name);

}  // namespace spillway
