// Tensors of a checkpoint as the packers take them: looked up by name, checked, and told apart by format.
#pragma once

#include <initializer_list>
#include <optional>

#include "checkpoint/safetensors.hpp"
#include "monolayer/host/pack.hpp"

namespace monolayer::examples {

/// How a matrix is stored, in the order of packed_header::format.
///   bf16         BF16 [N, K]
///   fp8_block    F8_E4M3 [N, K] and F32 [ceil(N/128), ceil(K/128)], named weight_scale_inv (or weight_scale)
///   fp8_channel  F8_E4M3 [N, K] and F32 weight_scale [N] or [N, 1]
///   mxfp4        U8 [N, K/2] or F4 [N, K], and U8 or F8_E8M0 weight_scale [N, K/32]
enum class weight_kind { bf16, fp8_block, fp8_channel, mxfp4 };

const char* name_of(weight_kind kind);

/// Matrices that one compiled format covers. The first one read sets the kind.
struct format_group {
  const char* name;
  std::optional<weight_kind> kind{};
  std::string first{};
};

/// Reads tensors and keeps the first error; after one, every read returns null. Buffers that it had to make
/// (converted or misaligned tensors) are in `owners`.
class tensor_reader {
 public:
  /// Without `look_at_values` only names, types and shapes are checked, and tensors that need a conversion
  /// come out null: an opening need not read the files' data.
  tensor_reader(const tensor_files& files, bool look_at_values)
      : files_(files), look_at_values_(look_at_values) {}

  status why;
  std::vector<std::shared_ptr<const void>> owners;

  /// A BF16 tensor, or an F32 one whose values all are bf16 values.
  const u16* bf16_values(const std::string& name, const std::vector<long>& shape);
  checkpoint_matrix bf16_matrix(const std::string& name, long rows, long columns);

  /// An F32 tensor, or a BF16 one, which f32 holds exactly. `shapes` are the shapes to accept.
  const float* f32_values(const std::string& name, const std::vector<std::vector<long>>& shapes);

  /// The matrix `base`.weight [rows, columns] in whatever format it has, which must be the one of its group.
  checkpoint_matrix matrix(const std::string& base, long rows, long columns, format_group& group);

 private:
  void fail(error_code code, const tensor_view& t, const std::string& name, std::string seen,
            std::string wanted);
  void check_shape(const tensor_view& t, const std::string& name,
                   const std::vector<std::vector<long>>& shapes);
  const tensor_view* need(const std::string& name, const std::vector<std::vector<long>>& shapes,
                          std::initializer_list<dtype> types);
  const tensor_view* need(const std::string& name, const std::vector<long>& shape,
                          std::initializer_list<dtype> types);

  template <class V>
  V* make(u64 count);
  /// The tensor's data as V: where it lies, or a copy if that place is not aligned.
  template <class V>
  const V* aligned(const tensor_view& t);
  const float* widened(const tensor_view& t);

  const u8* block_scales(const std::string& name, long rows, long columns);
  const float* fp8_scales(const tensor_view& t, const std::string& weight, const std::string& name, long rows,
                          long columns, weight_kind& kind);

  const tensor_files& files_;
  bool look_at_values_;
};

}  // namespace monolayer::examples
