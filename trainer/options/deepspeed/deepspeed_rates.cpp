#include "trainer/options/deepspeed/deepspeed_rates.h"

#include <fmt/core.h>

#include <charconv>

#include "files/strict_json.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr const char* kSchedulers = "WarmupLR, WarmupDecayLR, WarmupCosineLR";

std::string param(const char* name) { return fmt::format("scheduler.params.{}", name); }

// What --lr has in the end: a flag's, else the file's.
double highest_rate(const DeepSpeedSayings& say) {
  const DeepSpeedSays* const said = say.said("lr");
  double rate = say.beside().options.schedule.lr;
  if (said == nullptr || (said->by_default && say.beside().is_given("lr"))) return rate;
  const std::string& text = said->texts.at(0);
  std::from_chars(text.data(), text.data() + text.size(), rate);
  return rate;
}

void read_warmup(DeepSpeedSayings& say) {
  DeepSpeedWalk& walk = say.walk();
  say.real("lr-warmup-iters", param("warmup_num_steps"), 1000);
  const std::string key = param("warmup_type"), type = say.lowered(key);
  if (type.empty()) {
    say.assume("lr-warmup-style", "log", key);
  } else if (type == "log" || type == "linear") {
    say.add("lr-warmup-style", type, key);
  } else {
    walk.refuse(key, shown(*walk.find(key)), "log, linear");
  }
}

void read_end(DeepSpeedSayings& say) {
  const std::string key = param("total_num_steps");
  if (const json* steps = say.walk().find(key)) {
    say.add("lr-decay-iters", *steps, key);
  } else if (!say.walk().is_automatic(key)) {
    say.walk().refuse(key, "none", "the number of steps, or \"auto\"");
  }
}

// Rates of WarmupLR and WarmupDecayLR: they are given themselves.
void read_rates(DeepSpeedSayings& say, bool decays) {
  DeepSpeedWalk& walk = say.walk();
  const std::string low = param("warmup_min_lr"), high = param("warmup_max_lr"), of_optimizer = "optimizer.params.lr";
  if (const json* rate = walk.find(high)) {
    if (walk.has(of_optimizer) && *walk.find(of_optimizer) != *rate)
      walk.note(fmt::format("{} takes its place, as in DeepSpeed", high), of_optimizer);
    say.add("lr", *rate, high);
  }
  const json* const least = walk.find(low);
  for (const char* flag : {"lr-warmup-init", "min-lr"}) {
    if (flag == std::string_view("min-lr") && !decays) continue;
    if (least == nullptr) {
      say.assume(flag, 0, low);
    } else {
      say.add(flag, *least, low);
    }
  }
}

// Rates of WarmupCosineLR: shares of the optimizer's.
void read_shares(DeepSpeedSayings& say) {
  const auto share = [&](const char* flag, const std::string& key, double otherwise) {
    const json* const value = say.walk().find(key);
    if (value != nullptr && (*value < 0 || *value > 1)) return say.walk().refuse(key, shown(*value), "0 to 1");
    const double rate = (value == nullptr ? otherwise : value->get<double>()) * highest_rate(say);
    if (value == nullptr) {
      say.assume(flag, rate, key);
    } else {
      say.add(flag, rate, key);
    }
  };
  share("lr-warmup-init", param("warmup_min_ratio"), 0);
  share("min-lr", param("cos_min_ratio"), 1e-4);
}

}  // namespace

void read_deepspeed_rates(DeepSpeedSayings& say) {
  DeepSpeedWalk& walk = say.walk();
  const std::string key = "scheduler.type", type = say.lowered(key);
  if (!walk.has("scheduler")) return;
  if (type.empty()) return walk.refuse(key, "none", kSchedulers);
  const bool decays = type == "warmupdecaylr", swings = type == "warmupcosinelr";
  if (type != "warmuplr" && !decays && !swings) return walk.refuse(key, shown(*walk.find(key)), kSchedulers);
  say.add("lr-rule", "deepspeed", key);
  say.add("lr-decay-style", swings ? "cosine" : decays ? "linear" : "constant", key);
  read_warmup(say);
  if (decays || swings) read_end(say);
  if (swings) {
    read_shares(say);
  } else {
    read_rates(say, decays);
  }
}

}  // namespace spillway
