// SPDX-License-Identifier: GPL-3.0-or-later
// What is refused, and in which words.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/gguf/hostile.h"

namespace granary::gguf {
namespace {

using namespace granary::test;

class Refusal : public testing::Test {
  protected:
    void refused(const std::string& bytes, ErrorKind kind, const std::vector<std::string>& words) {
        const auto opened = scratch.open(bytes);
        ASSERT_FALSE(opened) << "expected: " << words[0];
        expect_clean_error(opened.error(), scratch.path(), bytes.size());
        EXPECT_EQ(opened.error().kind, kind) << opened.error().message();
        for (const std::string& word : words) {
            EXPECT_NE(opened.error().message().find(word), std::string::npos)
                << "\"" << word << "\" is not in: " << opened.error().message();
        }
    }
    void invalid(const std::string& bytes, const std::vector<std::string>& words) {
        refused(bytes, ErrorKind::invalid_file, words);
    }
    void unsupported(const std::string& bytes, const std::vector<std::string>& words) {
        refused(bytes, ErrorKind::unsupported, words);
    }
    static std::string header(uint64_t tensors, uint64_t entries) {
        return "GGUF" + raw(3u) + raw(tensors) + raw(entries);
    }
    Scratch scratch;
};

TEST_F(Refusal, NotGguf) {
    invalid("PK\3\4 something else", {"not a GGUF file", "magic, offset 0", "PK\\u{3}\\u{4}"});
    invalid("tjgg\1\0\0\0", {"not a GGUF file", "\"tjgg\""});
    invalid("GGU", {"cut short", "magic, offset 0", "needs 4 bytes, the file ends at 3"});
    invalid("", {"empty", "magic, offset 0"});
}

TEST_F(Refusal, Versions) {
    GgufBuilder builder = small_sound_file();
    for (const uint32_t version : {0u, 1u, 4u, 0x00020003u, 0xffffffffu}) {
        builder.version = version;
        unsupported(builder.bytes(), {"version is not supported", "version, offset 4",
                                      std::to_string(version) + ", supported are 2 and 3"});
    }
}

// Each is looked at.
TEST_F(Refusal, TooManyTruthValues) {
    const uint64_t most = 1u << 24;
    GgufBuilder builder = small_sound_file();
    const std::string count = raw(7u) + raw(most + 1);
    builder.put_raw("l.bool", 9, count + std::string(most + 1, '\1'));
    unsupported(builder.bytes(), {"too many truth values", "l.bool", "16777217, at most 16777216"});
}

TEST_F(Refusal, BigEndian) {
    for (const uint32_t version : {0x02000000u, 0x03000000u}) {
        GgufBuilder builder = small_sound_file();
        builder.version = version;
        unsupported(builder.bytes(), {"big-endian", "version, offset 4"});
    }
}

TEST_F(Refusal, CountsThatCannotBe) {
    invalid(header(uint64_t{1} << 60, 0),
            {"number of tensors, ", "offset 8",
             "1152921504606846976 do not fit into a file of 24 bytes"});
    invalid(header(0, UINT64_MAX), {"number of metadata entries, ", "offset 16"});
    invalid(header(1, 0), {"number of tensors, "});
    invalid(header(0, 1), {"number of metadata entries, "});
}

TEST_F(Refusal, CutShort) {
    const std::string file = small_sound_file().bytes();
    invalid(file.substr(0, 137), {"cut short", "length of the key of metadata entry 4, offset 132",
                                  "needs 8 bytes, the file ends at 137"});
    invalid(file.substr(0, file.size() - 1), {"outside the file", "tensor 2 \"three\""});
    // One byte less of the middle tensor also cuts the last one; the first found is named.
    invalid(file.substr(0, file.size() - 40), {"outside the file", "tensor 1 \"two\""});
}

TEST_F(Refusal, Keys) {
    invalid(small_sound_file().put("", 1u).bytes(), {"1 to 65535 bytes", "metadata entry 8"});
    invalid(small_sound_file().put(std::string(65536, 'k'), 1u).bytes(), {"1 to 65535 bytes"});
    invalid(small_sound_file().put("f", 2.0f).bytes(), {"key occurs twice", "\"f\""});
    invalid(small_sound_file().put_raw("a\x1b[31m", 13, "").bytes(), {"\"a\\u{1b}[31m\""});
}

TEST_F(Refusal, Values) {
    invalid(small_sound_file().put_raw("x", 13, std::string(64, '\0')).bytes(),
            {"no known type", "value type of metadata entry 8 \"x\"", "13"});
    invalid(small_sound_file().put_raw("x", 7, "\2").bytes(), {"0 or 1", "\"x\""});
    invalid(small_sound_file()
                .put_raw("x", 9, raw(7u) + raw(uint64_t{3}) + std::string("\0\1\2", 3))
                .bytes(),
            {"0 or 1", "element of metadata entry 8 \"x\""});
    invalid(small_sound_file().put_raw("x", 8, raw(uint64_t{1} << 63)).bytes(),
            {"cut short", "value of metadata entry 8 \"x\""});
}

TEST_F(Refusal, Arrays) {
    const auto with_array = [](uint32_t type, uint64_t count) {
        return small_sound_file().put_raw("x", 9, raw(type) + raw(count)).bytes();
    };
    unsupported(with_array(9, 1), {"arrays of arrays", "element type of metadata entry 8 \"x\""});
    invalid(with_array(13, 1), {"no known element type", "13"});
    for (const uint64_t count :
         {uint64_t{1} << 30, uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX}) {
        for (uint32_t type = 0; type <= 12; ++type) {
            if (type == 9) continue;
            invalid(with_array(type, count),
                    {"too short for an array", "number of elements", std::to_string(count)});
        }
    }
}

TEST_F(Refusal, Alignment) {
    const auto with = [](auto value) {
        GgufBuilder builder;
        builder.put("general.alignment", value).tensor("t", {1}, {1});
        return builder.bytes();
    };
    for (const uint32_t bytes : {0u, 1u, 3u, 4u, 48u, 0x80000000u, UINT32_MAX}) {
        invalid(with(bytes), {"power of two from 8 to 2^30", std::to_string(bytes)});
    }
    invalid(with(uint64_t{1} << 63), {"power of two from 8 to 2^30", "9223372036854775808"});
    invalid(with(int32_t{32}), {"alignment must be an unsigned integer"});
    invalid(with("32"), {"alignment must be an unsigned integer"});
    invalid(with(uint32_t{1} << 30), {"outside the file", "the data section has 0"});
}

TEST_F(Refusal, TensorShapes) {
    const auto with = [](const std::vector<uint64_t>& shape, uint32_t type = 0) {
        return small_sound_file().tensor_raw("x", type, shape, 0).bytes();
    };
    invalid(with({1, 1, 1, 1, 1}), {"at most 4 dimensions", "tensor 3 \"x\"", "5"});
    invalid(with({0}), {"empty", "dimension of tensor 3 \"x\""});
    invalid(with({32, 0, 4}), {"empty", "dimension of tensor 3 \"x\""});
    invalid(with({uint64_t{1} << 32, uint64_t{1} << 32}), {"larger than any file", "4294967296"});
    invalid(with({uint64_t{1} << 63}), {"larger than any file"});
    invalid(with({3, UINT64_MAX / 3 + 1}), {"larger than any file"});                 // wraps to 3
    invalid(with({uint64_t{1} << 31, uint64_t{1} << 31}), {"larger than any file"});  // x 4 bytes
    invalid(with({33}, 8), {"no whole number of blocks", "rows of 33, blocks of 32 (Q8_0)"});
    invalid(with({128, 2}, 12), {"no whole number of blocks", "blocks of 256 (Q4_K)"});
    invalid(with({}, 8), {"no whole number of blocks", "rows of 1"});
}

TEST_F(Refusal, TensorNames) {
    invalid(small_sound_file().tensor_raw("", 0, {1}, 0).bytes(), {"1 to 255 bytes"});
    invalid(small_sound_file().tensor_raw(std::string(256, 'n'), 0, {1}, 0).bytes(),
            {"1 to 255 bytes", "256"});
    invalid(small_sound_file().tensor("one", {1}, {1}).bytes(), {"name occurs twice", "\"one\""});
}

TEST_F(Refusal, TensorPlaces) {
    const auto with = [](uint64_t offset) {
        GgufBuilder builder;
        builder.tensor_raw("x", 0, {8}, offset).tensor("t", {64}, std::vector<float>(64));
        return builder.bytes();
    };
    invalid(with(4), {"not aligned", "data offset of tensor 0 \"x\"", "4, alignment 32"});
    invalid(with(256), {"outside the file", "256 + 32 bytes, the data section has 256"});
    invalid(with(UINT64_MAX - 31), {"outside the file"});
    invalid(with(uint64_t{1} << 63), {"outside the file"});
    invalid(with(0), {"overlaps", "ends at"});
    invalid(with(224), {"overlaps", "data of tensor 0 \"x\"", "\"t\" ends at"});
}

TEST_F(Refusal, ForeignWeightTypes) {
    const std::pair<uint32_t, const char*> foreign[] = {
        {4, "removed"},        {5, "removed"},          {9, "activations"},
        {15, "activations"},   {24, "integers"},        {27, "integers"},
        {28, "64-bit"},        {31, "removed"},         {33, "removed"},
        {36, "removed"},       {38, "removed"},         {41, "Q1_0"},
        {42, "Q2_0"},          {137, "ik_llama.cpp"},   {202, "ik_llama"},
        {43, "no known type"}, {1000, "no known type"}, {UINT32_MAX, "no known type"}};
    for (const auto& [number, word] : foreign) {
        unsupported(small_sound_file().tensor_raw("blk.0.x", number, {256}, 0).bytes(),
                    {"weight type of tensor 3 \"blk.0.x\"",
                     "number " + std::to_string(number) + " is ", word});
    }
}

TEST_F(Refusal, ASparseFileBuysNothing) {
    // 64 GiB that take no disk: as many empty strings as claimed would be "there".
    const std::string start =
        GgufBuilder().put_raw("x", 9, raw(8u) + raw(uint64_t{1} << 32)).bytes();
    const TempDir dir;
    write_file(dir.file("sparse.gguf"), start);
    if (::truncate(dir.file("sparse.gguf").c_str(), off_t{1} << 36) != 0) {
        GTEST_SKIP() << "the file system takes no sparse file of 64 GiB";
    }
    const auto opened = File::open(dir.file("sparse.gguf"));
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().kind, ErrorKind::unsupported) << opened.error().message();
    EXPECT_NE(opened.error().detail.find("4294967296 so far, at most 16777216"), std::string::npos)
        << opened.error().message();
}

TEST_F(Refusal, WhatIsNoFile) {
    const TempDir dir;
    const auto error = [](const std::string& path) {
        const auto opened = File::open(path);
        EXPECT_FALSE(opened);
        return opened ? Error() : opened.error();
    };
    const Error missing = error(dir.file("missing.gguf"));
    EXPECT_EQ(missing.kind, ErrorKind::io);
    EXPECT_NE(missing.detail.find("missing.gguf"), std::string::npos);
    EXPECT_EQ(error(dir.file("")).kind, ErrorKind::io) << "a folder";
    ASSERT_EQ(::mkfifo(dir.file("pipe").c_str(), 0600), 0);
    EXPECT_EQ(error(dir.file("pipe")).kind, ErrorKind::io) << "and it does not wait for a writer";
    EXPECT_EQ(error("/dev/zero").kind, ErrorKind::io);
    EXPECT_EQ(error("").kind, ErrorKind::io);
}

}  // namespace
}  // namespace granary::gguf
