// A tensor's type, shape and scales against what is wanted of it; values that need another type.
#include "checkpoint/tensor_reader.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "monolayer/core/types.hpp"

namespace monolayer::examples {
namespace {

const std::vector<std::vector<long>> any_shape;

}  // namespace

const char* name_of(weight_kind kind) {
  constexpr const char* names[] = {"bf16", "fp8_block", "fp8_channel", "mxfp4"};
  return names[int(kind)];
}

const u16* tensor_reader::bf16_values(const std::string& name, const std::vector<long>& shape) {
  const tensor_view* t = need(name, shape, {dtype::bf16, dtype::f32});
  if (t == nullptr) return nullptr;
  if (t->type == dtype::bf16) return aligned<u16>(*t);
  if (!look_at_values_) return nullptr;
  u16* to = make<u16>(t->bytes / 4);
  for (u64 i = 0; i < t->bytes / 4; ++i) {
    u32 bits;
    std::memcpy(&bits, t->data + 4 * i, 4);
    if ((bits & 0xffffu) != 0) {
      fail(error_code::unsupported, *t, name,
           std::to_string(std::bit_cast<float>(bits)) + " at element " + std::to_string(i),
           "values that bf16 holds exactly: the layer keeps this tensor in bf16");
      return nullptr;
    }
    to[i] = u16(bits >> 16);
  }
  return to;
}

checkpoint_matrix tensor_reader::bf16_matrix(const std::string& name, long rows, long columns) {
  checkpoint_matrix m;
  m.data = bf16_values(name, {rows, columns});
  m.rows = rows;
  m.columns = columns;
  return m;
}

const float* tensor_reader::f32_values(const std::string& name,
                                       const std::vector<std::vector<long>>& shapes) {
  const tensor_view* t = need(name, shapes, {dtype::f32, dtype::bf16});
  if (t == nullptr) return nullptr;
  const float* values = t->type == dtype::f32 ? aligned<float>(*t) : widened(*t);
  const u64 count = t->bytes / (t->type == dtype::f32 ? 4 : 2);
  for (u64 i = 0; look_at_values_ && i < count; ++i)
    if (!std::isfinite(values[i])) {
      fail(error_code::bad_value, *t, name, std::to_string(values[i]) + " at element " + std::to_string(i),
           "finite values");
      return nullptr;
    }
  return values;
}

checkpoint_matrix tensor_reader::matrix(const std::string& base, long rows, long columns,
                                        format_group& group) {
  const std::string name = base + ".weight", scale_name = base + ".weight_scale",
                    inverse = base + ".weight_scale_inv";
  checkpoint_matrix m;
  m.rows = rows;
  m.columns = columns;
  if (why && files_.find(name) == nullptr)
    why = error(error_code::bad_value, tensor_text(files_.name(), name), "nothing",
                "BF16, F8_E4M3, U8 or F4 weights for a matrix " + shape_text({rows, columns}));
  const tensor_view* t = need(name, any_shape, {dtype::bf16, dtype::f8_e4m3, dtype::u8, dtype::f4});
  if (t == nullptr) return m;
  if (const tensor_view* bias = files_.find(base + ".bias")) {
    fail(error_code::unsupported, *bias, base + ".bias", bias->text(),
         "no bias: the layer's projections have none");
    return m;
  }
  const bool fp4 = t->type == dtype::u8 || t->type == dtype::f4;
  if (fp4 && columns % 32 != 0) {
    fail(error_code::unsupported, *t, name, t->text(),
         "a multiple of 32 columns, not " + std::to_string(columns) + ": MXFP4 has a scale per 32");
    return m;
  }
  check_shape(*t, name, {{rows, t->type == dtype::u8 ? columns / 2 : columns}});
  const tensor_view *plain = files_.find(scale_name), *inverted = files_.find(inverse);
  if (why && plain != nullptr && inverted != nullptr)
    fail(error_code::bad_value, *inverted, inverse, "weight_scale too",
         "one of weight_scale_inv and weight_scale");
  weight_kind kind = weight_kind::bf16;
  if (t->type == dtype::bf16) {
    if (const tensor_view* scale = plain ? plain : inverted)
      fail(error_code::bad_value, *scale, plain ? scale_name : inverse, "a scale of BF16 weights",
           "scales of F8_E4M3, U8 or F4 weights only");
    m.data = aligned<u8>(*t);
  } else if (fp4) {
    kind = weight_kind::mxfp4;
    m.data = t->data;
    m.block_scales = block_scales(scale_name, rows, columns);
  } else {
    m.data = t->data;
    m.scales = fp8_scales(*t, name, inverted ? inverse : scale_name, rows, columns, kind);
  }
  if (why && group.kind && *group.kind != kind)
    fail(error_code::mismatch, *t, name, name_of(kind),
         std::string(name_of(*group.kind)) + ", the format of '" + group.first + "': the " + group.name +
             " matrices of a layer share one format");
  if (!group.kind) group.first = name;
  group.kind = group.kind.value_or(kind);
  return m;
}

void tensor_reader::fail(error_code code, const tensor_view& t, const std::string& name, std::string seen,
                         std::string wanted) {
  if (why) why = error(code, tensor_text(t.file, name), std::move(seen), std::move(wanted));
}

void tensor_reader::check_shape(const tensor_view& t, const std::string& name,
                                const std::vector<std::vector<long>>& shapes) {
  std::string wanted;
  for (const auto& shape : shapes) {
    if (t.shape == shape) return;
    wanted += (wanted.empty() ? "" : " or ") + shape_text(shape);
  }
  if (!shapes.empty()) fail(error_code::bad_shape, t, name, t.text(), wanted);
}

const tensor_view* tensor_reader::need(const std::string& name, const std::vector<std::vector<long>>& shapes,
                                       std::initializer_list<dtype> types) {
  if (!why) return nullptr;
  const tensor_view* t = files_.find(name);
  std::string wanted;
  for (dtype type : types) {
    if (t != nullptr && t->type == type) {
      check_shape(*t, name, shapes);
      return why ? t : nullptr;
    }
    wanted += (wanted.empty() ? "" : " or ") + std::string(name_of(type));
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) wanted += (i ? " or " : " ") + shape_text(shapes[i]);
  if (t == nullptr)
    why = error(error_code::bad_value, tensor_text(files_.name(), name), "nothing", wanted);
  else
    fail(error_code::unsupported, *t, name, t->text(), wanted);
  return nullptr;
}

const tensor_view* tensor_reader::need(const std::string& name, const std::vector<long>& shape,
                                       std::initializer_list<dtype> types) {
  return need(name, std::vector<std::vector<long>>{shape}, types);
}

template <class V>
V* tensor_reader::make(u64 count) {
  std::shared_ptr<V[]> buffer(new V[count]);
  owners.push_back(buffer);
  return buffer.get();
}

template <class V>
const V* tensor_reader::aligned(const tensor_view& t) {
  if (reinterpret_cast<std::uintptr_t>(t.data) % alignof(V) == 0) return reinterpret_cast<const V*>(t.data);
  V* to = make<V>(t.bytes / sizeof(V));
  std::memcpy(to, t.data, t.bytes);
  return to;
}

const float* tensor_reader::widened(const tensor_view& t) {
  float* to = make<float>(t.bytes / 2);
  for (u64 i = 0; i < t.bytes / 2; ++i) {
    bf16 value;
    std::memcpy(&value.bits, t.data + 2 * i, 2);
    to[i] = to_float(value);
  }
  return to;
}

const u8* tensor_reader::block_scales(const std::string& name, long rows, long columns) {
  const tensor_view* t = need(name, std::vector<long>{rows, columns / 32}, {dtype::u8, dtype::f8_e8m0});
  for (u64 i = 0; t != nullptr && look_at_values_ && i < t->bytes; ++i)
    if (t->data[i] == 255) {
      fail(error_code::bad_value, *t, name, "NaN (255) at element " + std::to_string(i), "finite values");
      return nullptr;
    }
  return t ? t->data : nullptr;
}

const float* tensor_reader::fp8_scales(const tensor_view& t, const std::string& weight,
                                       const std::string& name, long rows, long columns, weight_kind& kind) {
  const std::vector<long> blocks = {(rows + 127) / 128, (columns + 127) / 128};
  const bool inverted = name.ends_with("_inv");
  const tensor_view* scale = files_.find(name);
  if (scale == nullptr) {
    fail(error_code::bad_value, t, weight, t.text() + " without scales",
         "weight_scale_inv " + shape_text(blocks) + " or weight_scale " + shape_text({rows}));
    return nullptr;
  }
  kind = scale->shape == blocks ? weight_kind::fp8_block : weight_kind::fp8_channel;
  if (inverted) {
    kind = weight_kind::fp8_block;
    return f32_values(name, {blocks});
  }
  return f32_values(name, {{rows}, {rows, 1}, blocks});
}

}  // namespace monolayer::examples
