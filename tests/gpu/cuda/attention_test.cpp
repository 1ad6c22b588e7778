// SPDX-License-Identifier: GPL-3.0-or-later
// Attention of prompts and of generated tokens in every K/V format against the host's.
#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {
namespace {

// Queries, weights and V as f16 against f32; quantised cells widen to the same f16 on both ways.
constexpr double kFast = 2e-3;
// The same sums of f32 in another order.
constexpr double kExact = 1e-5;

constexpr KvFormat kFormats[] = {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4,
                                 KvFormat::f32};

AttentionShape shape_of(uint32_t heads, uint32_t kv_heads, uint32_t dim) {
    AttentionShape shape;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_dim = dim;
    shape.rope = rope_table(dim, 100000);
    shape.scale = 2 / std::sqrt(static_cast<float>(dim));
    return shape;
}

// A conversation of `cells` tokens in one of two layers, on the host and on the GPU. The other
// layer is poisoned; cells that no token has written are zeroed, as growth leaves them.
class Conversation {
  public:
    Conversation(Gpu& gpu, const AttentionShape& shape, KvFormat format, uint32_t cells)
        : gpu_(gpu), shape_(shape) {
        const KvParts parts = kv_parts(format, shape.kv_heads, shape.head_dim);
        host_ = {nullptr, 2 * parts.bytes, parts.k, parts.v, nullptr, parts.bytes};
        const size_t steps = (cells + kStepCells - 1) / kStepCells;
        memory_.assign(steps * host_.step_bytes, std::byte{0xff});
        for (size_t i = 0; i < steps; ++i)
            std::fill_n(memory_.begin() + i * host_.step_bytes + parts.bytes, parts.bytes,
                        std::byte{0});
        host_.base = memory_.data() + parts.bytes;
        Random random(cells);
        q_ = random.values(size_t{cells} * shape.heads * shape.head_dim);
        const std::vector<float> k = random.values(size_t{cells} * shape.kv_heads * shape.head_dim);
        const std::vector<float> v = random.values(k.size());
        const std::vector<float> norm(shape.head_dim, 1.5f);
        gpu.host().rope_store(shape, norm.data(), norm.data(), 0, cells, q_.data(), k.data(),
                              v.data(), host_);
        device_ = reinterpret_cast<std::byte*>(gpu.allocate(memory_.size()));
        gpu.device().copy(StreamId::compute, device_, memory_.data(), memory_.size());
        gpu.synchronize();
    }
    uint32_t row() const { return shape_.heads * shape_.head_dim; }

    std::vector<float> expected_prompt(uint32_t first, uint32_t n) {
        std::vector<float> out(size_t{n} * row());
        gpu_.host().attention_prompt(shape_, q_.data() + size_t{first} * row(), first, host_,
                                     {out.data(), nullptr, n, row()});
        return out;
    }
    std::vector<float> expected_decode(uint32_t first, uint32_t n) {
        std::vector<float> out(size_t{n} * row());
        const DecodePlace place{memory_.data(), first, 0};
        KvView view = host_;
        view.base = nullptr;
        view.place = &place;
        gpu_.host().attention_decode(shape_, q_.data() + size_t{first} * row(), view,
                                     {out.data(), nullptr, n, row()});
        return out;
    }
    // With codes they are compared with the values.
    std::vector<float> prompt(uint32_t first, uint32_t n, bool codes) {
        KvView view = host_;
        view.base = device_ + host_.offset;
        return run(first, n, codes, false, [&](const float* q, const Activations& out) {
            gpu_.kernels().attention_prompt(shape_, q, first, view, out);
        });
    }
    std::vector<float> decode(uint32_t first, uint32_t n, bool codes) {
        return decode_by(first, n, codes,
                         [&](const float* q, const KvView& view, const Activations& out) {
                             gpu_.kernels().attention_decode(shape_, q, view, out);
                         });
    }
    // With the gates of `pairs`, at once or one after the other.
    std::vector<float> decode_and_gate(uint32_t first, uint32_t n, const float* pairs,
                                       bool at_once) {
        return decode_by(
            first, n, true, [&](const float* q, const KvView& view, const Activations& out) {
                if (at_once)
                    gpu_.kernels().attention_decode_and_gate(shape_, q, view, pairs, out);
                else
                    gpu_.kernels().Kernels::attention_decode_and_gate(shape_, q, view, pairs, out);
            });
    }

