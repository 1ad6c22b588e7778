// SPDX-License-Identifier: GPL-3.0-or-later
// What the setting `device` stands for on a machine, and what the log says of it.
#include <gtest/gtest.h>

#include "engine/run/device.h"
#include "granary/engine.h"
#include "tests/engine/small_model.h"

namespace granary::test {
namespace {

using Devices = std::vector<gpu::FoundDevice>;

// No machine has a GPU of this number: it is found and cannot be opened.
const gpu::FoundDevice kAbsent{"cuda:63", "NVIDIA Absent", uint64_t{8} << 30, {}};
const gpu::FoundDevice kOld{{}, "NVIDIA GeForce RTX 2060", 0, "driver 535 is too old"};
const gpu::FoundDevice kHost{"host", "A processor", uint64_t{8} << 30, {}};

TEST(DeviceChoice, AutoTakesWhatCanBeUsedInOrder) {
    const auto names = [](const DeviceChoice& choice) {
        std::string names;
        for (const gpu::FoundDevice& device : choice.candidates) names += device.id + " ";
        return names;
    };
    const Devices all{kAbsent, kOld, kHost};
    EXPECT_EQ(names(choose_device("auto", all)), "cuda:63 host ");
    EXPECT_EQ(
        choose_device("auto", all).passed_over,
        std::vector<std::string>{"NVIDIA GeForce RTX 2060 is not used: driver 535 is too old"});
    EXPECT_EQ(names(choose_device("host", all)), "host ");
    EXPECT_EQ(names(choose_device("cuda:63", all)), "cuda:63 ");
    // Named, it is tried, whoever found what: its own error says more.
    EXPECT_EQ(names(choose_device("cuda:0", all)), "cuda:0 ");
    EXPECT_EQ(names(choose_device("host", {})), "host ");
}

class OpenedDevice : public ::testing::Test {
  protected:
    Result<std::unique_ptr<Engine>> open(const std::string& device, const Devices& found) {
        lines_.clear();
        EngineOptions options;
        options.settings.threads = 1;
        options.settings.max_context = 1024;
        options.settings.device = device;
        options.find_devices = [found] { return found; };
        options.log = [this](LogLevel level, std::string_view line) {
            if (line.find("computing on") != std::string_view::npos ||
                line.find("have been run") != std::string_view::npos)
                lines_.emplace_back((level == LogLevel::warning ? "! " : "") + std::string(line));
        };
        return Engine::open(path_, options);
    }
    TempDir folder_;
    std::string path_ = SmallModel().save(folder_, "small.gguf");
    std::vector<std::string> lines_;
};

TEST_F(OpenedDevice, AutoSaysWhichAndWhyNotTheOthers) {
    auto engine = open("auto", {kOld, kHost});
    ASSERT_TRUE(engine) << engine.error().message();
    EXPECT_EQ((*engine)->device().id, "host");
    EXPECT_EQ((*engine)->plan().settings.device, "auto");
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_EQ(lines_[0], "computing on " + (*engine)->device().name +
                             "; NVIDIA GeForce RTX 2060 is not used: driver 535 is too old");

    // Other settings leave it where it is, and say nothing again.
    Settings longer = (*engine)->plan().settings;
    longer.max_context = 2048;
    ASSERT_TRUE((*engine)->apply(longer));
    EXPECT_EQ((*engine)->device().id, "host");
    EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(OpenedDevice, AutoGoesOnWhereADeviceFails) {
    auto engine = open("auto", {kAbsent, kHost});
    ASSERT_TRUE(engine) << engine.error().message();
    EXPECT_EQ((*engine)->device().id, "host");
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_TRUE(lines_[0].starts_with("! computing on ")) << lines_[0];
    EXPECT_NE(lines_[0].find("NVIDIA Absent is not used: "), std::string::npos) << lines_[0];
}

TEST_F(OpenedDevice, ANamedDeviceIsNotReplaced) {
    EXPECT_FALSE(open("cuda:63", {kAbsent, kHost}));
    auto engine = open("host", {kAbsent, kHost});
    ASSERT_TRUE(engine);
    EXPECT_TRUE(lines_.empty());
    Settings other = (*engine)->plan().settings;
    other.device = "cuda:63";
    EXPECT_FALSE((*engine)->apply(other));
    EXPECT_EQ((*engine)->device().id, "host");
    EXPECT_TRUE((*engine)->create_conversation());
}

TEST_F(OpenedDevice, WhatIsToKnowOfADeviceIsSaid) {
    gpu::FoundDevice noted = kHost;
    noted.note = "whole models have been run on others";
    ASSERT_TRUE(open("auto", {noted}));
    ASSERT_EQ(lines_.size(), 2u);
    EXPECT_EQ(lines_[1], "! A processor: whole models have been run on others");
}

}  // namespace
}  // namespace granary::test
