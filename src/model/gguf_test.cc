#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "model/gguf_describe.h"
#include "model/gguf_test_util.h"

namespace kvern::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A parsed file together with the bytes that it is a view of.
struct Parsed {
  explicit Parsed(const GgufWriter& writer)
      : bytes(ExactBytes(writer.Bytes())), gguf(Gguf::Parse(bytes, "test.gguf")) {}

  std::vector<std::byte> bytes;
  Result<Gguf> gguf;
};

std::string ParseError(const GgufWriter& writer) {
  const Parsed parsed(writer);
  return parsed.gguf.ok() ? "no error" : parsed.gguf.error().message;
}

TEST(Gguf, ReadsEveryKind) {
  for (const uint32_t version : {2u, 3u}) {
    const Parsed parsed(SmallGguf(version));
    ASSERT_TRUE(parsed.gguf.ok()) << parsed.gguf.error().message;
    const Gguf& gguf = *parsed.gguf;
    EXPECT_EQ(gguf.version(), version);
    EXPECT_EQ(gguf.file_bytes(), parsed.bytes.size());
    EXPECT_EQ(gguf.metadata().size(), 17u);
    EXPECT_EQ(gguf.metadata()[1].key, "a.uint8");
    EXPECT_EQ(*gguf.GetString("general.architecture"), "llama");
    EXPECT_EQ(*gguf.GetUint("a.uint8"), 200u);
    EXPECT_EQ(*gguf.GetUint("a.uint16"), 60000u);
    EXPECT_EQ(*gguf.GetUint("a.int16"), 300u);
    EXPECT_EQ(*gguf.GetUint("a.uint32"), 4000000000u);
    EXPECT_EQ(*gguf.GetUint("a.uint64"), uint64_t{1} << 63);
    EXPECT_EQ(std::get<int64_t>(gguf.Find("a.int8")->value), -2);
    EXPECT_EQ(std::get<int64_t>(gguf.Find("a.int32")->value), -70000);
    EXPECT_EQ(std::get<int64_t>(gguf.Find("a.int64")->value), -5);
    EXPECT_EQ(*gguf.GetFloat("a.float32"), 1e-5f);
    EXPECT_EQ(*gguf.GetFloat("a.float64"), 0.1);
    EXPECT_TRUE(*gguf.GetBool("a.bool"));
    EXPECT_THAT(*gguf.GetInts("b.ints"), ElementsAre(3, 1, -2));
    EXPECT_THAT(*gguf.GetFloats("b.floats"), ElementsAre(0.5f, -1.0f));
    EXPECT_THAT(*gguf.GetStrings("b.strings"), ElementsAre("<s>", "", "two\nlines"));
    EXPECT_TRUE(gguf.GetStrings("b.empty")->empty());
  }
}

TEST(Gguf, ReadsTensors) {
  const Parsed parsed(SmallGguf());
  const Gguf& gguf = *parsed.gguf;
  ASSERT_EQ(gguf.tensors().size(), 4u);
  EXPECT_EQ(gguf.tensors()[3].name, "blk.0.cube");
  EXPECT_EQ(gguf.FindTensor("none"), nullptr);
  const TensorInfo& tensor = **gguf.GetTensor("blk.0.attn_q.weight");
  EXPECT_EQ(tensor.type, compute::QuantType::kQ4_1);
  EXPECT_EQ(tensor.num_dims, 2u);
  EXPECT_THAT(tensor.dims, ElementsAre(32, 2, 1, 1));
  EXPECT_EQ(tensor.num_elements, 64u);
  EXPECT_THAT(tensor.data, testing::SizeIs(40));
  EXPECT_THAT(tensor.data, testing::Each(std::byte{2}));
}

