// SPDX-License-Identifier: GPL-3.0-or-later
// The table of block sizes, held against files that other programs wrote: their writers leave no
// gap between tensors but the alignment, so a wrong size cannot go unnoticed.
#include "gpu/weight_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/gguf/file.h"

namespace granary::gguf {
namespace {

TEST(WeightType, TableIsSound) {
    std::set<std::string_view> names;
    int count = 0;
    for (uint32_t number = 0; number < 1000; ++number) {
        const gpu::WeightTypeInfo* const info = gpu::weight_type_info(number);
        if (info == nullptr) continue;
        ++count;
        EXPECT_EQ(static_cast<uint32_t>(info->type), number);
        EXPECT_TRUE(names.insert(info->name).second) << info->name;
        EXPECT_GE(info->block_bytes * 8, info->block_elements) << "at least a bit a weight";
    }
    EXPECT_EQ(count, 26);
    for (const uint32_t number : {4u, 5u, 9u, 15u, 31u, 33u, 36u, 38u, 41u, 0xffffffffu}) {
        EXPECT_EQ(gpu::weight_type_info(number), nullptr) << number;
    }
    EXPECT_EQ(gpu::row_bytes(gpu::WeightType::q4_k, 2048), 1152u);
    EXPECT_EQ(gpu::row_bytes(gpu::WeightType::mxfp4, 2880), 1530u);
    EXPECT_FALSE(gpu::weight_type_info(gpu::WeightType::nvfp4).decodes);
    EXPECT_FALSE(gpu::weight_type_info(gpu::WeightType::tq1_0).decodes);
}

void expect_no_gaps(const std::string& path, std::set<gpu::WeightType>& types) {
    const auto opened = File::open(path);
    ASSERT_TRUE(opened) << opened.error().message();
    std::vector<Tensor> tensors((*opened)->tensors().begin(), (*opened)->tensors().end());
    ASSERT_FALSE(tensors.empty());
    std::sort(tensors.begin(), tensors.end(),
              [](const Tensor& left, const Tensor& right) { return left.offset < right.offset; });
    const auto padded = [](uint64_t end) { return (end + 31) / 32 * 32; };
    for (size_t i = 0; i < tensors.size(); ++i) {
        types.insert(tensors[i].type);
        const uint64_t next =
            i + 1 < tensors.size() ? tensors[i + 1].offset : (*opened)->total_bytes();
        EXPECT_EQ(padded(tensors[i].offset + tensors[i].bytes), padded(next))
            << path << ": " << tensors[i].name;
    }
}

TEST(WeightType, SizesAreThoseOfFiles) {
    std::set<gpu::WeightType> types;
    expect_no_gaps(GRANARY_TEST_DATA "/quant/Q4_K_M.gguf", types);
    expect_no_gaps(GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf", types);
    expect_no_gaps(GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf", types);
    for (const auto type : {gpu::WeightType::f32, gpu::WeightType::q4_k, gpu::WeightType::q6_k}) {
        EXPECT_TRUE(types.contains(type)) << gpu::weight_type_info(type).name;
    }
}

TEST(WeightType, SizesAreThoseOfAllQuantisedFiles) {
    const std::filesystem::path folder = GRANARY_SHARED "/fixtures/quant";
    if (!std::filesystem::is_directory(folder)) {
        GTEST_SKIP() << "skipped: the quantised models of shared/fixtures/quant are not here";
    }
    std::set<gpu::WeightType> types;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".gguf") expect_no_gaps(entry.path().string(), types);
    }
    EXPECT_GE(types.size(), 19u);
}

}  // namespace
}  // namespace granary::gguf
