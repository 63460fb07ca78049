// Codec of f32 planes: 16 elements widened exactly, or rounded to nearest even.
namespace {

struct KvF32 {
  using Element = float;
  KVERN_INLINE static F32x16 Load16(const Element* p) { return Load(p); }
  KVERN_INLINE static void Store16(Element* p, F32x16 v) { Store(p, v); }
};

}  // namespace
