// SPDX-License-Identifier: GPL-3.0-or-later
// Unsound files, systematically: cut at every byte, every field at every extreme, bytes changed
// at random. Each must give a clean error or a file that is safe to use, and never a crash, a
// hang or a large allocation. Meant to run under the address and undefined sanitizers too.
#include "tests/gguf/hostile.h"

#include <gtest/gtest.h>

#include <random>

namespace granary::gguf {
namespace {

using namespace granary::test;

// Opens or fails, both cleanly; true if it opened.
bool survives(Scratch& scratch, const std::string& bytes) {
    const auto opened = scratch.open(bytes);
    if (opened) {
        use_everything(**opened);
        return true;
    }
    expect_clean_error(opened.error(), scratch.path(), bytes.size());
    return false;
}

TEST(Hostile, TheFileItselfIsSound) {
    Scratch scratch;
    const std::string file = small_sound_file().bytes();
    EXPECT_TRUE(survives(scratch, file));
    // 3 in the header, 26 in the metadata, 17 in the tensor table, then 196 bytes of data.
    EXPECT_EQ(FieldList(file).fields().size(), 46u);
    EXPECT_EQ((FieldList(file).end() + 31) / 32 * 32 + 32 + 160 + 4, file.size());
}

TEST(Hostile, CutAtEveryByte) {
    Scratch scratch;
    const std::string file = small_sound_file().bytes();
    for (size_t size = 0; size < file.size(); ++size) {
        ASSERT_FALSE(survives(scratch, file.substr(0, size))) << "cut at " << size;
        ASSERT_FALSE(HasFailure()) << "cut at " << size;
    }
}

TEST(Hostile, LongerThanItSays) {
    Scratch scratch;
    EXPECT_TRUE(survives(scratch, small_sound_file().bytes() + std::string(1000, '\xff')));
}

TEST(Hostile, EveryFieldSaturated) {
    Scratch scratch;
    const std::string sound = small_sound_file().bytes();
    const FieldList list(sound);
    for (const Field& field : list.fields()) {
        std::string file = sound;
        file.replace(field.offset, field.size, field.size, '\xff');
        const auto opened = scratch.open(file);
        ASSERT_FALSE(opened) << "field at " << field.offset;
        expect_clean_error(opened.error(), scratch.path(), file.size());
        // A length is found wrong where its text begins, anything else at itself.
        const size_t end = field.offset + field.size;
        const size_t named = field.kind == Field::Kind::length ? end : field.offset;
        EXPECT_NE(opened.error().detail.find(", offset " + std::to_string(named) + ":"),
                  std::string::npos)
            << "field at " << field.offset << ": " << opened.error().detail;
    }
}

TEST(Hostile, EveryFieldAtEveryExtreme) {
    Scratch scratch;
    const std::string sound = small_sound_file().bytes();
    const uint64_t size = sound.size();
    const uint64_t extremes[] = {0,
                                 1,
                                 2,
                                 3,
                                 4,
                                 5,
                                 8,
                                 16,
                                 32,
                                 255,
                                 256,
                                 65535,
                                 65536,
                                 size - 1,
                                 size,
                                 size + 1,
                                 size / 8,
                                 size * 2,
                                 0x7fffffff,
                                 0x80000000,
                                 0xfffffffe,
                                 0xffffffff,
                                 0x100000000,
                                 0x1fffffffffffffff,
                                 0x2000000000000000,
                                 0x3fffffffffffffff,
                                 0x4000000000000000,
                                 0x7fffffffffffffff,
                                 0x8000000000000000,
                                 0x8000000000000001,
                                 0xffffffffffffff00,
                                 0xffffffffffffffe0,
                                 0xfffffffffffffff8,
                                 0xfffffffffffffffe,
                                 0xffffffffffffffff};
    int opened = 0;
    const FieldList list(sound);
    for (const Field& field : list.fields()) {
        uint64_t original = 0;
        std::memcpy(&original, sound.data() + field.offset, field.size);
        std::vector<uint64_t> values(std::begin(extremes), std::end(extremes));
        values.insert(values.end(), {original - 1, original + 1, original * 2, ~original,
                                     original + 32, original - 32});
        for (const uint64_t value : values) {
            std::string file = sound;
            std::memcpy(file.data() + field.offset, &value, field.size);
            opened += survives(scratch, file) ? 1 : 0;
            ASSERT_FALSE(HasFailure()) << "field at " << field.offset << " = " << value;
        }
    }
    EXPECT_GT(opened, 0) << "2 is as good a version as 3";
}

TEST(Hostile, EveryByteInverted) {
    Scratch scratch;
    const std::string sound = small_sound_file().bytes();
    const size_t end = FieldList(sound).end();
    for (size_t at = 0; at < end; ++at) {
        for (const int mask : {0x01, 0x80, 0xff}) {
            std::string file = sound;
            file[at] = static_cast<char>(file[at] ^ mask);
            survives(scratch, file);
            ASSERT_FALSE(HasFailure()) << "byte " << at << " xor " << mask;
        }
    }
}

TEST(Hostile, TwentyThousandRandomMutations) {
    Scratch scratch;
    const std::string sound = small_sound_file().bytes();
    const size_t end = FieldList(sound).end();
    std::mt19937_64 random(20240607);
    const auto below = [&](uint64_t bound) { return static_cast<size_t>(random() % bound); };
    int opened = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string file = sound;
        const size_t changes = 1 + below(4);
        for (size_t i = 0; i < changes; ++i) {
            const size_t at = below(end);
            switch (below(5)) {
                case 0:
                    file[at] = static_cast<char>(random());
                    break;
                case 1:
                    file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
                    break;
                case 2: {  // any number anywhere
                    const uint64_t value = random() >> below(64);
                    const size_t bytes = std::min<size_t>(size_t{1} << below(4), file.size() - at);
                    std::memcpy(file.data() + at, &value, bytes);
                    break;
                }
                case 3: {  // a piece of the file over another
                    const size_t from = below(end);
                    const size_t bytes = std::min(below(40), file.size() - std::max(at, from));
                    file.replace(at, bytes, file.substr(from, bytes));
                    break;
                }
                default:  // bytes lost or doubled: everything behind moves
                    if (below(2) == 0) {
                        file.erase(at, 1 + below(16));
                    } else {
                        file.insert(at, file.substr(at, 1 + below(16)));
                    }
                    break;
            }
        }
        opened += survives(scratch, file) ? 1 : 0;
        ASSERT_FALSE(HasFailure()) << "round " << round;
    }
    // Some change nothing that matters, such as a letter of a name; most must be noticed.
    EXPECT_GT(opened, 500);
    EXPECT_LT(opened, 10000);
}

}  // namespace
}  // namespace granary::gguf