TEST(Gguf, GettersNameFileKeyAndKinds) {
  const Parsed parsed(SmallGguf());
  const Gguf& gguf = *parsed.gguf;
  EXPECT_EQ(gguf.GetUint("no.key").error().message, "test.gguf: metadata no.key is missing");
  EXPECT_EQ(gguf.GetUint("no.key").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(gguf.GetUint("a.int8").error().message,
            "test.gguf: metadata a.int8: expected an unsigned integer, found int8 -2");
  EXPECT_EQ(gguf.GetFloat("a.bool").error().message,
            "test.gguf: metadata a.bool: expected float32 or float64, found bool");
  EXPECT_EQ(gguf.GetBool("a.uint8").error().message,
            "test.gguf: metadata a.uint8: expected bool, found uint8");
  EXPECT_EQ(gguf.GetString("b.strings").error().message,
            "test.gguf: metadata b.strings: expected string, found array of string");
  EXPECT_EQ(gguf.GetInts("b.floats").error().message,
            "test.gguf: metadata b.floats: expected array of integers, found array of float32");
  EXPECT_EQ(gguf.GetStrings("a.uint8").error().message,
            "test.gguf: metadata a.uint8: expected array of string, found uint8");
  EXPECT_EQ(gguf.GetTensor("none").error().message, "test.gguf: tensor none is missing");
}

TEST(Gguf, WhatMayBeAbsentIsNoError) {
  const Parsed parsed(SmallGguf());
  const Gguf& gguf = *parsed.gguf;
  EXPECT_FALSE(gguf.FindUint("no.key")->has_value());
  EXPECT_FALSE(gguf.FindStrings("no.key")->has_value());
  EXPECT_EQ(**gguf.FindUint("a.uint8"), 200u);
  EXPECT_EQ(gguf.FindUint("a.bool").error().code, ErrorCode::kCorrupt);
}

TEST(Gguf, HonoursTheAlignment) {
  GgufWriter writer;
  writer.alignment = 256;
  writer.AddUint32("general.alignment", 256)
      .AddTensor("a", 24, {1}, "?")
      .AddTensor("b", 0, {1}, "abcd");
  const Parsed parsed(writer);
  ASSERT_TRUE(parsed.gguf.ok()) << parsed.gguf.error().message;
  const auto data = parsed.gguf->FindTensor("b")->data;
  EXPECT_EQ(data.data() - parsed.bytes.data(), 512);
}

TEST(Gguf, UnsupportedTypesAreListedButRefusedWhenNeeded) {
  GgufWriter writer;
  writer.AddTensor("experts", 39, {32}, std::string(17, 'x'));
  const Parsed parsed(writer);
  ASSERT_TRUE(parsed.gguf.ok()) << parsed.gguf.error().message;
  EXPECT_TRUE(parsed.gguf->FindTensor("experts")->data.empty());
  const auto tensor = parsed.gguf->GetTensor("experts");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(tensor.error().message,
            "test.gguf: tensor experts is of type 39, which is not supported: use a model in one "
            "of F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16");
}

TEST(Gguf, RefusesWhatIsNotGguf) {
  for (const std::string_view text : {"", "G", "GGU", "PK\3\4....", "GGML"}) {
    const auto bytes = ExactBytes(text);
    EXPECT_EQ(Gguf::Parse(bytes, "x").error().message,
              "x: not a GGUF file: it does not start with \"GGUF\"");
  }
  GgufWriter writer;
  writer.version = 1;
  EXPECT_EQ(ParseError(writer),
            "test.gguf: GGUF version 1 is not supported (2 and 3 are): convert the model again");
  writer.version = 0x03000000;
  EXPECT_EQ(ParseError(writer),
            "test.gguf: big-endian GGUF is not supported: convert the model to little-endian");
}

TEST(GgufHostile, CountsAndLengths) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  GgufWriter writer;
  writer.claimed_num_tensors = kHuge;
  EXPECT_THAT(ParseError(writer), HasSubstr("tensor count is 18446744073709551615, more than"));
  writer = {};
  writer.claimed_num_metadata = kHuge / 16;
  EXPECT_THAT(ParseError(writer), HasSubstr("metadata count is 1152921504606846975, more than"));
  // Plausible for the file's size, yet more than there is.
  writer = SmallGguf();
  writer.claimed_num_tensors = 7;
  EXPECT_THAT(ParseError(writer), StartsWith("test.gguf: name of tensor 4 "));

  const auto raw = [](uint32_t kind, const std::string& value) {
    GgufWriter one;
    return ParseError(one.Raw("key", kind, value));
  };
  EXPECT_THAT(raw(8, RawBytes(kHuge)), HasSubstr("metadata key needs 18446744073709551615 bytes"));
  EXPECT_THAT(raw(8, RawBytes<uint64_t>(2) + "x"), HasSubstr("metadata key needs 2 bytes"));
  for (const uint32_t element_kind : {0u, 4u, 8u, 12u}) {
    EXPECT_THAT(raw(9, RawBytes(element_kind) + RawBytes(kHuge / 4)),
                HasSubstr("metadata key's element count is 4611686018427387903, more than"));
  }
  EXPECT_THAT(raw(9, RawBytes(8) + RawBytes<uint64_t>(1) + RawBytes(kHuge)),
              HasSubstr("metadata key needs 18446744073709551615 bytes"));
}

