// The fields of config.json: what each may be, and how it is refused otherwise.
#include "checkpoint/config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace monolayer::examples {
namespace {

/// Reads fields and keeps the first error; after one, every read returns a zero.
class field_reader {
 public:
  field_reader(const json& object, std::string file) : object_(object), file_(std::move(file)) {}

  status why;

  void fail(const std::string& field, std::string seen, std::string wanted,
            error_code code = error_code::bad_value) {
    if (why) why = error(code, file_ + ": " + field, std::move(seen), std::move(wanted));
  }
  /// A field "a.b" lies in the object "a". Null counts as absent, as transformers writes unset fields.
  const json* find(const std::string& field) const {
    const json* at = &object_;
    for (std::size_t from = 0; from <= field.size();) {
      const std::size_t dot = std::min(field.find('.', from), field.size());
      const std::string key = field.substr(from, dot - from);
      if (!at->is_object() || !at->contains(key) || (*at)[key].is_null()) return nullptr;
      at = &(*at)[key];
      from = dot + 1;
    }
    return at;
  }
  int integer(const std::string& field, long low, long high) {
    const std::string wanted = "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
    const json* v = need(field, wanted);
    if (v == nullptr) return 0;
    // An unsigned number past long's range would turn negative.
    if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<u64>() > u64(high)) ||
        v->get<long>() < low || v->get<long>() > high) {
      fail(field, v->dump(), wanted);
      return 0;
    }
    return int(v->get<long>());
  }
  int integer_or(const std::string& field, long low, long high, int otherwise) {
    return find(field) ? integer(field, low, high) : otherwise;
  }
  double positive(const std::string& field) {
    const json* v = need(field, "a positive number");
    if (v == nullptr) return 0;
    if (!v->is_number() || !(v->get<double>() > 0) || !std::isfinite(v->get<double>())) {
      fail(field, v->dump(), "a positive number");
      return 0;
    }
    return v->get<double>();
  }
  bool flag_or(const std::string& field, bool otherwise) {
    const json* v = find(field);
    if (v == nullptr) return otherwise;
    if (!v->is_boolean()) {
      fail(field, v->dump(), "true or false");
      return otherwise;
    }
    return v->get<bool>();
  }
  /// A field that may be absent but can have only one value; `because` tells why.
  void only(const std::string& field, const json& value, const std::string& because = "") {
    const json* v = find(field);
    if (v != nullptr && *v != value) fail(field, v->dump(), value.dump() + because, error_code::unsupported);
  }
  void exactly(const std::string& field, int seen, int value, const std::string& because) {
    if (seen != value)
      fail(field, std::to_string(seen), std::to_string(value) + because, error_code::unsupported);
  }
  /// One word a layer, of two. Entries past the model's layers belong to its extra prediction layers.
  std::vector<bool> words(const std::string& field, int layers, int extra, const char* yes, const char* no) {
    const json& list = *find(field);
    const std::string wanted =
        "a list of " + std::to_string(layers) + " words, '" + yes + "' or '" + no + "'";
    if (!list.is_array()) {
      fail(field, list.dump(), wanted);
      return {};
    }
    if (list.size() != std::size_t(layers) && list.size() != std::size_t(layers + extra)) {
      fail(field, std::to_string(list.size()) + " entries", wanted);
      return {};
    }
    std::vector<bool> is_yes;
    for (int i = 0; i < layers; ++i) {
      const json& word = list[std::size_t(i)];
      if (word != yes && word != no) fail(field + "[" + std::to_string(i) + "]", word.dump(), wanted);
      is_yes.push_back(word == yes);
    }
    return is_yes;
  }

 private:
  const json* need(const std::string& field, const std::string& wanted) {
    const json* v = find(field);
    if (v == nullptr) fail(field, "nothing", wanted);
    return v;
  }

  const json& object_;
  std::string file_;
};

