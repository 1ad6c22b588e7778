// SPDX-License-Identifier: GPL-3.0-or-later
// A file that is cut short while it is mapped: zeros, and a word of it, where the end of the
// process would be.
#include "engine/gguf/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/gguf/gguf_builder.h"

namespace granary::gguf {
namespace {

using test::TempDir;

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

class MappingTest : public ::testing::Test {
  protected:
    std::string file(const char* name, size_t bytes) const {
        const std::string path = folder_.file(name);
        std::ofstream(path, std::ios::binary) << std::string(bytes, 'x');
        return path;
    }
    static Mapping mapped(const std::string& path) {
        auto opened = Mapping::open(path);
        if (!opened) throw std::runtime_error(opened.error().message());
        return std::move(*opened);
    }
    const TempDir folder_;
};

TEST_F(MappingTest, WhatIsCutOffReadsAsZerosAndIsToldForGood) {
    const std::string path = file("a", 5 * kPage + 7), other_path = file("b", 2 * kPage);
    const Mapping mapping = mapped(path), other = mapped(other_path);
    EXPECT_TRUE(mapping.intact());
    std::filesystem::resize_file(path, 2 * kPage + 10);
    EXPECT_TRUE(mapping.intact()) << "nothing of it has been read";
    EXPECT_EQ(mapping.data()[2 * kPage + 9], std::byte{'x'});
    EXPECT_TRUE(mapping.intact());

    EXPECT_EQ(mapping.data()[4 * kPage + 1], std::byte{0});
    EXPECT_EQ(mapping.data()[5 * kPage + 6], std::byte{0});
    EXPECT_EQ(mapping.data()[3 * kPage], std::byte{0});
    EXPECT_EQ(mapping.data()[0], std::byte{'x'}) << "what is in front of it stays";
    for (const Result<void>& told : {mapping.intact(), mapping.still_whole()}) {
        ASSERT_FALSE(told);
        EXPECT_EQ(told.error().kind, ErrorKind::io);
        EXPECT_NE(told.error().message().find("byte " + std::to_string(3 * kPage) + " of " +
                                              std::to_string(5 * kPage + 7)),
                  std::string::npos)
            << told.error().message();
    }
    std::filesystem::resize_file(path, 5 * kPage + 7);
    EXPECT_FALSE(mapping.still_whole()) << "zeros were taken for its bytes";
    EXPECT_TRUE(mapped(path).intact());

    EXPECT_TRUE(other.still_whole());
    EXPECT_EQ(other.data()[2 * kPage - 1], std::byte{'x'});
}

TEST_F(MappingTest, PlacesOfTheWatchedAreUsedAgain) {
    const std::string path = file("a", 3 * kPage);
    for (int i = 0; i < 50; ++i) {
        const Mapping whole = mapped(path);
        Mapping moved = mapped(path);
        const Mapping cut = std::move(moved);
        std::filesystem::resize_file(path, kPage);
        EXPECT_EQ(cut.data()[2 * kPage], std::byte{0});
        EXPECT_FALSE(cut.intact());
        EXPECT_TRUE(whole.intact()) << "it is another mapping of the file";
        file("a", 3 * kPage);
    }
}

TEST_F(MappingTest, ThreadsThatReadWhatIsCutAllGoOn) {
    constexpr size_t kPages = 512;
    const std::string path = file("a", kPages * kPage);
    const Mapping mapping = mapped(path);
    std::atomic<int> rounds{0};
    std::atomic<bool> cut{false};
    std::vector<std::thread> readers;
    for (size_t reader = 0; reader < 4; ++reader) {
        readers.emplace_back([&, reader] {
            for (bool last = false; !last;) {
                last = cut;
                for (size_t i = 0; i < kPages; ++i) {
                    const size_t at = (i * 7 + reader * 131) % kPages * kPage;
                    const auto value = static_cast<const volatile std::byte&>(mapping.data()[at]);
                    if (value != std::byte{0} && value != std::byte{'x'}) std::abort();
                }
                ++rounds;
            }
        });
    }
    while (rounds < 8) std::this_thread::yield();
    std::filesystem::resize_file(path, kPages / 2 * kPage);
    cut = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_FALSE(mapping.intact());
    EXPECT_EQ(mapping.data()[0], std::byte{'x'});
    EXPECT_EQ(mapping.data()[kPages / 2 * kPage], std::byte{0});
}

// Somebody else's mapping ends the process as it would without us.
TEST_F(MappingTest, OtherMappingsAreLeftAlone) {
    const std::string path = file("a", 2 * kPage), theirs = file("b", 2 * kPage);
    const Mapping mapping = mapped(path);
    const auto read_theirs = [&] {
        const int number = ::open(theirs.c_str(), O_RDONLY);
        const void* const data = ::mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, number, 0);
        std::filesystem::resize_file(theirs, 0);
        std::exit(static_cast<const volatile char*>(data)[kPage]);
    };
    EXPECT_EXIT(read_theirs(), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace granary::gguf
