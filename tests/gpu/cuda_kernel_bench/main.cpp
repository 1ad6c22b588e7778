// SPDX-License-Identifier: GPL-3.0-or-later
// Checks the CUDA kernels of the prompt path against references in double precision and times them
// at the shapes of real models, beside the card's own limits measured in the same run.
//
//   cuda_kernel_bench [--device N] [--checks | --quick]
//                     [--only limits,experts,products,attention,gather,rows] [--json FILE]
//
// Ends with 1 when a check failed, 2 when something went wrong. --checks: odd shapes only, untimed,
// for memory and race checkers. --quick: those and few sizes.
#include <cstring>

#include "tests/gpu/cuda_kernel_bench/bench.h"

namespace granary::gpu::cuda::bench {
namespace {

void write_json(const Bench& bench, const char* path) {
    std::FILE* const file = std::fopen(path, "w");
    if (!file) {
        std::fprintf(stderr, "%s cannot be written\n", path);
        std::exit(2);
    }
    std::fprintf(file,
                 "{\"device\": \"%s\", \"capability\": %d, \"multiprocessors\": %d, "
                 "\"failures\": %d,\n \"limits\": {\"f16_tflops\": %.1f, \"mma_tflops\": %.1f, "
                 "\"copy_gb_s\": %.1f, \"link_gb_s\": %.2f},\n \"lines\": [",
                 bench.facts().name.c_str(), bench.facts().capability, bench.facts().processors,
                 bench.failures(), bench.limit_f16, bench.limit_mma, bench.limit_copy,
                 bench.limit_link);
    const char* comma = "";
    for (const Line& line : bench.lines()) {
        std::fprintf(file,
                     "%s\n  {\"part\": \"%s\", \"what\": \"%s\", \"kernel\": \"%s\", \"ms\": %.4f, "
                     "\"spread\": %.4f, \"tflops\": %.2f, \"gb_s\": %.2f, \"share\": %.4f, "
                     "\"error\": %.3e}",
                     comma, line.part.c_str(), line.what.c_str(), line.kernel.c_str(),
                     line.milliseconds, line.spread, line.tflops, line.gigabytes, line.share,
                     line.error);
        comma = ",";
    }
    std::fprintf(file, "\n]}\n");
    std::fclose(file);
}

int run(int count, char** arguments) {
    int device = 0;
    Depth depth = Depth::full;
    std::string only = "limits,experts,products,attention,gather,rows";
    const char* json = nullptr;
    for (int i = 1; i < count; ++i) {
        const auto is = [&](const char* name) { return std::strcmp(arguments[i], name) == 0; };
        if (is("--quick")) {
            depth = Depth::quick;
        } else if (is("--checks")) {
            depth = Depth::checks;
        } else if (i + 1 < count && is("--device")) {
            device = std::atoi(arguments[++i]);
        } else if (i + 1 < count && is("--only")) {
            only = arguments[++i];
        } else if (i + 1 < count && is("--json")) {
            json = arguments[++i];
        } else {
            std::fprintf(stderr, "unknown argument %s\n", arguments[i]);
            return 2;
        }
    }
    const auto wanted = [&](const char* part) { return only.find(part) != std::string::npos; };
    Bench bench(device);
    std::printf("%s, capability %d, %d multiprocessors\n", bench.facts().name.c_str(),
                bench.facts().capability, bench.facts().processors);
    if (depth != Depth::checks) limits(bench);
    if (wanted("experts")) experts(bench, depth);
    if (wanted("products") && depth != Depth::checks) products(bench, depth);
    if (wanted("attention")) attention(bench, depth);
    if (wanted("gather") && depth != Depth::checks) gather(bench);
    if (wanted("rows") && depth != Depth::checks) rows(bench);
    if (json) write_json(bench, json);
    std::printf("%d checks failed\n", bench.failures());
    return bench.failures() ? 1 : 0;
}

}  // namespace
}  // namespace granary::gpu::cuda::bench

int main(int count, char** arguments) {
    return granary::gpu::cuda::bench::run(count, arguments);
}