    // One token from what its matrices put out, turned, stored and attended at once or one after
    // the other; what it gives, and the cells afterwards, which then are as they were.
    struct Stored {
        std::vector<float> out;
        std::vector<std::byte> cells;
    };
    Stored store_and_decode(uint32_t first, const AttentionInputs& in, bool at_once) {
        Stored result;
        result.out = decode_by(
            first, 1, true, [&](const float* q, const KvView& view, const Activations& out) {
                AttentionInputs all = in;
                const Array<float> room(gpu_, row());
                gpu_.device().copy(StreamId::compute, room.data(), q, row() * sizeof(float));
                all.q = room;
                if (at_once)
                    gpu_.kernels().rope_store_and_attend(shape_, all, view, out);
                else
                    gpu_.kernels().Kernels::rope_store_and_attend(shape_, all, view, out);
            });
        result.cells.resize(memory_.size());
        gpu_.device().copy(StreamId::compute, result.cells.data(), device_, memory_.size());
        gpu_.device().copy(StreamId::compute, device_, memory_.data(), memory_.size());
        gpu_.synchronize();
        return result;
    }

  private:
    template <class F>
    std::vector<float> decode_by(uint32_t first, uint32_t n, bool codes, F&& f) {
        KvView view = host_;
        view.base = nullptr;
        const Array<DecodePlace> place(gpu_, std::vector<DecodePlace>{{device_, first, 0}});
        view.place = place.data();
        return run(first, n, codes, true,
                   [&](const float* q, const Activations& out) { f(q, view, out); });
    }
    template <class F>
    std::vector<float> run(uint32_t first, uint32_t n, bool codes, bool decode, F&& f) {
        const std::vector<float> rows(q_.begin() + size_t{first} * row(),
                                      q_.begin() + size_t{first + n} * row());
        const Array<float> q(gpu_, rows), values(gpu_, rows.size());
        const size_t code_row = gpu_.kernels().code_bytes(row());
        const Array<std::byte> coded(gpu_, n * code_row);
        f(q, {values.data(), codes ? coded.data() : nullptr, n, row(), decode});
        const std::vector<float> out = values.get();
        const std::vector<std::byte> bytes = coded.get();
        if (codes && decode) {
            expect_decode_codes(bytes, out, n, row());
        } else if (codes) {
            const std::vector<float> back = from_ordered(bytes, n, row());
            for (size_t i = 0; i < out.size(); ++i)
                if (back[i] != host::half_to_float(host::float_to_half(out[i]))) {
                    ADD_FAILURE() << "code " << i << " is " << back[i] << ", its value " << out[i];
                    break;
                }
        } else {
            EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size(), std::byte{0xff}));
        }
        return out;
    }

    Gpu& gpu_;
    AttentionShape shape_;
    KvView host_;
    std::vector<std::byte> memory_;
    std::vector<float> q_;
    std::byte* device_ = nullptr;
};

std::string name(const AttentionShape& shape, KvFormat format) {
    return std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + " heads of " +
           std::to_string(shape.head_dim) + ", " + std::string(kv_format_name(format));
}

bool has_fast_kernel(const AttentionShape& shape, KvFormat format) {
    return format != KvFormat::f32 &&
           (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256);
}

class CudaAttention : public CudaTest {
  protected:
    // f(conversation, format) for every format, each in an empty memory.
    template <class F>
    void in_every_format(const AttentionShape& shape, uint32_t cells, F&& f) {
        for (const KvFormat format : kFormats) {
            SCOPED_TRACE(name(shape, format));
            gpu().reset();
            Conversation conversation(gpu(), shape, format, cells);
            f(conversation, format);
        }
    }
};