void read_layer_lists(field_reader& f, glm5_model_config& c) {
  const int extra = f.integer_or("num_nextn_predict_layers", 0, 1000, 0);
  if (f.find("mlp_layer_types")) {
    c.moe = f.words("mlp_layer_types", c.layers, extra, "sparse", "dense");
  } else {
    f.only("moe_layer_freq", 1);
    const int dense = f.integer("first_k_dense_replace", 0, 100'000);
    for (int i = 0; i < c.layers; ++i) c.moe.push_back(i >= dense);
  }
  const json* pattern = f.find("index_topk_pattern");
  if (f.find("indexer_types")) {
    c.indexer = f.words("indexer_types", c.layers, extra, "full", "shared");
  } else if (pattern != nullptr && pattern->is_string()) {
    const std::string letters = pattern->get<std::string>();
    const auto n = std::size_t(c.layers);
    if ((letters.size() != n && letters.size() != n + std::size_t(extra)) ||
        letters.find_first_not_of("FS") != std::string::npos)
      f.fail("index_topk_pattern", pattern->dump(), std::to_string(n) + " letters, F or S");
    for (std::size_t i = 0; i < n && i < letters.size(); ++i) c.indexer.push_back(letters[i] == 'F');
  } else if (pattern != nullptr) {
    c.indexer = f.words("index_topk_pattern", c.layers, extra, "full", "shared");
  } else {
    const int every = f.integer_or("index_topk_freq", 1, 100'000, 1);
    const int offset = f.integer_or("index_skip_topk_offset", 0, 100'000, 2);
    for (int i = 0; i < c.layers && every > 0; ++i)
      c.indexer.push_back(std::max(i - offset + 1, 0) % every == 0);
  }
  if (!c.indexer.empty() && !c.indexer[0])
    f.fail("indexer_types[0]", "a layer that shares an earlier layer's picks",
           "'full': layer 0 has no earlier layer");
}

void read_rope(field_reader& f, glm5_model_config& c) {
  const std::string because = " (a scaled RoPE changes the frequencies and the softmax scale)";
  f.only("rope_parameters.rope_type", "default", because);
  f.only("rope_parameters.partial_rotary_factor", 1.0);
  f.only("partial_rotary_factor", 1.0);
  if (const json* old = f.find("rope_scaling")) {  // before rope_parameters, null meant none
    if (!old->is_object() || (!old->contains("rope_type") && !old->contains("type")))
      f.fail("rope_scaling", old->dump(), "nothing, or rope_type \"default\"" + because,
             error_code::unsupported);
    f.only("rope_scaling.rope_type", "default", because);
    f.only("rope_scaling.type", "default", because);
  }
  const bool in_parameters = f.find("rope_parameters.rope_theta") != nullptr;
  c.rope_theta = f.positive(in_parameters ? "rope_parameters.rope_theta" : "rope_theta");
  if (in_parameters && f.find("rope_theta") && f.positive("rope_theta") != c.rope_theta)
    f.fail("rope_theta", f.find("rope_theta")->dump(), "the value of rope_parameters.rope_theta",
           error_code::mismatch);
  f.only("rope_interleave", true, " (half-split rotation is not supported)");
  f.only("indexer_rope_interleave", true, " (half-split rotation is not supported)");
}

void read_eos(field_reader& f, glm5_model_config& c) {
  const json* ids = f.find("eos_token_id");
  if (ids == nullptr) return;
  for (const json& id : ids->is_array() ? *ids : json::array({*ids})) {
    if (!id.is_number_integer() || id.get<long>() < 0 || id.get<long>() >= c.vocab) {
      f.fail("eos_token_id", ids->dump(), "token ids below vocab_size " + std::to_string(c.vocab));
      return;
    }
    c.eos.push_back(int(id.get<long>()));
  }
}

}  // namespace

result<glm5_model_config> parse_config(const json& object, const std::string& file) {
  field_reader f(object, file);
  glm5_model_config c;
  const json* type = f.find("model_type");
  if (type == nullptr || *type != "glm_moe_dsa")
    f.fail("model_type", type ? type->dump() : "nothing", "\"glm_moe_dsa\"", error_code::unsupported);
  c.hidden = f.integer("hidden_size", 1, 1 << 20);
  c.vocab = f.integer("vocab_size", 1, 1 << 28);
  c.layers = f.integer("num_hidden_layers", 1, 4096);
  c.max_positions = f.integer("max_position_embeddings", 1, 1 << 30);
  c.heads = f.integer("num_attention_heads", 1, 4096);
  c.q_lora = f.integer("q_lora_rank", 1, 1 << 20);
  c.kv_lora = f.integer("kv_lora_rank", 1, 1 << 20);
  c.nope = f.integer("qk_nope_head_dim", 1, 4096);
  c.rope = f.integer("qk_rope_head_dim", 1, 4096);
  c.v_dim = f.integer("v_head_dim", 1, 4096);
  c.index_heads = f.integer("index_n_heads", 1, 4096);
  c.index_dim = f.integer("index_head_dim", 1, 4096);
  c.index_topk = f.integer("index_topk", 1, 1 << 20);
  c.experts = f.integer("n_routed_experts", 1, 1 << 16);
  c.top_k = f.integer("num_experts_per_tok", 1, 1 << 16);
  c.expert_width = f.integer("moe_intermediate_size", 1, 1 << 20);
  c.dense_width = f.integer("intermediate_size", 1, 1 << 24);
  c.routed_scaling = f.positive("routed_scaling_factor");
  c.layer_norm_eps = f.positive("rms_norm_eps");
  c.tied_embeddings = f.flag_or("tie_word_embeddings", false);
  if (!f.why) return f.why;

  f.exactly("kv_lora_rank", c.kv_lora, 512, ", the width that the cache rows have");
  f.exactly("qk_rope_head_dim", c.rope, 64, ", the width that the cache rows have");
  f.exactly("index_head_dim", c.index_dim, 128, ", the width that index keys have");
  f.only("qk_head_dim", c.head_dim(), ", the sum of qk_nope_head_dim and qk_rope_head_dim");
  f.only("num_key_value_heads", c.heads, ", the same as num_attention_heads");
  if (c.top_k > c.experts)
    f.fail("num_experts_per_tok", std::to_string(c.top_k),
           "at most n_routed_experts " + std::to_string(c.experts));
  if (c.dense_width % c.expert_width != 0)
    f.fail("intermediate_size", std::to_string(c.dense_width),
           "a multiple of moe_intermediate_size " + std::to_string(c.expert_width) +
               " (a dense MLP is packed as slices of that width)",
           error_code::unsupported);
  f.only("n_shared_experts", 1);
  f.only("n_group", 1, " (grouped routing is not supported)");
  f.only("topk_group", 1, " (grouped routing is not supported)");
  f.only("scoring_func", "sigmoid");
  f.only("topk_method", "noaux_tc");
  f.only("norm_topk_prob", true);
  f.only("hidden_act", "silu");
  f.only("attention_bias", false);
  f.only("mlp_bias", false);
  f.only("quantization_config.weight_block_size", json::array({128, 128}));
  read_rope(f, c);
  read_layer_lists(f, c);
  read_eos(f, c);
  if (!f.why) return f.why;
  return c;
}

result<glm5_model_config> read_config(const std::filesystem::path& path) {
  auto object = read_json(path);
  if (!object) return object.why();
  return parse_config(object.value(), path.string());
}

}  // namespace monolayer::examples
