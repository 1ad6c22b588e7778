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

}  // namespace
}  // namespace granary::gpu::cuda::test
