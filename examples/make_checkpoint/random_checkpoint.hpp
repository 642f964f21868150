// GLM-5 checkpoints of random weights, for tests of the whole way from files to tokens. A tensor's bits
// depend on the seed and its name alone.
#pragma once

#include "checkpoint/glm5_checkpoint.hpp"
#include "make_checkpoint/write_safetensors.hpp"

namespace monolayer::examples {

struct random_checkpoint {
  glm5_model_config config;
  checkpoint_formats formats;
  std::vector<stored_tensor> tensors;
};

/// GLM-5's own head sizes at a size that eight ranks share without padding: one head and 128 columns of an
/// expert each.
glm5_model_config mini_config();

json config_json(const glm5_model_config& c, const checkpoint_formats& formats);

random_checkpoint make_random_checkpoint(const glm5_model_config& c, const checkpoint_formats& formats,
                                         u64 seed);

/// Writes its directory: config.json and the tensors, in so many files.
status write_checkpoint(const std::filesystem::path& directory, const random_checkpoint& made,
                        int shards = 1);

}  // namespace monolayer::examples
