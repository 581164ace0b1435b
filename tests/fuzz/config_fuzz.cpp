// config.json of a model.
#include "models/config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  refuse_or_accept([&] {
    const ModelConfig config = parse_model_config(text_of(data, size), "config.json");
    (void)config_json(config, DType::bfloat16);
  });
  return 0;
}
