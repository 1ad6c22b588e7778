// SPDX-License-Identifier: GPL-3.0-or-later
// granary-gpu-check: does this machine's GPU keep the promises that the memory manager relies on,
// and what do they cost? Needs neither Qt nor a model.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "gpu/check/checks.h"
#include "gpu/check/timings.h"
#include "gpu/cuda/device_code.h"
#include "gpu/cuda/requirements.h"
#include "gpu/hip/driver.h"

namespace {

using namespace granary;
using namespace granary::gpu;
using check::Outcome;

enum ExitCode : int { kHeld = 0, kUsage = 1, kNotHeld = 4 };

struct Request {
    int device = 0;
    bool hip = false, json = false, no_timings = false;
    size_t granule_mib = 0;
    check::Limits limits;
    check::TimingOptions timings;
};

const char* word(Outcome::Verdict verdict) {
    switch (verdict) {
        case Outcome::Verdict::held:
            return "held";
        case Outcome::Verdict::failed:
            return "FAILED";
        case Outcome::Verdict::not_applicable:
            return "not here";
    }
    return "";
}

nlohmann::ordered_json to_json(const cuda::DeviceFacts& facts, const cuda::Driver& driver,
                               const std::vector<Outcome>& outcomes,
                               const std::vector<check::Timing>& timings, bool held) {
    nlohmann::ordered_json json;
    json["device"] = {{"name", facts.name},
                      {"bus", facts.bus_id},
                      {"capability", facts.capability},
                      {"processors", facts.processors},
                      {"total_bytes", facts.total_bytes},
                      {"granularity", facts.granule_bytes},
                      {"drives_display", facts.watched},
                      {"driver_api", driver.version()},
                      {"driver", cuda::installed_driver()}};
    for (const Outcome& outcome : outcomes)
        json["checks"].push_back({{"name", outcome.name},
                                  {"promise", outcome.promise},
                                  {"verdict", word(outcome.verdict)},
                                  {"detail", outcome.detail},
                                  {"seconds", outcome.seconds}});
    for (const check::Timing& timing : timings) {
        json["timings"].push_back({{"name", timing.name}});
        auto& entry = json["timings"].back();
        if (timing.note.empty()) {
            entry["value"] = timing.value;
            entry["unit"] = timing.unit;
        } else {
            entry["note"] = timing.note;
        }
    }
    json["held"] = held;
    return json;
}

int failed(const Error& error) {
    std::cerr << error.message() << '\n';
    return kNotHeld;
}

int run(const Request& request) {
    auto driver = request.hip ? hip::open_driver() : cuda::open_driver();
    if (!driver) return failed(driver.error());
    const auto code =
        request.hip ? hip::device_code("memory_check") : cuda::device_code("memory_check");
    if (code.empty())
        return failed({ErrorKind::unsupported,
                       "This build has no device code for this GPU",
                       {},
                       request.hip ? "Build it with GRANARY_HIP=ON" : "Build it where nvcc is"});
    if (!request.hip) {
        const std::string reason = cuda::too_old((*driver)->version(), cuda::device_code_version(),
                                                 cuda::installed_driver());
        if (!reason.empty())
            return failed({ErrorKind::unsupported, "The GPU's driver is too old", reason,
                           "Update the driver"});
    }
    const auto devices = cuda::list_devices(**driver);
    if (!devices) return failed(devices.error());
    if (request.device < 0 || static_cast<size_t>(request.device) >= devices->size())
        return failed(
            {ErrorKind::invalid_argument,
             "There is no such GPU",
             std::to_string(request.device) + ", " + std::to_string(devices->size()) + " are there",
             {}});
    const cuda::DeviceFacts& facts = (*devices)[static_cast<size_t>(request.device)];
    if (!request.json)
        std::printf(
            "%s at %s, capability %d.%d, %d processors, %s, granularity %s\n"
            "driver %s, interface %d.%d\n\n",
            facts.name.c_str(), facts.bus_id.c_str(), facts.capability / 10, facts.capability % 10,
            facts.processors, format_bytes(facts.total_bytes).c_str(),
            format_bytes(facts.granule_bytes).c_str(), cuda::installed_driver().c_str(),
            (*driver)->version() / 1000, (*driver)->version() % 1000 / 10);

    const cuda::Options options{facts.ordinal, request.granule_mib << 20};
    std::vector<check::Timing> timings;
    // Before the checks, whose last one ends a context: what comes after it might be slower.
    if (!request.no_timings) {
        auto measured = check::measure(*driver, options, request.timings);
        if (!measured) return failed(measured.error());
        timings = std::move(*measured);
    }
    const auto subject = check::gpu_subject(*driver, options.device, options.granule_bytes, code);
    bool held = true;
    const auto outcomes = check::run_checks(*subject, request.limits, [&](const Outcome& outcome) {
        held = held && outcome.verdict != Outcome::Verdict::failed;
        if (request.json) return;
        std::printf("%-14s %-8s %6.2f s  %s\n", outcome.name.c_str(), word(outcome.verdict),
                    outcome.seconds, outcome.detail.c_str());
        std::fflush(stdout);
    });
    if (request.json) {
        std::cout << to_json(facts, **driver, outcomes, timings, held).dump(2) << '\n';
    } else {
        std::printf("\n");
        for (const check::Timing& timing : timings)
            if (timing.note.empty())
                std::printf("%-44s %9.2f %s\n", timing.name.c_str(), timing.value,
                            timing.unit.c_str());
            else
                std::printf("%-44s %9s %s\n", timing.name.c_str(), "-", timing.note.c_str());
        std::printf("\n%s\n", held ? "Everything held." : "Not everything held: see FAILED above.");
    }
    return held ? kHeld : kNotHeld;
}

}  // namespace

int main(int argc, char** argv) {
    Request request;
    std::error_code no_folder;
    request.timings.folder = std::filesystem::temp_directory_path(no_folder).string();
    CLI::App app("Checks that a GPU keeps the promises of memory that Granary relies on",
                 "granary-gpu-check");
    app.footer("Exit codes: 0 everything held, 1 usage, 4 something did not, or no GPU to check.");
    app.add_option("--device", request.device, "Number of the GPU, from 0")->capture_default_str();
    app.add_flag("--hip", request.hip, "Check an AMD GPU");
    app.add_option("--granules", request.limits.granules, "Granules of each pool")
        ->check(CLI::Range(16, 100'000))
        ->capture_default_str();
    app.add_option("--granule", request.granule_mib,
                   "Size of a granule in MiB; 0: what the driver recommends")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    app.add_option("--faults", request.limits.faults,
                   "Calls of each driver function that are made to fail")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_flag("--no-timings", request.no_timings, "Only the checks");
    app.add_option("--folder", request.timings.folder, "For a file of 1 GiB while timing")
        ->capture_default_str();
    app.add_flag("--json", request.json, "One JSON object instead of tables");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kHeld : kUsage;
    }
    return run(request);
}
