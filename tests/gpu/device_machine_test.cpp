// SPDX-License-Identifier: GPL-3.0-or-later
// What the machine says of itself, and the GPUs that it has: made-up trees, and this machine.
#include "gpu/host/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/found_devices.h"
#include "tests/gpu/device_tree.h"

namespace granary::gpu {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(Machine, SaysSomethingOfThisOne) {
    EXPECT_GE(host::usable_cores(), 1u);
    const host::MachineMemory memory = host::machine_memory();
    EXPECT_GT(memory.free_bytes, 0u);
    EXPECT_GE(memory.total_bytes, memory.free_bytes);
    EXPECT_FALSE(host::cpu_name().empty());
    EXPECT_FALSE(host::vector_instructions().empty());
}

TEST(Machine, SurvivesAnEmptyTree) {
    const DeviceTree tree;
    EXPECT_EQ(host::machine_memory(tree.root()).total_bytes, 0u);
    EXPECT_GE(host::usable_cores(tree.root()), 1u);
    EXPECT_EQ(host::cpu_name(tree.root()), "CPU");
    const auto devices = found_devices_in(tree.root(), tl::unexpected(std::string("none")));
    EXPECT_EQ(devices.front().id, "host");
}

class MachineTree : public testing::Test {
  protected:
    MachineTree() {
        tree.write("/proc/meminfo",
                   "MemTotal:       1048576 kB\nMemFree:  1 kB\n"
                   "MemAvailable:    524288 kB\n");
    }
    DeviceTree tree;
};

TEST_F(MachineTree, ReadsTheMachinesMemory) {
    EXPECT_EQ(host::machine_memory(tree.root()).total_bytes, 1024 * kMiB);
    EXPECT_EQ(host::machine_memory(tree.root()).free_bytes, 512 * kMiB);
}

TEST_F(MachineTree, TakesTheTightestGroupOfVersion2) {
    tree.write("/proc/self/cgroup", "0::/user/box\n");
    tree.write("/sys/fs/cgroup/user/box/memory.max", "max\n");
    tree.write("/sys/fs/cgroup/user/memory.max", std::to_string(400 * kMiB) + "\n");
    tree.write("/sys/fs/cgroup/user/memory.current", std::to_string(300 * kMiB) + "\n");
    tree.write("/sys/fs/cgroup/user/memory.stat",
               "anon 5\ninactive_file " + std::to_string(50 * kMiB) + "\nactive_file 7\n");
    EXPECT_EQ(host::machine_memory(tree.root()).total_bytes, 400 * kMiB);
    EXPECT_EQ(host::machine_memory(tree.root()).free_bytes, 150 * kMiB);
    // More used than allowed leaves nothing, and not an enormous number.
    tree.write("/sys/fs/cgroup/user/memory.current", std::to_string(900 * kMiB) + "\n");
    EXPECT_EQ(host::machine_memory(tree.root()).free_bytes, 0u);
}

TEST_F(MachineTree, TakesTheGroupOfVersion1) {
    tree.write("/proc/self/cgroup",
               "9:name=systemd:/\n4:memory:/docker/1\n1:cpu,cpuacct:/a\n0::/\n");
    tree.write("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", std::to_string(200 * kMiB));
    tree.write("/sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", std::to_string(80 * kMiB));
    tree.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    EXPECT_EQ(host::machine_memory(tree.root()).total_bytes, 200 * kMiB);
    EXPECT_EQ(host::machine_memory(tree.root()).free_bytes, 120 * kMiB);
    tree.write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000");
    tree.write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
    EXPECT_EQ(host::usable_cores(tree.root()), 1u);
}

TEST_F(MachineTree, CountsTheCoresThatAQuotaPaysFor) {
    const unsigned all = host::usable_cores(tree.root());
    tree.write("/proc/self/cgroup", "0::/\n");
    tree.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
    EXPECT_EQ(host::usable_cores(tree.root()), all);
    tree.write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    EXPECT_EQ(host::usable_cores(tree.root()), 1u);
    tree.write("/sys/fs/cgroup/cpu.max", "100001 100000\n");
    EXPECT_EQ(host::usable_cores(tree.root()), std::min(all, 2u));
}

TEST_F(MachineTree, CleansTheNameOfTheCpu) {
    tree.write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)  Gold CPU\n");
    EXPECT_EQ(host::cpu_name(tree.root()), "Intel Xeon Gold CPU");
    tree.write("/proc/cpuinfo", "model name\n");
    EXPECT_EQ(host::cpu_name(tree.root()), "CPU");
}

class FoundDevices : public testing::Test {
  protected:
    void pci(const std::string& slot, const std::string& type, const std::string& vendor,
             const std::string& device) const {
        const std::string folder = "/sys/bus/pci/devices/" + slot;
        tree.write(folder + "/class", type + "\n");
        tree.write(folder + "/vendor", "0x" + vendor + "\n");
        tree.write(folder + "/device", "0x" + device + "\n");
    }
    std::vector<std::pair<std::string, std::string>> found() const {
        std::vector<std::pair<std::string, std::string>> list;
        for (const FoundDevice& device : found_devices_in(tree.root(), cuda)) {
            EXPECT_FALSE(device.name.empty());
            list.emplace_back(device.name, device.usable() ? device.id : device.note);
        }
        EXPECT_EQ(list.back().second, "host");
        list.pop_back();
        return list;
    }
    DeviceTree tree;
    tl::expected<std::vector<CudaGpu>, std::string> cuda =
        tl::unexpected(std::string("NVIDIA's driver is not installed"));
};