TEST(GgufHostile, Kinds) {
  const auto error = [](uint32_t kind, const std::string& value) {
    GgufWriter writer;
    return ParseError(writer.Raw("a\nkey", kind, value + std::string(16, '\0')));
  };
  EXPECT_EQ(error(13, ""), "test.gguf: metadata a\\x0akey has unknown kind 13");
  EXPECT_EQ(error(~0u, ""), "test.gguf: metadata a\\x0akey has unknown kind 4294967295");
  EXPECT_EQ(error(9, RawBytes(77)), "test.gguf: metadata a\\x0akey is an array of unknown kind 77");
  EXPECT_EQ(error(9, RawBytes(9) + RawBytes<uint64_t>(1)),
            "test.gguf: metadata a\\x0akey is an array of arrays, which is not supported");
  EXPECT_EQ(error(7, "\2"),
            "test.gguf: metadata a\\x0akey has a bool of value 2 (0 or 1 is allowed)");
  EXPECT_EQ(error(9, RawBytes(7) + RawBytes<uint64_t>(1) + "\xff"),
            "test.gguf: metadata a\\x0akey has a bool of value 255 (0 or 1 is allowed)");
}

TEST(GgufHostile, Keys) {
  GgufWriter writer;
  writer.AddUint32("twice", 1).AddUint32("twice", 2);
  EXPECT_EQ(ParseError(writer), "test.gguf: metadata key twice occurs twice");
  writer = {};
  writer.AddUint32("", 1);
  EXPECT_EQ(ParseError(writer),
            "test.gguf: metadata key 0 is 0 bytes long (1 to 65535 are allowed)");
  writer = {};
  writer.AddUint32(std::string(65536, 'k'), 1);
  EXPECT_EQ(ParseError(writer),
            "test.gguf: metadata key 0 is 65536 bytes long (1 to 65535 are allowed)");
}

TEST(GgufHostile, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 31}) {
    GgufWriter writer;
    writer.AddUint32("general.alignment", alignment);
    EXPECT_EQ(ParseError(writer), "test.gguf: metadata general.alignment is " +
                                      std::to_string(alignment) +
                                      ": expected a power of two from 8 to 1048576");
  }
  GgufWriter writer;
  writer.AddString("general.alignment", "32");
  EXPECT_EQ(ParseError(writer),
            "test.gguf: metadata general.alignment: expected uint32, found string");
}

// The error for one tensor "t" of 4 bytes of data.
std::string TensorError(uint32_t type, const std::vector<uint64_t>& dims,
                        std::optional<uint64_t> offset = std::nullopt) {
  GgufWriter writer;
  return ParseError(writer.AddTensor("t", type, dims, "data", offset));
}

TEST(GgufHostile, Shapes) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  EXPECT_EQ(TensorError(0, {1}), "no error");
  EXPECT_EQ(TensorError(0, {}), "test.gguf: tensor t has 0 dimensions (1 to 4 are allowed)");
  EXPECT_EQ(TensorError(0, {1, 1, 1, 1, 1}),
            "test.gguf: tensor t has 5 dimensions (1 to 4 are allowed)");
  EXPECT_EQ(TensorError(0, {1, 0}), "test.gguf: tensor t: dimension 1 is zero");
  EXPECT_EQ(TensorError(0, {kHuge, 1, 4}),
            "test.gguf: tensor t: dimension 2 is 4, so the number of elements overflows");
  EXPECT_EQ(TensorError(0, {kHuge * 2}),
            "test.gguf: tensor t: dimension 0 is 9223372036854775808, "
            "so the number of elements overflows");
  EXPECT_EQ(TensorError(0, {kHuge}),
            "test.gguf: tensor t: its size in bytes overflows (4611686018427387904 elements)");
  EXPECT_EQ(TensorError(2, {33}),
            "test.gguf: tensor t: dimension 0 is 33, not a multiple of the "
            "32 elements of a Q4_0 block");
  // The elements fill a block, but the row does not.
  EXPECT_THAT(TensorError(2, {16, 2}), HasSubstr("dimension 0 is 16"));
}