TEST_F(CudaAttention, DecodeMatchesTheHost) {
    for (const AttentionShape& shape :
         cases(4, {shape_of(4, 2, 64), shape_of(3, 1, 128), shape_of(4, 4, 256), shape_of(2, 1, 40),
                   shape_of(16, 2, 128), shape_of(16, 2, 256), shape_of(24, 2, 64),
                   shape_of(20, 1, 128), shape_of(4, 2, 96), shape_of(2, 1, 576), shape_of(3, 3, 8),
                   // So many heads leave few blocks to each, which come to their large cuts soon.
                   shape_of(96, 96, 64), shape_of(96, 96, 128)})) {
        in_every_format(shape, 2100, [&](Conversation& at, KvFormat format) {
            for (const auto& [first, n] : cases<std::pair<uint32_t, uint32_t>>(3, {{0, 1},
                                                                                   {508, 8},
                                                                                   {2093, 7},
                                                                                   {0, 8},
                                                                                   {15, 2},
                                                                                   {511, 1},
                                                                                   {1020, 6},
                                                                                   {1023, 1}})) {
                const std::vector<float> expected = at.expected_decode(first, n);
                const double bound = has_fast_kernel(shape, format) ? kFast : kExact;
                EXPECT_LT(distance(at.decode(first, n, true), expected), bound)
                    << n << " at " << first;
                EXPECT_LT(distance(at.decode(first, n, false), expected), kExact)
                    << n << " at " << first << ", f32";
            }
        });
    }
}

TEST_F(CudaAttention, DecodeDoesNotDependOnItsRows) {
    for (const AttentionShape& shape :
         cases(3, {shape_of(8, 1, 64), shape_of(6, 2, 128), shape_of(8, 1, 256),
                   shape_of(16, 2, 128), shape_of(12, 1, 128), shape_of(2, 1, 40)})) {
        in_every_format(shape, 1600, [&](Conversation& at, KvFormat) {
            for (const uint32_t first : cases(1, {509u, 1018u, 1500u})) {
                const std::vector<float> together = at.decode(first, 8, true);
                for (const uint32_t n : cases(2, {3u, 1u, 2u})) {
                    std::vector<float> apart;
                    for (uint32_t i = 0; i < 8; i += n) {
                        const auto some = at.decode(first + i, std::min(n, 8 - i), true);
                        apart.insert(apart.end(), some.begin(), some.end());
                    }
                    EXPECT_TRUE(same_bits(apart, together)) << n << " at a time from " << first;
                }
            }
        });
    }
}

TEST_F(CudaAttention, DecodeWithItsGates) {
    for (const AttentionShape& shape :
         cases(1, {shape_of(16, 2, 256), shape_of(8, 1, 64), shape_of(4, 2, 128)})) {
        in_every_format(shape, 1600, [&](Conversation& at, KvFormat format) {
            if (!has_fast_kernel(shape, format)) return;  // without one both are the same calls
            Random random(4);
            const Array<float> pairs(gpu(), random.values(size_t{3} * 2 * at.row()));
            for (const auto& [first, n] :
                 cases<std::pair<uint32_t, uint32_t>>(1, {{1500, 1}, {3, 1}, {1020, 3}}))
                EXPECT_TRUE(same_bits(at.decode_and_gate(first, n, pairs, true),
                                      at.decode_and_gate(first, n, pairs, false)))
                    << n << " at " << first;
        });
    }
}

