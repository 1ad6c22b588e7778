// SPDX-License-Identifier: GPL-3.0-or-later
// The device itself, as the engine makes it.
#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

TEST(CudaDevice, RefusesWithAReasonWhatItCannotBe) {
    const auto device = make_cuda_device({1000, 0});
    ASSERT_FALSE(device);
    EXPECT_FALSE(device.error().what.empty());
    EXPECT_TRUE(device.error().kind == ErrorKind::unsupported ||
                device.error().kind == ErrorKind::invalid_argument)
        << device.error().message();
}

TEST_F(CudaTest, OrderedRowsComeBack) {
    Random random(1);
    const std::vector<float> values = random.values(3 * 40);
    const std::vector<float> back = from_ordered(to_ordered(values, 3, 40), 3, 40);
    for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(back[i], host::half_to_float(host::float_to_half(values[i])));
}

// The planner asks for one and two and draws a line.
TEST_F(CudaTest, ScratchGrowsByTheSameForEachCutAndRow) {
    const AttentionShape shapes[] = {{.heads = 32, .kv_heads = 4, .head_dim = 128, .rope = nullptr},
                                     {.heads = 2, .kv_heads = 1, .head_dim = 64, .rope = nullptr}};
    for (const AttentionShape& shape : shapes) {
        const auto decode = [&](uint32_t cuts) {
            return kernels().scratch_bytes(shape, cuts * kDecodeCut);
        };
        EXPECT_EQ(decode(1) + 999 * (decode(2) - decode(1)), decode(1000));
        const auto prompt = [&](uint32_t rows) {
            return kernels().prompt_scratch_bytes(shape, 128, 8, 2048, rows);
        };
        EXPECT_EQ(prompt(1) + 8191 * (prompt(2) - prompt(1)), prompt(8192));
    }
}

}  // namespace
}  // namespace granary::gpu::cuda::test
