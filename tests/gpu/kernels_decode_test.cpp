// SPDX-License-Identifier: GPL-3.0-or-later
// Decoding, bit for bit. The hashes are of what ggml's reference decoders (llama.cpp v0.5.0,
// ggml_get_type_traits(type)->to_float) give for 64 blocks of random bits (4,096 of the types
// without blocks); the four values, at the places 0, n/3, 2n/3 and n - 1 of n, are for a person.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "gpu/host/decode.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

struct Record {
    WeightType type;
    uint64_t hash;  // FNV-1a over the bytes of the f32 values
    float values[4];
};

const Record kRecords[] = {
    {WeightType::f16,
     0xbf8f23c411789601ull,
     {0x1.36cp-8f, -0x1.698p-8f, 0x1.684p-9f, 0x1.d58p-10f}},
    {WeightType::bf16, 0xf7a2bbd720dcf778ull, {0x1.e4p-2f, -0x1.1ap-1f, 0x1.18p-2f, 0x1.6ep-3f}},
    {WeightType::q4_0,
     0x956eb8caafe56b24ull,
     {-0x1.fe4p-5f, -0x1.b0cp-8f, -0x1.b1cp-12f, -0x1.9cp-9f}},
    {WeightType::q4_1,
     0x590d954098cdb47aull,
     {0x1.c7ap-9f, 0x1.788p-7f, 0x1.8fa8p-5f, 0x1.6ccp-6f}},
    {WeightType::q5_0,
     0x620eb4959649f5d9ull,
     {-0x1.854p-7f, 0x1.d83p-6f, -0x1.dccp-8f, -0x1.5c8p-6f}},
    {WeightType::q5_1,
     0xb0c89ce03be6adfbull,
     {0x1.3a1ap-3f, 0x1.7a68p-5f, 0x1.fdfp-8f, -0x1.8294p-3f}},
    {WeightType::q8_0,
     0x23c7471b72d49d44ull,
     {0x1.5c7p-2f, 0x1.88c88p-1f, -0x1.07e8p-4f, 0x1.4d75p-2f}},
    {WeightType::q2_k,
     0xd98a48272c77da7aull,
     {-0x1.e45p-7f, -0x1.418p-8f, 0x1.c35p-7f, -0x1.d8fp-5f}},
    {WeightType::q3_k, 0x2bc5f14eed1b70fdull, {0x0p+0f, 0x1.f674p-2f, -0x1.1bfp-1f, 0x1.899cp-2f}},
    {WeightType::q4_k,
     0x9d63df2c07c4be9eull,
     {-0x1.26fp-4f, -0x1.13e34p+1f, -0x1.0a29cp-2f, -0x1.4042ap-4f}},
    {WeightType::q5_k,
     0xc41213b7becac2ebull,
     {0x1.6be2ap+0f, 0x1.721ddp+3f, 0x1.bbb56p-1f, 0x1.be8p-5f}},
    {WeightType::q6_k,
     0xacebd246e796f067ull,
     {0x1.722p-10f, -0x1.d4b28p+0f, -0x1.507fcp-2f, 0x1.28752p+3f}},
    {WeightType::iq4_nl,
     0xcac814c3e005698full,
     {-0x1.fa438p-1f, -0x1.ad5e8p-4f, -0x1.0f18p-8f, -0x1.4ecp-5f}},
    {WeightType::iq4_xs,
     0xae1eb8db25023783ull,
     {0x1.d64c4p+2f, 0x1.c3248p+0f, 0x1.5f4e6p+0f, 0x1.f905p-5f}},
    {WeightType::mxfp4, 0xa37ae90e05316f37ull, {-0x1.8p-7f, 0x1p-9f, 0x1.8p-10f, 0x1p-12f}},
    {WeightType::tq2_0, 0xfd790dd65a34bc77ull, {-0x0p+0f, 0x1.198p-9f, -0x0p+0f, -0x1.a7cp-8f}},
    {WeightType::iq2_xxs,
     0xac2309f7b30c17aaull,
     {0x1.576ecp-3f, -0x1.4e48p-5f, 0x1.7d55ep-1f, -0x1.9a82p-3f}},
    {WeightType::iq2_xs,
     0x648172c9a8e19b0aull,
     {0x1.68p-7f, -0x1.621ap-3f, 0x1.e92p-5f, 0x1.3932p-3f}},
    {WeightType::iq2_s,
     0xbe8218fac1a0f653ull,
     {0x1.65858p-4f, -0x1.30b8p-5f, 0x1.4a0fp-2f, 0x1.60f8p-6f}},
    {WeightType::iq3_xxs,
     0xca7f050351ed3488ull,
     {0x1.162p-6f, -0x1.9cdap-2f, -0x1.3f728p-1f, 0x1.c11cp-5f}},
    {WeightType::iq3_s,
     0x4c04c6f5b9b63f32ull,
     {-0x1.cefcp-2f, 0x1.64aep-1f, 0x1.6489p+0f, 0x1.71024p+1f}},
    {WeightType::iq1_s,
     0xe2566e82ed1b90dfull,
     {-0x1.95p-5f, -0x1.58f4p-5f, -0x1.617p-12f, -0x1.e55p-9f}},
    {WeightType::iq1_m,
     0x1acba188a30e4b8full,
     {0x1.1d32p-5f, 0x1.2c8p-13f, 0x1.5c9bp-4f, 0x1.b698p-8f}},
};

