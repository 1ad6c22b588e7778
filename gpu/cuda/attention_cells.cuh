// SPDX-License-Identifier: GPL-3.0-or-later
// How K/V cells come to a warp of decode attention: as they are stored, in pieces of at most 4 KB
// through a ring of two slots, copied by the warp itself. A piece that is spent makes way for the
// next but one.
#pragma once

#include "gpu/cuda/attention_decode.h"
#include "gpu/cuda/kv_cells.cuh"
#include "gpu/cuda/read_once.cuh"

namespace granary::gpu::cuda {
namespace {

// How the codes of a head are cut into pieces that fit a slot, of a step of kTheStep cells a warp:
// kCells cells, kWidth bytes of each.
template <KvCodes kTheCodes, uint32_t kTheDim, uint32_t kTheStep>
struct Pieces {
    static constexpr KvCodes kCodes = kTheCodes;
    static constexpr uint32_t kDim = kTheDim, kStep = kTheStep;
    static constexpr uint32_t kRow = kCodes == KvCodes::f16    ? kDim * 2
                                     : kCodes == KvCodes::int8 ? kDim
                                                               : kDim / 2;
    static constexpr uint32_t kGroup = kCodes == KvCodes::int8 ? 64 : 32;
    static constexpr uint32_t kScaleBytes = kCodes == KvCodes::f16 ? 0 : kDim / kGroup * 2;
    static constexpr uint32_t kWidth = kRow < 256 ? kRow : 256;
    static constexpr uint32_t kParts = kRow / kWidth;
    static constexpr uint32_t kCells =
        kDecodePiece / kWidth < kStep ? kDecodePiece / kWidth : kStep;
    static constexpr uint32_t kCount = kStep / kCells * kParts;
    static constexpr uint32_t kTiles = kCells / 16;  // of 16 cells

    // Where 16 bytes of a row lie in a slot: any 8 rows' are in different banks.
    __device__ static uint32_t place(uint32_t row, uint32_t chunk) {
        if constexpr (kWidth >= 128)
            return row * kWidth + (chunk ^ row % 8) * 16;
        else
            return row * kWidth + (chunk ^ row / (128 / kWidth) % (kWidth / 16)) * 16;
    }
};

template <uint32_t kBytes>
__device__ __forceinline__ void copy_scales(std::byte* to, const std::byte* from) {
    if constexpr (kBytes == 2)
        *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(from);
    else if constexpr (kBytes == 16)
        copy_16(shared_address(to), from);
    else
        copy_small<kBytes>(shared_address(to), from);
}

// One warp's ring. Its steps are of kDecodeNear or kFar cells.
template <KvCodes kKCodes, KvCodes kVCodes, uint32_t kDim>
struct CellRing {
    template <uint32_t kStep>
    using K = Pieces<kKCodes, kDim, kStep>;
    template <uint32_t kStep>
    using V = Pieces<kVCodes, kDim, kStep>;
    template <uint32_t kStep>
    static constexpr uint32_t kPieces = K<kStep>::kCount + V<kStep>::kCount;
    static constexpr bool kScaled = kKCodes != KvCodes::f16;
    static constexpr uint32_t kSlotBytes = decode_slot_bytes(kScaled), kSlots = kDecodeSlots;
    // Where 16 cells fill a piece and are quickly done, more of them in a step would gain nothing.
    static constexpr uint32_t kFar = kScaled || K<64>::kTiles > 1 ? 64 : kDecodeNear;

    // Neighbouring cells in one step of the cache, those of a warp's turn; count 0: none.
    struct Cells {
        uint32_t first, count;
    };

    const KvView& kv;
    const std::byte* const base;  // of kv
    std::byte* const slots;       // [kSlots][kSlotBytes] of shared memory
    const uint32_t head;
    const uint32_t end;  // cells that are stored
    const uint32_t lane = threadIdx.x % 32;
    const ReadOnce once{};
    uint32_t slot = 0;

    __device__ Cells cells_at(uint32_t first, uint32_t most) const {
        return {first, end > first ? min(most, end - first) : 0};
    }
    template <class P>
    __device__ const std::byte* codes_of(const KvPart& part, const Cells& cells) const {
        return base + cell_offset(kv, part.code_offset, part.code_row, cells.first) +
               head * P::kRow;
    }

    // Begins the copy of a piece. Cells after the last one that is stored repeat it.
    template <class P, uint32_t kPiece>
    __device__ void bring(uint32_t to_slot, const KvPart& part, const Cells& cells) {
        std::byte* const to = slots + to_slot * kSlotBytes;
        const uint32_t to_address = shared_address(to);
        constexpr uint32_t kFirst = kPiece / P::kParts * P::kCells;
        constexpr uint32_t kChunks = P::kWidth / 16, kRows = 32 / kChunks;
        const uint32_t chunk = lane % kChunks, row = lane / kChunks;
        const std::byte* const from =
            codes_of<P>(part, cells) + kPiece % P::kParts * P::kWidth + chunk * 16;
        const auto code_row = static_cast<uint32_t>(part.code_row);
#pragma unroll
        for (uint32_t i = 0; i < P::kCells / kRows; ++i) {
            const uint32_t cell = min(kFirst + row + i * kRows, cells.count - 1);
            once.copy_16(to_address + P::place(row + i * kRows, chunk),
                         from + size_t{cell} * code_row);
        }
        if constexpr (P::kScaleBytes != 0) {
            const std::byte* const scales =
                base + cell_offset(kv, part.scale_offset, part.scale_row, cells.first) +
                head * P::kScaleBytes;
            const auto scale_row = static_cast<uint32_t>(part.scale_row);
#pragma unroll
            for (uint32_t i = 0; i < (P::kCells + 31) / 32; ++i) {
                const uint32_t row = i * 32 + lane;
                if (row < P::kCells)
                    copy_scales<P::kScaleBytes>(
                        to + kDecodePiece + row * P::kScaleBytes,
                        scales + size_t{min(kFirst + row, cells.count - 1)} * scale_row);
            }
        }
    }
    template <uint32_t kStep, uint32_t kPiece>
    __device__ void bring(uint32_t to_slot, const Cells& cells) {
        if (cells.count) {
            if constexpr (kPiece < K<kStep>::kCount)
                bring<K<kStep>, kPiece>(to_slot, kv.k, cells);
            else
                bring<V<kStep>, kPiece - K<kStep>::kCount>(to_slot, kv.v, cells);
        }
        copies_commit();
    }
    // Towards the second cache, which new cells do not mind.
    template <class P>
    __device__ void prefetch(const KvPart& part, const Cells& cells) const {
        constexpr uint32_t kLines = (P::kRow + 127) / 128;
        const std::byte* const codes = codes_of<P>(part, cells);
#pragma unroll
        for (uint32_t i = 0; i < (P::kStep * kLines + 31) / 32; ++i) {
            const uint32_t line = i * 32 + lane, row = line / kLines;
            if (row < cells.count)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(codes + row * part.code_row +
                                                              line % kLines * 128));
        }
    }

    // The next piece is there.
    __device__ const std::byte* next_piece() const {
        copies_wait<kSlots - 1>();
        __syncwarp();
        return slots + slot * kSlotBytes;
    }
    // It is not needed any more, and bring_to(slot) fills its place with the next but one.
    template <class BringTo>
    __device__ void spend_piece(BringTo&& bring_to) {
        __syncwarp();
        bring_to(slot);
        slot = (slot + 1) % kSlots;
    }
};

}  // namespace
}  // namespace granary::gpu::cuda