TEST(GgufHostile, Offsets) {
  EXPECT_EQ(TensorError(0, {1}, 1),
            "test.gguf: tensor t: offset 1 is not a multiple of the alignment 32");
  EXPECT_EQ(TensorError(0, {2}),
            "test.gguf: tensor t: 8 bytes at offset 0 of the data (which starts at 64) end after "
            "the file (68 bytes): it is truncated or damaged");
  EXPECT_THAT(TensorError(0, {1}, 32), HasSubstr("end after the file"));
  EXPECT_THAT(TensorError(0, {1}, ~uint64_t{31}), HasSubstr("end after the file"));
  EXPECT_THAT(TensorError(39, {1}, 1 << 20), HasSubstr("end after the file"));
}

TEST(GgufHostile, OverlapAndTwins) {
  GgufWriter writer;
  writer.AddTensor("a", 0, {16}, std::string(64, 'a')).AddTensor("b", 0, {1}, "bbbb", 32);
  EXPECT_EQ(ParseError(writer), "test.gguf: tensors a and b overlap");
  writer = {};
  writer.AddTensor("a", 0, {1}, "aaaa").AddTensor("b", 0, {1}, "bbbb", 0);
  EXPECT_THAT(ParseError(writer), HasSubstr(" overlap"));
  writer = {};
  writer.AddTensor("a", 0, {1}, "aaaa").AddTensor("a", 0, {1}, "bbbb");
  EXPECT_EQ(ParseError(writer), "test.gguf: tensor a occurs twice");
  writer = {};
  writer.AddTensor("", 0, {1}, "aaaa");
  EXPECT_EQ(ParseError(writer),
            "test.gguf: name of tensor 0 is 0 bytes long (1 to 65535 are allowed)");
}

TEST(GgufHostile, EveryTruncationIsAnError) {
  const std::string whole = SmallGguf().Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto bytes = ExactBytes(std::string_view(whole).substr(0, size));
    const auto gguf = Gguf::Parse(bytes, "cut.gguf");
    ASSERT_FALSE(gguf.ok()) << size;
    EXPECT_THAT(gguf.error().message, StartsWith("cut.gguf: "));
  }
}

// Every byte once with each bit pattern class would take long; random ones find the same.
TEST(GgufHostile, CorruptBytesNeverCrash) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto good = ExactBytes(SmallGguf().Bytes());
  for (int i = 0; i < 5000; ++i) {
    auto bytes = good;
    for (uint32_t n = random() % 3 + 1; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto gguf = Gguf::Parse(bytes, "corrupt.gguf");
    if (!gguf.ok()) {
      EXPECT_THAT(gguf.error().message, StartsWith("corrupt.gguf: "));
      EXPECT_EQ(gguf.error().message.find('\n'), std::string::npos);
    } else {
      EXPECT_FALSE(DescribeText(*gguf, {}).empty());
    }
  }
}

class GgufFileTest : public testing::Test {
 protected:
  GgufFileTest() { std::filesystem::create_directory(folder_); }
  ~GgufFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const GgufWriter& writer) const {
    ASSERT_TRUE(WriteTextFile(Path(name), writer.Bytes()).ok());
  }

  const std::string folder_ = testing::TempDir() + "gguf" + std::to_string(getpid());
};

GgufWriter SplitPart(uint16_t no, uint16_t count, int32_t num_tensors) {
  GgufWriter writer;
  writer.Add("split.no", MetadataKind::kUint16, no)
      .Add("split.count", MetadataKind::kUint16, count)
      .Add("split.tensors.count", MetadataKind::kInt32, num_tensors);
  if (no == 0) writer.AddString("general.architecture", "llama");
  const std::string suffix = std::to_string(no);
  writer.AddTensor("t" + suffix, 0, {1}, std::string(4, char('a' + no)));
  return writer;
}

