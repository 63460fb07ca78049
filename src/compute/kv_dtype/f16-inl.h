// Codec of f16 planes: 16 elements widened exactly, or rounded to nearest even.
namespace {

struct KvF16 {
  using Element = uint16_t;
  KVERN_INLINE static F32x16 Load16(const Element* p) { return LoadF16(p); }
  KVERN_INLINE static void Store16(Element* p, F32x16 v) { StoreF16(p, v); }
};

}  // namespace
