// Reads safetensors files: one, or the shards that a model.safetensors.index.json lists. Tensors stay in the
// mapped files.
//
// A file is: u64 length of the header (little endian), the header, the data. The header is a JSON object,
// name to {dtype, shape, data_offsets [begin, end)}, offsets counted from the start of the data; together the
// tensors cover the data without hole or overlap. Source: the format's description in
// huggingface/safetensors.
#pragma once

#include <cstring>
#include <map>
#include <type_traits>
#include <vector>

#include "checkpoint/mapped_file.hpp"

namespace monolayer::examples {

enum class dtype { bf16, f32, f8_e4m3, f8_e8m0, f4, u8, i32, i64 };

struct dtype_row {
  dtype type;
  const char* name;
  int bits;
};
/// F4 holds two e2m1 codes a byte and its shape counts codes; many checkpoints store the same bytes as U8,
/// whose shape counts bytes.
inline constexpr dtype_row dtypes[] = {{dtype::bf16, "BF16", 16},      {dtype::f32, "F32", 32},
                                       {dtype::f8_e4m3, "F8_E4M3", 8}, {dtype::f8_e8m0, "F8_E8M0", 8},
                                       {dtype::f4, "F4", 4},           {dtype::u8, "U8", 8},
                                       {dtype::i32, "I32", 32},        {dtype::i64, "I64", 64}};

const char* name_of(dtype type);
std::string shape_text(const std::vector<long>& shape);

/// A tensor where it lies in its file, which need not be aligned to the elements' size.
struct tensor_view {
  dtype type = dtype::u8;
  std::vector<long> shape;
  const u8* data = nullptr;
  u64 bytes = 0;
  std::string_view file;

  std::string text() const;
};

std::string tensor_text(std::string_view file, std::string_view name);

/// The tensors of a checkpoint by name. Views stay valid as long as a copy of this object lives.
class tensor_files {
 public:
  using map = std::map<std::string, tensor_view, std::less<>>;

  /// One safetensors file.
  static result<tensor_files> open_file(const std::filesystem::path& path);

  /// A directory with model.safetensors (taken where both are there), or with model.safetensors.index.json
  /// and the shards that it names. A shard may hold tensors that the index does not name; they are found too.
  static result<tensor_files> open_directory(const std::filesystem::path& directory);

  /// Null where there is none.
  const tensor_view* find(std::string_view name) const;
  /// A copy of a tensor's elements: float for F32, int for I32, long long for I64.
  template <class V>
  result<std::vector<V>> values(const std::string& name) const {
    static_assert(std::is_same_v<V, float> || std::is_same_v<V, int> || std::is_same_v<V, long long>);
    constexpr dtype type = std::is_same_v<V, float> ? dtype::f32
                           : std::is_same_v<V, int> ? dtype::i32
                                                    : dtype::i64;
    const tensor_view* t = find(name);
    if (t == nullptr || t->type != type)
      return error(error_code::bad_value, tensor_text(name_, name), t ? t->text() : "nothing", name_of(type));
    std::vector<V> copy(t->bytes / sizeof(V));
    if (t->bytes != 0) std::memcpy(copy.data(), t->data, t->bytes);
    return copy;
  }
  const map& all() const { return *tensors_; }
  /// The path that was opened.
  const std::string& name() const { return name_; }

 private:
  status add(const std::filesystem::path& path);

  std::string name_;
  std::vector<std::shared_ptr<const mapped_file>> files_;
  std::shared_ptr<map> tensors_ =
      std::make_shared<map>();  // shared by copies, so that pointers into it stay valid
};

}  // namespace monolayer::examples