TEST_F(GgufFileTest, OpensMovesAndDiscards) {
  Write("one.gguf", SmallGguf());
  auto opened = Gguf::Open(Path("one.gguf"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Gguf gguf = std::move(*opened);
  const TensorInfo& tensor = gguf.tensors()[0];
  EXPECT_THAT(tensor.data, testing::Each(std::byte{1}));
  gguf.Discard(tensor);
  EXPECT_THAT(tensor.data, testing::Each(std::byte{1}));
  EXPECT_EQ(*gguf.GetString("general.architecture"), "llama");
}

TEST_F(GgufFileTest, AnyPartOpensAll) {
  for (uint16_t no = 0; no < 3; ++no) {
    Write(fmt::format("m-{:05}-of-00003.gguf", no + 1), SplitPart(no, 3, 3));
  }
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto gguf = Gguf::Open(Path(name));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    EXPECT_EQ(gguf->num_parts(), 3u);
    EXPECT_EQ(gguf->path(), Path(name));
    EXPECT_EQ(gguf->file_bytes(),
              2 * SplitPart(1, 3, 3).Bytes().size() + SplitPart(0, 3, 3).Bytes().size());
    EXPECT_EQ(*gguf->GetString("general.architecture"), "llama");
    ASSERT_EQ(gguf->tensors().size(), 3u);
    const TensorInfo& last = *gguf->FindTensor("t2");
    EXPECT_EQ(last.part, 2u);
    EXPECT_THAT(last.data, testing::Each(std::byte{'c'}));
    gguf->Discard(last);
    EXPECT_THAT(last.data, testing::Each(std::byte{'c'}));
  }
}

TEST_F(GgufFileTest, SplitsThatDoNotFitTogether) {
  const auto error = [&] { return Gguf::Open(Path("m-00001-of-00002.gguf")).error().message; };
  Write("m-00001-of-00002.gguf", SplitPart(0, 2, 2));
  EXPECT_EQ(error(), Path("m-00002-of-00002.gguf") +
                         ": cannot open: No such file or directory (part 2 of 2: keep all parts in "
                         "one folder)");
  Write("m-00002-of-00002.gguf", SplitPart(0, 2, 2));
  EXPECT_THAT(error(), HasSubstr("says it is part 1 of 2 with 2 tensors in all, expected part 2"));
  Write("m-00002-of-00002.gguf", SplitPart(1, 2, 5));
  EXPECT_THAT(error(), HasSubstr("says it is part 2 of 2 with 5 tensors in all, expected"));
  Write("m-00002-of-00002.gguf", SmallGguf());
  EXPECT_THAT(error(), HasSubstr("says it is part 1 of 1 with 4 tensors"));
  Write("m-00002-of-00002.gguf", SplitPart(1, 2, 2).AddTensor("t0", 0, {1}, "twin"));
  EXPECT_EQ(error(), Path("m-00002-of-00002.gguf") + ": tensor t0 is also in an earlier part");
  Write("m-00002-of-00002.gguf", SplitPart(1, 2, 2).AddTensor("more", 0, {1}, "more"));
  EXPECT_EQ(error(), Path("m-00001-of-00002.gguf") +
                         ": metadata split.tensors.count is 2, but the parts hold 3 tensors");
}

TEST_F(GgufFileTest, SplitMetadataIsChecked) {
  Write("renamed.gguf", SplitPart(1, 2, 2));
  EXPECT_EQ(Gguf::Open(Path("renamed.gguf")).error().message,
            Path("renamed.gguf") +
                ": is part 2 of a model split into 2: its name must end in -00002-of-00002.gguf so "
                "that the other parts are found");
  Write("past.gguf", SplitPart(2, 2, 2));
  EXPECT_THAT(Gguf::Open(Path("past.gguf")).error().message,
              HasSubstr("metadata split.no is 2, but split.count is 2"));
  GgufWriter writer;
  Write("lacks.gguf", writer.AddUint32("split.count", 2));
  EXPECT_THAT(Gguf::Open(Path("lacks.gguf")).error().message,
              HasSubstr("metadata split.no is missing from a split model"));
  writer = {};
  Write("kind.gguf", writer.AddString("split.count", "2"));
  EXPECT_THAT(Gguf::Open(Path("kind.gguf")).error().message,
              HasSubstr("metadata split.count: expected an unsigned integer, found string"));
  writer = {};
  Write("single.gguf", writer.Add<uint16_t>("split.count", MetadataKind::kUint16, 1));
  EXPECT_TRUE(Gguf::Open(Path("single.gguf")).ok());
  EXPECT_EQ(Gguf::Open(Path("none.gguf")).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(ParseError(SplitPart(0, 2, 2)), HasSubstr("is part 1 of a model split into 2"));
}

}  // namespace
}  // namespace kvern::model