uint64_t hash_of(const std::vector<float>& values) {
    uint64_t hash = 14695981039346656037ull;
    for (const float value : values) {
        const auto bits = std::bit_cast<uint32_t>(value);
        for (int byte = 0; byte < 4; ++byte) {
            hash ^= bits >> (8 * byte) & 255;
            hash *= 1099511628211ull;
        }
    }
    return hash;
}

class Decode : public testing::TestWithParam<Record> {};

TEST_P(Decode, EqualsTheReference) {
    const Record& record = GetParam();
    const WeightTypeInfo& info = weight_type_info(record.type);
    EXPECT_TRUE(info.decodes);
    Random random(11);
    const size_t blocks = info.block_elements == 1 ? 4096 : 64;
    const std::vector<std::byte> data = random_blocks(record.type, blocks, 0.01f, random);
    std::vector<float> values(blocks * info.block_elements);
    decode_row(record.type, data.data(), values.data(), values.size());
    const size_t n = values.size();
    EXPECT_EQ(values[0], record.values[0]);
    EXPECT_EQ(values[n / 3], record.values[1]);
    EXPECT_EQ(values[2 * n / 3], record.values[2]);
    EXPECT_EQ(values[n - 1], record.values[3]);
    EXPECT_EQ(hash_of(values), record.hash);
}

// Any bytes decode without a fault, and codes keep the bound that the 8-bit products rely on.
TEST_P(Decode, AnyBytes) {
    const Record& record = GetParam();
    const WeightTypeInfo& info = weight_type_info(record.type);
    const host::BlockFormat* format = host::block_format(record.type);
    Random random(12);
    std::vector<std::byte> data(info.block_bytes * size_t{1000});
    for (std::byte& byte : data) byte = static_cast<std::byte>(random.engine());
    std::vector<float> values(info.block_elements * size_t{1000});
    decode_row(record.type, data.data(), values.data(), values.size());
    if (!format) return;
    host::Group group;
    for (size_t g = 0; g < values.size() / host::kGroup; ++g) {
        format->unpack(data.data(), g, &group);
        for (const uint8_t code : group.code) ASSERT_LE(code, format->largest_code);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Decode, testing::ValuesIn(kRecords), [](const auto& info) {
    return std::string(weight_type_info(info.param.type).name);
});

TEST(DecodeTypes, EveryRunnableTypeIsTested) {
    for (uint32_t number = 1; number < 64; ++number) {
        const WeightTypeInfo* info = weight_type_info(number);
        if (!info || !info->decodes) continue;
        EXPECT_TRUE(std::any_of(std::begin(kRecords), std::end(kRecords), [&](const Record& r) {
            return r.type == info->type;
        })) << info->name;
    }
}

}  // namespace
}  // namespace granary::gpu::test
