// Codec of bf16 planes: 16 elements widened exactly, or rounded to nearest even.
namespace {

struct KvBf16 {
  using Element = uint16_t;
  KVERN_INLINE static F32x16 Load16(const Element* p) { return LoadBf16(p); }
  KVERN_INLINE static void Store16(Element* p, F32x16 v) { StoreBf16(p, v); }
};

}  // namespace
