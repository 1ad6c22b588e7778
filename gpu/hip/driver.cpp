// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/hip/driver.h"

#include <sys/resource.h>

namespace granary::gpu::hip {

Result<std::shared_ptr<cuda::Driver>> open_driver() {
    auto driver = cuda::Driver::open(cuda::Api::hip, {"libamdhip64.so.7", "libamdhip64.so.6"});
    rlimit files{};
    if (driver && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        // Where the system refuses, creating granules ends with the driver's own error.
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    return driver;
}

}  // namespace granary::gpu::hip
