// SPDX-License-Identifier: GPL-3.0-or-later
// What a device does that has nothing of its own for it: marks by the host's clock, no recordings.
#include "gpu/device.h"

namespace granary::gpu {

void DeviceMemory::mark(uint32_t number) {
    if (marks_.empty()) marks_.resize(kMarks);
    marks_.at(number) = std::chrono::steady_clock::now();
}
double DeviceMemory::seconds_between(uint32_t from, uint32_t to) {
    return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
}

Result<void> DeviceMemory::begin_recording() {
    return fail(ErrorKind::unsupported, "This device records no work", info().name);
}
Result<RecordingId> DeviceMemory::end_recording() {
    return fail(ErrorKind::unsupported, "This device records no work", info().name);
}

}  // namespace granary::gpu