TEST_F(CudaAttention, DecodeThatTurnsAndStores) {
    AttentionShape in_part = shape_of(16, 2, 256), small = shape_of(6, 2, 128);
    in_part.rope = rope_table(64, 1e7);
    in_part.norm_eps = small.norm_eps = 1e-5f;
    small.rope = rope_table(64, 1e4);
    for (const AttentionShape& shape :
         cases(2, {in_part, shape_of(8, 1, 64), shape_of(32, 4, 128), small,
                   // Few blocks for each head, so that the new cell lies in a large cut.
                   shape_of(96, 96, 64), shape_of(96, 96, 128)})) {
        in_every_format(shape, 2100, [&](Conversation& at, KvFormat format) {
            if (!has_fast_kernel(shape, format)) return;  // without one both are the same calls
            Random random(5);
            const size_t kv = size_t{shape.kv_heads} * shape.head_dim;
            const Array<float> pairs(gpu(), random.values(size_t{2} * at.row())),
                k(gpu(), random.values(kv)), v(gpu(), random.values(kv)),
                q_norm(gpu(), random.values(shape.head_dim)),
                k_norm(gpu(), random.values(shape.head_dim));
            for (const bool gated : {false, true})
                for (const uint32_t first : cases(2, {1500u, 0u, 127u, 1023u, 2093u})) {
                    const bool norms = first % 2 > 0 || gated;
                    const AttentionInputs in{norms ? q_norm.data() : nullptr,
                                             norms ? k_norm.data() : nullptr,
                                             nullptr,
                                             gated ? pairs.data() : nullptr,
                                             k,
                                             v};
                    const auto apart = at.store_and_decode(first, in, false);
                    const auto together = at.store_and_decode(first, in, true);
                    EXPECT_TRUE(same_bits(together.out, apart.out)) << first << ' ' << gated;
                    EXPECT_TRUE(together.cells == apart.cells) << first << ' ' << gated;
                }
        });
    }
}

TEST_F(CudaAttention, PromptMatchesTheHostAndDoesNotDependOnItsChunks) {
    for (const AttentionShape& shape :
         cases(3, {shape_of(4, 2, 64), shape_of(3, 1, 128), shape_of(1, 1, 256),
                   shape_of(8, 2, 128), shape_of(8, 1, 256), shape_of(4, 2, 96), shape_of(2, 1, 40),
                   shape_of(2, 1, 576), shape_of(3, 3, 8)})) {
        const uint32_t cells = cases(1, {333u, 1337u}).back();
        in_every_format(shape, cells, [&](Conversation& at, KvFormat format) {
            for (const bool codes : {true, false}) {
                SCOPED_TRACE(codes ? "fast" : "f32");
                const double bound = codes && has_fast_kernel(shape, format) ? kFast : kExact;
                for (const auto& [first, n] :
                     {std::pair{0u, 1u}, {0u, 65u}, {63u, 2u}, {cells - 237, 237u}})
                    EXPECT_LT(distance(at.prompt(first, n, codes), at.expected_prompt(first, n)),
                              bound)
                        << n << " at " << first;
                const std::vector<float> whole = at.prompt(0, cells, codes);
                for (const uint32_t chunk : cases(1, {301u, 64u, 1024u})) {
                    std::vector<float> parts;
                    for (uint32_t i = 0; i < cells; i += chunk) {
                        const auto some = at.prompt(i, std::min(chunk, cells - i), codes);
                        parts.insert(parts.end(), some.begin(), some.end());
                    }
                    EXPECT_TRUE(same_bits(parts, whole)) << "chunks of " << chunk;
                }
            }
        });
    }
}

// Quantised cells are widened in blocks of 16,384.
TEST_F(CudaAttention, PromptCrossesBlocksOfWidenedCells) {
    for (const AttentionShape& shape : cases(1, {shape_of(4, 1, 128), shape_of(2, 1, 256)})) {
        in_every_format(shape, 33000, [&](Conversation& at, KvFormat format) {
            if (format == KvFormat::f32) return;
            for (const auto& [first, n] : cases<std::pair<uint32_t, uint32_t>>(
                     1, {{16300, 200}, {16384, 3}, {32700, 300}})) {
                const std::vector<float> all = at.prompt(first, n, true);
                EXPECT_LT(distance(all, at.expected_prompt(first, n)), kFast) << first;
                const std::vector<float> last = at.prompt(first + n - 2, 2, true);
                EXPECT_TRUE(
                    same_bits(last, {all.end() - static_cast<ptrdiff_t>(last.size()), all.end()}))
                    << first;
            }
            EXPECT_LT(distance(at.decode(32990, 1, true), at.expected_decode(32990, 1)), kFast);
        });
    }
}

}  // namespace
}  // namespace granary::gpu::cuda::test
