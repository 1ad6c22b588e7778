// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/theme/map_palette.h"

#include <QCoreApplication>

#include "gui/theme/contrast.h"
#include "gui/theme/theme.h"

namespace granary::gui {

namespace {

struct Words {
    Q_DECLARE_TR_FUNCTIONS(granary::gui::MapPalette)
};

MapPalette make(bool dark) {
    const auto rgb = [](unsigned value) { return QColor::fromRgb(value); };
    MapPalette p;
    const auto set = [&p](Owner owner, ClassLook look) {
        p.classes[static_cast<size_t>(owner)] = look;
    };
    QColor coldest;
    if (dark) {
        p.canvas = rgb(0x14171b);
        p.hollow = rgb(0x3a414b);
        p.transfer = rgb(0xffffff);
        p.ring = rgb(0xffffff);
        p.pin = rgb(0xffffff);
        p.flash = rgb(0xffffff);
        p.text = rgb(0xa5adb8);
        set(Owner::spare, {rgb(0x2a2f36), rgb(0x363c45), {}});
        set(Owner::fixed, {rgb(0x06eaa1), {}, {}});
        set(Owner::workspace, {rgb(0xfcfb20), {}, {}});
        set(Owner::state, {rgb(0x93969b), {}, {}});
        set(Owner::kv, {rgb(0xbb56de), {}, {}});
        set(Owner::loan, {rgb(0xa35801), {}, rgb(0xe8a24a)});
        set(Owner::experts, {rgb(0x8ab8e4), {}, {}});
        set(Owner::quarantined, {rgb(0x4a1620), rgb(0xff8f8f), rgb(0xff8f8f)});
        coldest = mixed(rgb(0x8ab8e4), rgb(0x1d2836), 0.60);
    } else {
        p.canvas = rgb(0xffffff);
        p.hollow = rgb(0xc3c9d1);
        p.transfer = rgb(0x000000);
        p.ring = rgb(0x111418);
        p.pin = rgb(0x111418);
        p.flash = rgb(0xffffff);
        p.text = rgb(0x5a616c);
        set(Owner::spare, {rgb(0xedeff2), rgb(0xc9ced6), {}});
        set(Owner::fixed, {rgb(0x51ce84), rgb(0x2c8f57), {}});
        set(Owner::workspace, {rgb(0xbe9c06), rgb(0x857000), {}});
        set(Owner::state, {rgb(0x818489), {}, {}});
        set(Owner::kv, {rgb(0x510830), {}, {}});
        set(Owner::loan, {rgb(0x993607), {}, rgb(0xf0a97c)});
        set(Owner::experts, {rgb(0x053883), {}, {}});
        set(Owner::quarantined, {rgb(0xfce6e7), rgb(0xb3141f), rgb(0xb3141f)});
        coldest = mixed(rgb(0x053883), rgb(0xd9e4f5), 0.62);
    }
    const QColor hottest = p.look(Owner::experts).fill;
    for (int step = 0; step < kRecencySteps; ++step)
        p.experts[static_cast<size_t>(step)] =
            mixed(coldest, hottest, static_cast<double>(step) / (kRecencySteps - 1));
    return p;
}

}  // namespace

const MapPalette& MapPalette::of(bool dark) {
    static const MapPalette kLight = make(false), kDark = make(true);
    return dark ? kDark : kLight;
}

const MapPalette& MapPalette::of(const QPalette& palette) {
    return of(Theme::isDark(palette));
}

QString ownerMeaning(Owner owner) {
    switch (owner) {
        case Owner::spare:
            return Words::tr("Held by nobody: the next to ask gets it");
        case Owner::fixed:
            return Words::tr("Weights that every token needs: they never move");
        case Owner::workspace:
            return Words::tr("Scratch memory of the kernels");
        case Owner::state:
            return Words::tr("Recurrent state of the conversations");
        case Owner::kv:
            return Words::tr("Keys and values of the tokens read so far");
        case Owner::loan:
            return Words::tr("Lent to the prompt that is being read, and given back after");
        case Owner::experts:
            return Words::tr("Cached experts: the brighter, the more recently used");
        case Owner::quarantined:
            return Words::tr("Could not be mapped back: out of use until a reload");
    }
    return {};
}

}  // namespace granary::gui
