// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/found_devices.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "gpu/device.h"
#include "gpu/small_file.h"

namespace granary::gpu {
namespace {

namespace fs = std::filesystem;

struct Vendor {
    std::string_view id;
    std::string_view name;
    std::string_view reason;
};
constexpr std::string_view kNoHip = "this version has no HIP kernels";
constexpr std::string_view kCpuOnly = "this version computes on the CPU only";
constexpr std::string_view kDisplayOnly = "it drives a display and cannot compute";
// NVIDIA's are for the driver to judge.
constexpr std::array kVendors{
    Vendor{"10de", "NVIDIA", {}},
    Vendor{"1002", "AMD", kNoHip},
    Vendor{"8086", "Intel", kCpuOnly},
    // Adapters of servers and of virtual machines.
    Vendor{"1234", "QEMU", kDisplayOnly},
    Vendor{"1af4", "virtio", kDisplayOnly},
    Vendor{"1b36", "QXL", kDisplayOnly},
    Vendor{"1013", "Cirrus", kDisplayOnly},
    Vendor{"15ad", "VMware", kDisplayOnly},
    Vendor{"1414", "Microsoft", kDisplayOnly},
    Vendor{"1a03", "ASPEED", kDisplayOnly},
    Vendor{"102b", "Matrox", kDisplayOnly},
};

// "0x10de" -> "10de".
std::string hex_id(const std::string& path) {
    const std::string text = trimmed(read_small_file(path));
    return text.starts_with("0x") ? text.substr(2) : text;
}

// Names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error))
        names.push_back(entry->path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

// The value in "Model: \t\t NVIDIA H200" or "DRIVER=v3d".
std::string value_of(const std::string& text, std::string_view key) {
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        if (line.starts_with(key)) return trimmed(line.substr(key.size()));
        at = end + 1;
    }
    return {};
}

// The list of PCI names, where the system has it: vendors at the start of a line, their devices
// after one tab. "GA106 [GeForce RTX 3060]" gives what stands in brackets.
std::string listed_name(const std::string& root, const std::string& vendor,
                        const std::string& device) {
    std::ifstream list(root + "/usr/share/misc/pci.ids");
    if (!list) list.open(root + "/usr/share/hwdata/pci.ids");
    bool here = false;
    for (std::string line; std::getline(list, line);) {
        if (line.empty() || line[0] == '#') continue;
        if (line[0] != '\t') {
            if (here) break;
            here = line.starts_with(vendor);
        } else if (here && line.compare(1, device.size(), device) == 0) {
            const std::string name = trimmed(line.substr(1 + device.size()));
            const size_t open = name.find('['), close = name.rfind(']');
            return open < close && close != std::string::npos
                       ? name.substr(open + 1, close - open - 1)
                       : name;
        }
    }
    return {};
}

FoundDevice pci_device(const std::string& root, const std::string& slot,
                       const std::string& no_cuda) {
    const std::string folder = root + "/sys/bus/pci/devices/" + slot;
    const std::string vendor = hex_id(folder + "/vendor"), device = hex_id(folder + "/device");
    const auto* known = std::find_if(kVendors.begin(), kVendors.end(),
                                     [&](const Vendor& v) { return v.id == vendor; });
    const bool is_known = known != kVendors.end();
    const std::string maker = is_known ? std::string(known->name) : "PCI";
    std::string model = value_of(
        read_small_file(root + "/proc/driver/nvidia/gpus/" + slot + "/information"), "Model:");
    if (model.empty()) model = trimmed(read_small_file(folder + "/product_name"));  // of amdgpu
    if (model.empty()) model = listed_name(root, vendor, device);
    if (model.empty()) model = "device " + vendor + ":" + device;
    if (!model.starts_with(maker)) model = maker + " " + model;
    if (maker == "NVIDIA") return {{}, model, 0, no_cuda};
    return {{}, model, 0, std::string(is_known ? known->reason : kCpuOnly)};
}

}  // namespace

std::vector<FoundDevice> found_devices_in(
    const std::string& root, const tl::expected<std::vector<CudaGpu>, std::string>& cuda) {
    const std::string no_cuda = cuda ? "NVIDIA's driver does not show it" : cuda.error();
    std::vector<FoundDevice> devices;           // that can be used
    std::map<std::string, FoundDevice> unused;  // by slot, so that each is named once
    std::set<std::string> named;                // slots of the driver's
    for (const CudaGpu& gpu : cuda.value_or(std::vector<CudaGpu>())) {
        named.insert(gpu.bus_id);
        if (gpu.device.usable())
            devices.push_back(gpu.device);
        else
            unused.emplace(gpu.bus_id, gpu.device);
    }
    for (const std::string& slot : names_in(root + "/sys/bus/pci/devices"))
        if (!named.count(slot) &&
            hex_id(root + "/sys/bus/pci/devices/" + slot + "/class").starts_with("03"))
            unused.emplace(slot, pci_device(root, slot, no_cuda));
    // A container may be shown the driver's list and not the bus.
    const std::string nvidia = root + "/proc/driver/nvidia/gpus/";
    for (const std::string& slot : names_in(nvidia)) {
        if (named.count(slot)) continue;
        const std::string model =
            value_of(read_small_file(nvidia + slot + "/information"), "Model:");
        unused.emplace(slot,
                       FoundDevice{{}, model.empty() ? "NVIDIA GPU " + slot : model, 0, no_cuda});
    }
    // GPUs that sit on no bus: those of phones and small boards.
    for (const std::string& card : names_in(root + "/sys/class/drm")) {
        if (!card.starts_with("card") || card.find('-') != std::string::npos) continue;
        const std::string folder = root + "/sys/class/drm/" + card + "/device";
        if (!hex_id(folder + "/vendor").empty()) continue;  // on the bus: named above
        const std::string driver = value_of(read_small_file(folder + "/uevent"), "DRIVER=");
        const bool is_gpu =
            !driver.empty() && driver != "vkms" && driver.find("framebuffer") == std::string::npos;
        if (is_gpu)
            unused.emplace(card, FoundDevice{{}, "GPU " + driver, 0, std::string(kCpuOnly)});
    }
    for (auto& [slot, device] : unused) devices.push_back(std::move(device));
    const auto machine = host_device_info({});
    devices.push_back(
        {"host", machine ? machine->name : "CPU", machine ? machine->total_bytes : 0, {}});
    return devices;
}

std::vector<FoundDevice> found_devices() {
    return found_devices_in("", cuda_gpus());
}

}  // namespace granary::gpu
