// SPDX-License-Identifier: GPL-3.0-or-later
// Split models: sound ones, and every way in which their parts can disagree.
#include "engine/gguf/split.h"

#include <gtest/gtest.h>

#include "engine/gguf/file.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::gguf {
namespace {

using test::GgufBuilder;
using test::TempDir;

TEST(SplitName, IsParsedFromTheEnd) {
    const auto name = parse_split_name("/a-00001-of-00002.gguf/m-00002-of-00013.gguf");
    ASSERT_TRUE(name);
    EXPECT_EQ(name->prefix, "/a-00001-of-00002.gguf/m");
    EXPECT_EQ(name->number, 2u);
    EXPECT_EQ(name->count, 13u);
    EXPECT_EQ(name->path(13), "/a-00001-of-00002.gguf/m-00013-of-00013.gguf");
    for (const char* const other : {"", "m.gguf", "m-1-of-2.gguf", "m-00001-of-0000x.gguf",
                                    "m-00001-of-00002.ggux", "m-00001_of-00002.gguf"}) {
        EXPECT_FALSE(parse_split_name(other)) << other;
    }
}

class Split : public testing::Test {
  protected:
    GgufBuilder part(uint16_t number, uint16_t count = 3, int32_t tensors = 4) {
        GgufBuilder builder;
        if (number == 0) builder.put("general.architecture", "test");
        builder.put("split.no", number)
            .put("split.count", count)
            .put("split.tensors.count", tensors);
        return builder;
    }
    void save_all() {
        part(0).tensor("a", {1}, {1.0f}).save(path(1));
        part(1).tensor("b", {1}, {2.0f}).tensor("c", {1}, {3.0f}).save(path(2));
        part(2).tensor("d", {1}, {4.0f}).save(path(3));
    }
    std::string path(uint32_t number) const {
        return dir.file("m-0000" + std::to_string(number) + "-of-00003.gguf");
    }
    // Opening fails and says all of these.
    void refused(const std::string& file, std::initializer_list<const char*> words,
                 ErrorKind kind = ErrorKind::invalid_file) {
        const auto opened = File::open(file);
        ASSERT_FALSE(opened);
        EXPECT_EQ(opened.error().kind, kind) << opened.error().message();
        for (const char* const word : words) {
            EXPECT_NE(opened.error().message().find(word), std::string::npos)
                << opened.error().message();
        }
    }
    const TempDir dir;
};

TEST_F(Split, OpensFromAnyPart) {
    save_all();
    for (uint32_t number = 1; number <= 3; ++number) {
        const auto opened = File::open(path(number));
        ASSERT_TRUE(opened) << opened.error().message();
        const File& file = **opened;
        EXPECT_EQ(file.path(), path(number));
        EXPECT_EQ(file.get_string("general.architecture").value(), "test");
        ASSERT_EQ(file.tensors().size(), 4u);
        const char* const names[] = {"a", "b", "c", "d"};
        for (size_t i = 0; i < 4; ++i) {
            EXPECT_EQ(file.tensors()[i].name, names[i]);
            float value = 0;
            std::memcpy(&value, file.tensor(names[i])->data, sizeof value);
            EXPECT_EQ(value, static_cast<float>(i + 1));
        }
        EXPECT_EQ(file.tensor("c")->part, 1u);
        uint64_t bytes = 0;
        for (uint32_t i = 1; i <= 3; ++i) bytes += std::filesystem::file_size(path(i));
        EXPECT_EQ(file.total_bytes(), bytes);
    }
}

TEST_F(Split, NamesTheMissingPart) {
    save_all();
    std::filesystem::remove(path(2));
    refused(path(1), {"part 2 of 3", "m-00002-of-00003.gguf"}, ErrorKind::io);
}

TEST_F(Split, RefusesARenamedPart) {
    save_all();
    std::filesystem::copy_file(path(1), dir.file("other.gguf"));
    refused(dir.file("other.gguf"), {"renamed", "split.count is 3"});
    std::filesystem::copy_file(path(1), dir.file("m-00001-of-00004.gguf"));
    refused(dir.file("m-00001-of-00004.gguf"), {"renamed", "split.count is 3"});
    std::filesystem::copy_file(path(1), dir.file("m-00004-of-00003.gguf"));
    refused(dir.file("m-00004-of-00003.gguf"), {"renamed"});
}

TEST_F(Split, RefusesPartsInTheWrongPlace) {
    save_all();
    std::filesystem::rename(path(2), dir.file("spare"));
    std::filesystem::copy_file(path(3), path(2));
    refused(path(1), {"m-00002-of-00003.gguf", "split.no 2 of split.count 3, expected 1 of 3"});
}

TEST_F(Split, RefusesAPartOfAnotherSplit) {
    save_all();
    part(1, 2).tensor("b", {1}, {2.0f}).save(path(2));
    refused(path(1), {"m-00002-of-00003.gguf", "of split.count 2"});
    GgufBuilder().tensor("b", {1}, {2.0f}).save(path(2));
    refused(path(1), {"m-00002-of-00003.gguf", "no part"});
}

TEST_F(Split, RefusesDisagreeingTensorCounts) {
    save_all();
    part(1, 3, 5).tensor("b", {1}, {2.0f}).save(path(2));
    refused(path(1), {"disagree", "split.tensors.count 5, the first part says 4"});
    part(1).tensor("b", {1}, {2.0f}).save(path(2));
    refused(path(1), {"split.tensors.count 4, found 3"});
}

TEST_F(Split, RefusesATensorInTwoParts) {
    save_all();
    part(2).tensor("b", {1}, {4.0f}).save(path(3));
    refused(path(1), {"occurs twice", "m-00003-of-00003.gguf", "\"b\"", "offset "});
}

TEST_F(Split, RefusesDamagedNumbers) {
    save_all();
    GgufBuilder().put("split.no", uint16_t{1}).put("split.count", "3").save(path(2));
    refused(path(2), {"split.count is no unsigned integer"});
    refused(path(1), {"m-00002-of-00003.gguf", "split.count is no unsigned integer"});
    part(0, 3, -4).tensor("a", {1}, {1.0f}).save(path(1));
    refused(path(1), {"split.tensors.count is no unsigned integer"});
}

TEST_F(Split, NamesTheDamagedPart) {
    save_all();
    std::filesystem::resize_file(path(3), std::filesystem::file_size(path(3)) - 4);
    refused(path(1), {"m-00003-of-00003.gguf", "outside the file", "\"d\""});
}

}  // namespace
}  // namespace granary::gguf
