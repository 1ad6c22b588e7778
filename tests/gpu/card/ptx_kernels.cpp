// SPDX-License-Identifier: GPL-3.0-or-later
// A card that runs any kernel of this build, from its PTX: slowly, but each address is looked at.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "tests/gpu/card/kernels.h"
#include "tests/gpu/card/name.h"
#include "tests/gpu/ptx/grid.h"

namespace granary::test::card {

struct Kernel {
    const ptx::Function* function;
    int target;
};

namespace {

// The texts, and where each kernel stands. Programs ask for kernels while others run.
class Library {
  public:
    Library() {
        for (const auto& entry : std::filesystem::directory_iterator(GRANARY_PTX)) {
            if (entry.path().extension() != ".ptx") continue;
            std::ifstream file(entry.path(), std::ios::binary);
            texts_.emplace_back(std::istreambuf_iterator<char>(file),
                                std::istreambuf_iterator<char>());
        }
    }
    const Kernel* find(const std::string& name) {
        const std::lock_guard lock(mutex_);
        if (const auto known = kernels_.find(name); known != kernels_.end()) return &known->second;
        const std::string entry = ".entry " + name + "(";
        for (size_t i = 0; i < texts_.size(); ++i) {
            if (texts_[i].find(entry) == std::string::npos) continue;
            auto& module = modules_[i];
            if (!module) module = std::make_unique<ptx::Module>(texts_[i]);
            const ptx::Function* const function = module->kernel(name);
            return &kernels_.emplace(name, Kernel{function, module->target()}).first->second;
        }
        return nullptr;
    }
    // Variables of the modules, which lie in memory of ours.
    Span variable_around(uintptr_t address) {
        const std::lock_guard lock(mutex_);
        for (const auto& [number, module] : modules_)
            for (const auto& [name, variable] : module->variables()) {
                const auto begin = reinterpret_cast<uintptr_t>(variable.at);
                if (address >= begin && address < begin + variable.bytes)
                    return {begin, begin + variable.bytes};
            }
        return {};
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> texts_;
    std::map<size_t, std::unique_ptr<ptx::Module>> modules_;
    std::map<std::string, Kernel> kernels_;
};

Library& library() {
    static Library the_library;
    return the_library;
}

// Of the one thread that works.
ptx::Runner& runner() {
    static ptx::Runner the_runner;
    return the_runner;
}

ptx::Span memory_around(uintptr_t address) {
    Span span = usable_around(address);
    if (span.end == 0) span = library().variable_around(address);
    return {span.begin, span.end};
}

}  // namespace

const Facts& facts() {
    static constexpr Facts kFacts{kEmulatedName.data(), size_t{8} << 30, GRANARY_CARD_CAPABILITY,
                                  GRANARY_CARD_CAPABILITY >= 90   ? 227 << 10
                                  : GRANARY_CARD_CAPABILITY == 80 ? 163 << 10
                                  : GRANARY_CARD_CAPABILITY == 75 ? 64 << 10
                                                                  : 99 << 10};
    return kFacts;
}

const Kernel* find_kernel(const std::string& name) {
    try {
        return library().find(name);
    } catch (const ptx::Fault& fault) {
        std::fprintf(stderr, "%s\n", fault.what());
        return nullptr;
    }
}

int target_of(const Kernel& kernel) {
    return kernel.target;
}

void other_work() {
    runner().other_work();
}

Work launch(const Kernel& kernel, const std::array<uint32_t, 3>& grid,
            const std::array<uint32_t, 3>& block, uint32_t shared_bytes, bool early,
            void** arguments) {
    ptx::Launch launch;
    launch.function = kernel.function;
    launch.grid = grid;
    launch.block = block;
    launch.shared_bytes = shared_bytes;
    launch.early = early;
    launch.parameters.resize(kernel.function->parameter_bytes);
    for (size_t i = 0; i < kernel.function->parameters.size(); ++i)
        std::memcpy(launch.parameters.data() + kernel.function->parameter_at[i], arguments[i],
                    kernel.function->parameters[i]);
    return [launch = std::move(launch)]() -> Status {
        static const ptx::FindMemory memory = memory_around;
        try {
            runner().run(launch, memory);
        } catch (const ptx::Fault& fault) {
            std::fprintf(stderr, "%s\n", fault.what());
            return kLaunchFailed;
        }
        return 0;
    };
}

}  // namespace granary::test::card
