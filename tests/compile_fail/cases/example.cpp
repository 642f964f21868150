// expect: must be a multiple of 16
// expect: tile_rows<24>
// A self-contained example of a case: the mistake, and under MONOLAYER_FIXED the same code put right.
template <int Rows>
struct tile_rows {
  static_assert(Rows % 16 == 0, "must be a multiple of 16");
  static constexpr int value = Rows;
};
#ifdef MONOLAYER_FIXED
constexpr int rows = tile_rows<32>::value;
#else
constexpr int rows = tile_rows<24>::value;
#endif
static_assert(rows > 0);
