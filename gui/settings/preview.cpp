// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/preview.h"

#include "gpu/device.h"

namespace granary::gui {

Result<Plan> previewPlan(const Planner& planner, const Settings& settings) {
    DeviceFacts facts = planner.device();
    const gpu::Face face = settings.vram_budget > 0 ? gpu::Face::card : gpu::Face::unified;
    gpu::HostDeviceOptions options;
    options.face = face;
    options.granule_bytes = settings.granule;
    options.budget_bytes = settings.vram_budget;
    options.threads = settings.threads;
    const auto device = gpu::host_device_info(options);
    if (!device) return tl::unexpected(device.error());
    if (face != facts.face || face == gpu::Face::card) {
        facts.face = face;
        facts.granule_bytes = device->granule_bytes;
        facts.free_bytes = device->free_bytes;
    }
    return Planner(planner.model(), facts).plan(settings);
}

}  // namespace granary::gui
