// Choosing the compiled line for a checkpoint, and saying which line is missing where there is none.
#pragma once

#include "generate/runner.hpp"
#include "monolayer/config/glm5.hpp"

namespace monolayer::examples {

struct named_geometry {
  const char* name;  // the config struct's
  geometry size;
};
inline constexpr named_geometry named_geometries[] = {{"micro_layer", geometry_of<micro_layer<4>>()},
                                                      {"tiny_layer", geometry_of<tiny_layer<4>>()},
                                                      {"mini_layer", geometry_of<mini_layer<4>>()},
                                                      {"glm5_layer", geometry_of<glm5_layer<4>>()}};

/// The name of a geometry's config struct, or null.
inline const char* name_of(const geometry& g) {
  for (const named_geometry& one : named_geometries)
    if (one.size == g) return one.name;
  return nullptr;
}

namespace detail {

/// Members of a config that differ from glm5_layer's; TP stands for the number of ranks.
inline std::string members_of(const geometry& g) {
  const geometry base = geometry_of<glm5_layer<8>>();
  std::string text;
  const auto add = [&](const char* name, int geometry::*field, const char* of_a_rank = "") {
    if (g.*field != base.*field)
      text +=
          "static constexpr int " + std::string(name) + " = " + std::to_string(g.*field) + of_a_rank + "; ";
  };
  const auto add_float = [&](const char* name, float geometry::*field) {
    if (g.*field != base.*field) {
      char value[40];
      std::snprintf(value, sizeof value, "%.9g", double(g.*field));
      text += "static constexpr float " + std::string(name) + " = float(" + value + "); ";
    }
  };
  add("hidden", &geometry::hidden), add("q_lora", &geometry::q_lora), add("kv_lora", &geometry::kv_lora);
  add("heads", &geometry::heads, " / TP"), add("nope", &geometry::nope), add("rope", &geometry::rope);
  add("v_dim", &geometry::v_dim), add("index_heads", &geometry::index_heads),
      add("index_dim", &geometry::index_dim);
  add("index_topk", &geometry::index_topk), add("experts", &geometry::experts),
      add("top_k", &geometry::top_k);
  add("expert_width", &geometry::expert_width, " / TP"), add("dense_slices", &geometry::dense_slices);
  if (g.nope + g.rope != base.nope + base.rope) {
    char scale[40];
    std::snprintf(scale, sizeof scale, "%.9g", 1 / std::sqrt(double(g.nope + g.rope)));
    text += std::string("static constexpr float softmax_scale = float(") + scale + "); ";
  }
  if (g.heads != base.heads) text += "static constexpr int heads_at_once = heads < 16 ? heads : 16; ";
  add_float("routed_scaling", &geometry::routed_scaling), add_float("input_eps", &geometry::input_eps);
  if (g.input_eps != base.input_eps) text += "static constexpr float post_eps = input_eps; ";
  add_float("q_a_eps", &geometry::q_a_eps), add_float("kv_a_eps", &geometry::kv_a_eps);
  return text;
}

inline std::string format_type(weight_kind kind) {
  constexpr const char* names[] = {"bf16_weights", "fp8_block<128, 128>", "fp8_channel", "mxfp4"};
  return names[int(kind)];
}

/// The formats as a wrapper around a config: {"with_fp8_layer<", ">"}; nothing where the library has no name
/// for them.
inline std::pair<std::string, std::string> format_wrapper(const checkpoint_formats& f) {
  if (f == formats_of<with_mxfp4_layer<glm5_layer<8>>>()) return {"with_mxfp4_layer<", ">"};
  if (f == formats_of<with_fp8_layer<glm5_layer<8>>>()) return {"with_fp8_layer<", ">"};
  if (f == formats_of<with_bf16_layer<glm5_layer<8>>>()) return {"with_bf16_layer<", ">"};
  return {"", ""};
}

/// The line of configs.hpp for a checkpoint, after the struct that it needs.
inline std::string line_for(const geometry& g, const checkpoint_formats& formats, int tp, bool fp8_caches) {
  const char* known = name_of(g);
  std::string members = known ? "" : members_of(g);
  auto [before, after] = format_wrapper(formats);
  const bool unnamed = before.empty() && formats != formats_of<glm5_layer<8>>();
  if (unnamed)
    members += "using attention_weights = " + format_type(formats.attention) +
               "; using index_weights = " + format_type(formats.index) +
               "; using expert_weights = " + format_type(formats.experts) + "; ";
  const std::string base = known ? known : "glm5_layer", name = members.empty() ? base : "my_layer";
  std::string text = before + name + "<" + std::to_string(tp) + ">" + after;
  if (fp8_caches) text = "with_fp8_caches<" + text + ">";
  if (members.empty()) return "'" + text + "'";
  return "'template <int TP> struct my_layer : " + base + "<TP> { " + members + "};' and '" + text + "'" +
         (known ? "" : " (micro_layer shows the splits that a small geometry may need too)");
}

}  // namespace detail

/// What a checkpoint and the command line ask for.
struct wanted_model {
  geometry size;
  checkpoint_formats formats;
  int tp;
  bool fp8_caches;
  std::string target;  // empty: any
};

/// Errors: numbers that --tp does not divide; a target, geometry, format, TP or cache that this program was
/// not compiled for, with the line to add to configs.hpp.
inline result<compiled_model> choose_model(const std::vector<compiled_model>& compiled,
                                           const wanted_model& w) {
  for (const auto& [name, value] : {std::pair("num_attention_heads", w.size.heads),
                                    std::pair("moe_intermediate_size", w.size.expert_width)})
    if (value % w.tp != 0)
      return error(error_code::bad_value, "--tp", std::to_string(w.tp),
                   "a divisor of " + std::string(name) + " " + std::to_string(value));
  std::string targets;
  bool have_target = w.target.empty();
  for (const compiled_model& m : compiled) {
    if (("," + targets + ",").find("," + m.target + ",") == std::string::npos)
      targets += (targets.empty() ? "" : ",") + m.target;
    have_target |= m.target == w.target;
  }
  if (!have_target)
    return error(error_code::unsupported, "--target", "'" + w.target + "'",
                 "one that this program is compiled for: " + targets);
  bool size = false, formats = false;
  std::string tps;
  for (const compiled_model& m : compiled) {
    if (!w.target.empty() && m.target != w.target) continue;
    size |= m.size == w.size;
    formats |= m.size == w.size && m.formats == w.formats;
    if (m.size != w.size || m.formats != w.formats || m.fp8_caches != w.fp8_caches) continue;
    if (m.ranks == w.tp) return m;
    tps += (tps.empty() ? "" : ", ") + std::to_string(m.ranks);
  }
  const std::string line =
      detail::line_for(w.size, w.formats, w.tp, w.fp8_caches) + " in examples/generate/configs.hpp";
  const char* name = name_of(w.size);
  if (!size)
    return error(error_code::unsupported, "geometry of the checkpoint",
                 name ? std::string(name) + "'s"
                      : "hidden " + std::to_string(w.size.hidden) + " and others that no line has",
                 line);
  if (!formats) return error(error_code::unsupported, "formats of the checkpoint", w.formats.text(), line);
  if (tps.empty()) return error(error_code::unsupported, "--caches", w.fp8_caches ? "fp8" : "bf16", line);
  return error(error_code::unsupported, "--tp", std::to_string(w.tp),
               "one that is compiled (" + tps + "), or " + line);
}

}  // namespace monolayer::examples