using Names = std::vector<std::pair<std::string, std::string>>;

TEST_F(FoundDevices, NamesEachGpuAndNothingElse) {
    pci("0000:00:02.0", "0x030000", "8086", "46a6");
    pci("0000:01:00.0", "0x030000", "10de", "2504");
    pci("0000:01:00.1", "0x040300", "10de", "228e");  // its sound
    pci("0000:02:00.0", "0x010802", "144d", "a80a");  // a disk
    pci("0000:03:00.0", "0x038000", "1002", "73bf");
    pci("0000:18:00.0", "0x030200", "10de", "2335");
    pci("0000:19:00.0", "0x030000", "1234", "1111");
    pci("0000:1a:00.0", "0x030000", "abcd", "0001");
    tree.write("/proc/driver/nvidia/gpus/0000:18:00.0/information",
               "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\n");
    EXPECT_EQ(found(), (Names{{"Intel device 8086:46a6", "this version computes on the CPU only"},
                              {"NVIDIA device 10de:2504", "NVIDIA's driver is not installed"},
                              {"AMD device 1002:73bf", "this version has no HIP kernels"},
                              {"NVIDIA H200", "NVIDIA's driver is not installed"},
                              {"QEMU device 1234:1111", "it drives a display and cannot compute"},
                              {"PCI device abcd:0001", "this version computes on the CPU only"}}));
}

TEST_F(FoundDevices, LooksNamesUpWhereTheSystemListsThem) {
    pci("0000:01:00.0", "0x030000", "10de", "2504");
    pci("0000:03:00.0", "0x030000", "1002", "73bf");
    pci("0000:04:00.0", "0x030000", "8086", "ffff");
    tree.write("/usr/share/misc/pci.ids",
               "# list\n1002  AMD\n\t2504  Wrong\n\t73bf  Navi 21\n\t\t73bf 0001  Board\n"
               "10de  NVIDIA Corporation\n\t2504  GA106 [GeForce RTX 3060 Lite Hash Rate]\n"
               "8086  Intel Corporation\n\t46a6  Alder Lake\n");
    EXPECT_EQ(found(),
              (Names{{"NVIDIA GeForce RTX 3060 Lite Hash Rate", "NVIDIA's driver is not installed"},
                     {"AMD Navi 21", "this version has no HIP kernels"},
                     {"Intel device 8086:ffff", "this version computes on the CPU only"}}));
}

TEST_F(FoundDevices, SeesGpusThatAreOnNoBus) {
    tree.write("/proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: NVIDIA A100\n");
    tree.write("/proc/driver/nvidia/gpus/0000:42:00.0/other", "");
    tree.write("/sys/class/drm/card0/device/uevent", "DRIVER=v3d\nOF_NAME=gpu\n");
    tree.write("/sys/class/drm/card1/device/uevent", "DRIVER=simple-framebuffer\n");
    tree.write("/sys/class/drm/card0-HDMI-A-1/status", "connected\n");
    tree.write("/sys/class/drm/renderD128/device/uevent", "DRIVER=v3d\n");
    EXPECT_EQ(found(), (Names{{"NVIDIA A100", "NVIDIA's driver is not installed"},
                              {"NVIDIA GPU 0000:42:00.0", "NVIDIA's driver is not installed"},
                              {"GPU v3d", "this version computes on the CPU only"}}));
}

// What the driver shows is not named a second time, and what it can use comes first.
TEST_F(FoundDevices, TheDriversGpusAreNamedOnce) {
    pci("0000:00:02.0", "0x030000", "8086", "46a6");
    pci("0000:01:00.0", "0x030000", "10de", "2504");
    pci("0000:41:00.0", "0x030200", "10de", "2335");
    pci("0000:42:00.0", "0x030200", "10de", "1b38");
    tree.write("/proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: NVIDIA H200\n");
    cuda = std::vector<CudaGpu>{
        {"0000:01:00.0", {{}, "NVIDIA GeForce RTX 3060", 12 << 20, "too small"}},
        {"0000:41:00.0", {"cuda:1", "NVIDIA H200", 143 << 20, {}}}};
    EXPECT_EQ(found(), (Names{{"NVIDIA H200", "cuda:1"},
                              {"Intel device 8086:46a6", "this version computes on the CPU only"},
                              {"NVIDIA GeForce RTX 3060", "too small"},
                              {"NVIDIA device 10de:1b38", "NVIDIA's driver does not show it"}}));
}

TEST(ThisMachine, ListsItsDevices) {
    const auto devices = found_devices();
    for (const FoundDevice& device : devices) {
        std::printf("%s: %s %s\n", device.name.c_str(), device.id.c_str(), device.note.c_str());
        EXPECT_FALSE(device.name.empty());
        EXPECT_TRUE(device.usable() || !device.note.empty());
    }
    ASSERT_FALSE(devices.empty());
    EXPECT_EQ(devices.back().id, "host");
    EXPECT_GT(devices.back().total_bytes, 0u);
}

}  // namespace
}  // namespace granary::gpu
