// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/map_model.h"

#include <QLocale>
#include <QTest>
#include <set>

#include "frames.h"
#include "gui/vram/map_layout.h"

using namespace granary;
using namespace granary::gui;
using namespace granary::test;

class MapModelTest : public QObject {
    Q_OBJECT
  private Q_SLOTS:
    void initTestCase() { QLocale::setDefault(QLocale::c()); }

    void firstFrameRelays() {
        MapModel model;
        model.setFrame(makeFrame({}));
        const MapModel::Changes changes = model.takeChanges();
        QVERIFY(changes.relaid);
        QCOMPARE(model.cells(), 640);
        QVERIFY(model.takeChanges().cells.empty());
    }

    void onlyChangedCellsDiffer() {
        MapModel model;
        model.setReducedMotion(true);
        Card card;
        MapFrame frame = makeFrame(card);
        model.setFrame(frame);
        model.takeChanges();
        frame.words[200] = GranuleWord::make(Owner::kv, 0, 0, 0, 0);
        frame.words[300] = GranuleWord::make(Owner::loan, 0, 0, 0, 0);
        countClasses(frame);
        frame.sequence = 2;
        model.setFrame(frame);
        const MapModel::Changes changes = model.takeChanges();
        QVERIFY(!changes.relaid);
        QCOMPARE(changes.cells, (std::vector<int>{200, 300}));
        QCOMPARE(model.key(200).owner(), Owner::kv);
        // The same frame again changes nothing.
        model.setFrame(frame);
        QVERIFY(model.takeChanges().cells.empty());
    }

    void aChangeOfHandsFlashesAndFades() {
        MapModel model;
        MapFrame frame = makeFrame({});
        frame.seconds = 10;
        model.setFrame(frame);
        frame.words[250] = GranuleWord::make(Owner::kv, 0, 0, 0, 0);
        countClasses(frame);
        frame.seconds = 10.1;
        model.setFrame(frame);
        QCOMPARE(model.key(250).flash(), CellKey::kFlashSteps);
        QVERIFY(model.animating());
        int last = CellKey::kFlashSteps;
        for (double t = 10.1; t < 10.5; t += 0.01) {
            model.setNow(t);
            QVERIFY(model.key(250).flash() <= last);
            last = model.key(250).flash();
        }
        QCOMPARE(last, 0);
        QVERIFY(!model.animating());
        // Nothing flashes when the clock jumps: the difference is not something that happened.
        frame = makeFrame({});
        frame.seconds = 3;
        model.setFrame(frame, true);
        QCOMPARE(model.key(250).flash(), 0);
    }

    void recencyIsRelativeAndWraps() {
        MapModel model;
        MapFrame frame = makeFrame({});
        const auto word = [](uint32_t use) {
            return GranuleWord::make(Owner::experts, 0, 1, 3, use);
        };
        for (size_t i = 111; i < frame.words.size(); ++i) frame.words[i] = word(0x3ffff0);
        frame.words[111] = word(5);                                        // newest, after the wrap
        frame.words[112] = word(0x3fffff);                                 // 6 ago
        frame.words[113] = word(0x3fffd0);                                 // 53 ago
        frame.words[114] = word(0x3fff00);                                 // 261 ago
        frame.words[115] = word(0x3ff000);                                 // long ago
        frame.words[116] = GranuleWord::make(Owner::experts, 0, 1, 0, 0);  // never
        countClasses(frame);
        model.setFrame(frame);
        QCOMPARE(model.key(111).recency(), 4);
        QCOMPARE(model.key(112).recency(), 3);
        QCOMPARE(model.key(113).recency(), 2);
        QCOMPARE(model.key(114).recency(), 1);
        QCOMPARE(model.key(115).recency(), 0);
        QCOMPARE(model.key(116).recency(), 0);
    }

    void everyGranuleHasOneCellInBothOrders() {
        for (const MapOrder order : {MapOrder::Pool, MapOrder::Ranges}) {
            MapModel model;
            model.setOrder(order);
            Card card;
            card.kv = 40;
            card.loan = 64;
            card.spare = 5;
            const MapFrame frame = makeFrame(card);
            QVERIFY(MapModel::sumsAgree(frame));
            model.setFrame(frame);
            std::array<uint32_t, kOwners> sums{};
            std::set<int> seen;
            for (int cell = 0; cell < model.cells(); ++cell) {
                const int granule = model.granule(cell);
                if (granule < 0) {
                    QVERIFY(model.key(cell).hollow());
                    continue;
                }
                QVERIFY(seen.insert(granule).second);
                QCOMPARE(model.cellOfGranule(granule), cell);
                ++sums[static_cast<size_t>(model.key(cell).owner())];
            }
            QCOMPARE(seen.size(), size_t{640});
            QCOMPARE(sums, frame.granules);
        }
    }

    void rangesShowPlacesInAddressOrder() {
        MapModel model;
        model.setOrder(MapOrder::Ranges);
        Card card;
        card.kv = 16;
        card.loan = 8;
        model.setFrame(makeFrame(card));
        QCOMPARE(model.sections().size(), size_t{4});
        QCOMPARE(model.sections()[2].name, QStringLiteral("experts"));
        const int experts = 640 - 111;
        const int firstExpert = 111;
        // Given to K/V: hollow in the expert range, mapped at the beginning of the K/V range.
        for (int place = experts - 24; place < experts - 8; ++place)
            QVERIFY(model.key(firstExpert + place).hollow());
        QCOMPARE(model.key(firstExpert + experts - 1).owner(), Owner::loan);
        const int firstKv = firstExpert + experts;
        for (int place = 0; place < 16; ++place)
            QCOMPARE(model.key(firstKv + place).owner(), Owner::kv);
        QVERIFY(model.key(firstKv + 16).hollow());
    }

    void growthInRangesOrderRedrawsOnlyWhatMoved() {
        MapModel model;
        model.setReducedMotion(true);
        model.setOrder(MapOrder::Ranges);
        Card card;
        card.kv = 16;
        model.setFrame(makeFrame(card));
        model.takeChanges();
        card.kv = 18;
        model.setFrame(makeFrame(card));
        const MapModel::Changes changes = model.takeChanges();
        QVERIFY(!changes.relaid);
        QCOMPARE(changes.cells.size(), size_t{4});  // two hollow, two mapped
    }

    void foreignFramesDoNoHarm() {
        MapModel model;
        MapFrame frame = makeFrame({});
        frame.places.resize(100);           // too few
        frame.places[3] = {9, 5};           // no such range
        frame.places[4] = {0, 1000000};     // no such place
        frame.places[6] = frame.places[5];  // two at one place
        frame.words[7].bits = 0xf;          // a class that does not exist
        frame.granules.fill(0);
        for (const GranuleWord word : frame.words)
            ++frame.granules[static_cast<size_t>(MapModel::ownerOf(word))];
        for (const MapOrder order : {MapOrder::Pool, MapOrder::Ranges}) {
            model.setOrder(order);
            model.setFrame(frame);
            for (int cell = -2; cell < model.cells() + 2; ++cell) (void)model.hoverText(cell);
            std::set<int> seen;
            for (int cell = 0; cell < model.cells(); ++cell)
                if (model.granule(cell) >= 0) seen.insert(model.granule(cell));
            QCOMPARE(seen.size(), size_t{640});
        }
        QCOMPARE(model.key(model.cellOfGranule(7)).owner(), Owner::quarantined);
    }

    void sumsThatDoNotAgreeAreSeen() {
        MapFrame frame = makeFrame({});
        QVERIFY(MapModel::sumsAgree(frame));
        ++frame.granules[0];
        QVERIFY(!MapModel::sumsAgree(frame));
    }

    void hoverNamesWhatACellHolds() {
        MapModel model;
        Card card;
        card.kv = 16;
        MapFrame frame = makeFrame(card);
        frame.words[120] = GranuleWord::make(Owner::experts, 0, 3 * 32 + 17, 5, card.tick - 12);
        frame.words[121] = GranuleWord::make(Owner::experts, 0, 4 * 32 + 2, 0, 0);
        model.setFrame(frame);
        QCOMPARE(model.hoverText(120).first,
                 QStringLiteral("Granule 120 \u00b7 experts \u00b7 layer 3, expert 17"));
        QVERIFY(model.hoverText(120).second.contains(QStringLiteral("experts at 576 KiB")));
        QVERIFY(model.hoverText(120).second.contains(QStringLiteral("12")));
        QVERIFY(model.hoverText(121).second.contains(QStringLiteral("not used yet")));
        QVERIFY(model.hoverText(0).first.contains(QStringLiteral("fixed")));
        // The first K/V granule.
        const int kv = 640 - 16;
        QVERIFY(model.hoverText(kv).first.contains(QStringLiteral("from token 0")));
        QVERIFY(model.hoverText(kv + 8).first.contains(QStringLiteral("from token 1024")));
        QVERIFY(model.hoverText(-1).first.isEmpty());
        QVERIFY(model.hoverText(640).first.isEmpty());
    }

    void aGranuleGivenBackIsHollowAndInNoSum() {
        MapFrame frame = makeFrame({});
        const uint32_t experts = frame.granules[static_cast<size_t>(Owner::experts)];
        frame.words[300] = GranuleWord::make(Owner::spare, GranuleWord::given_back, 0, 0, 0);
        frame.places[300] = {};
        countClasses(frame);
        QVERIFY(MapModel::sumsAgree(frame));
        MapModel model;
        model.setFrame(frame);
        QCOMPARE(model.count(Owner::experts), experts - 1);
        QCOMPARE(model.count(Owner::spare), 0u);
        const int cell = model.cellOfGranule(300);
        QVERIFY(model.key(cell).hollow());
        QVERIFY(model.hoverText(cell).second.contains("given back"));
    }

    void anEmptySlotIsNoExpert() {
        MapModel model;
        MapFrame frame = makeFrame({});
        frame.words[300] = GranuleWord::make(Owner::experts, GranuleWord::empty_slot, 0, 0, 0);
        frame.words[301] = frame.words[300];
        model.setFrame(frame);
        QVERIFY(model.hoverText(300).first.endsWith(QStringLiteral("empty slot")));
        QVERIFY(!model.hoverText(300).second.contains(QStringLiteral("used")));
        QCOMPARE(model.key(300).recency(), 0);
        QVERIFY(model.sameOwnerId(300).empty());
    }

    void hoverListsBothSlotsOfASharedGranule() {
        MapModel model;
        // Slots of 1.5 granules, two layers: granule 1 of the range lies under two slots.
        model.setSlotBytes({96 << 10, 96 << 10});
        MapFrame frame = makeFrame({});
        const auto expert = [](uint32_t id) {
            return GranuleWord::make(Owner::experts, 0, id, 1, 1);
        };
        frame.words[111] = frame.words[112] = expert(5);
        frame.words[113] = expert(32 + 6);
        model.setFrame(frame);
        QVERIFY(!model.hoverText(111).first.contains(QStringLiteral("and layer")));
        QVERIFY(model.hoverText(112).first.endsWith(
            QStringLiteral("layer 0, expert 5 \u00b7 and layer 1, expert 6")));
        // Granule 2 of the range ends with its slot: nothing is shared.
        QVERIFY(!model.hoverText(113).first.contains(QStringLiteral("and layer")));
    }

    void neighboursOfTheSameOwner() {
        MapModel model;
        Card card;
        card.loan = 2;
        model.setFrame(makeFrame(card));
        QCOMPARE(model.nextOfSameOwner(638, 1), 639);
        QCOMPARE(model.nextOfSameOwner(639, 1), 638);  // around
        QCOMPARE(model.nextOfSameOwner(0, -1), 104);
        QVERIFY(model.sameOwnerId(111).size() >= 4);
        QVERIFY(model.sameOwnerId(0).empty());
        QVERIFY(model.sameOwnerId(-1).empty());
    }

    void summaryIsSpoken() {
        MapModel model;
        QVERIFY(!model.summary().isEmpty());
        model.setFrame(makeFrame({}));
        QVERIFY(
            model.summary().contains(QStringLiteral("experts 529 of 640 granules, 83 per cent")));
    }

    // ---- geometry ------------------------------------------------------------------------
    void columnsAreThePowerOfTwoWithTheLargestCell_data() {
        QTest::addColumn<QSize>("size");
        QTest::addColumn<int>("cells");
        for (const QSize size :
             {QSize(400, 284), QSize(424, 220), QSize(1280, 760), QSize(97, 301)})
            for (const int cells : {1, 640, 8192, 72192})
                QTest::addRow("%dx%d %d", size.width(), size.height(), cells) << size << cells;
    }
    void columnsAreThePowerOfTwoWithTheLargestCell() {
        QFETCH(QSize, size);
        QFETCH(int, cells);
        MapLayout layout;
        layout.compute(size, {cells}, 0, 1000);
        int best = 0;
        for (int columns = 1; columns <= size.width(); columns *= 2)
            best = std::max(best, std::min(size.width() / columns,
                                           size.height() / ((cells + columns - 1) / columns)));
        QCOMPARE(layout.cell(), std::max(best, MapLayout::kLeastCell));
        QCOMPARE(layout.columns() & (layout.columns() - 1), 0);
        QVERIFY(layout.columns() * layout.cell() <= std::max(size.width(), layout.cell()));
        QCOMPARE(layout.gap(), layout.cell() >= 4 ? 1 : 0);
        if (best >= MapLayout::kLeastCell) QVERIFY(layout.contentHeight() <= size.height());
    }

    void hitTestIsTheInverseOfTheRectangle() {
        MapLayout layout;
        layout.compute({424, 300}, {105, 6, 529, 128}, 20, 28);
        QCOMPARE(layout.cells(), 768);
        for (int cell = 0; cell < layout.cells(); ++cell) {
            const QRect rect = layout.rect(cell);
            QCOMPARE(rect.width(), layout.cell() - layout.gap());
            QCOMPARE(layout.cellAt(rect.topLeft()), cell);
            QCOMPARE(layout.cellAt(rect.bottomRight()), cell);
            QCOMPARE(layout.cellAt(rect.bottomRight() + QPoint(layout.gap(), layout.gap())), cell);
        }
        const QRect first = layout.rect(0);
        QCOMPARE(layout.cellAt(first.topLeft() - QPoint(1, 0)), -1);
        QCOMPARE(layout.cellAt(first.topLeft() - QPoint(0, 1)), -1);  // the label
        const int right = layout.left() + layout.columns() * layout.cell();
        QCOMPARE(layout.cellAt({right - 1, first.top()}), layout.columns() - 1);
        QCOMPARE(layout.cellAt({right, first.top()}), -1);
        // After the last cell of a section's last, shorter row there is nothing.
        const QRect last = layout.rect(104);
        QVERIFY(105 % layout.columns() != 0);
        QCOMPARE(layout.cellAt(last.topRight() + QPoint(layout.gap() + 1, 0)), -1);
        QCOMPARE(layout.cellAt({layout.left(), layout.contentHeight()}), -1);
        QVERIFY(layout.rect(-1).isNull() && layout.rect(768).isNull());
    }

    void upAndDownCrossSections() {
        MapLayout layout;
        layout.compute({320, 400}, {10, 0, 20}, 10, 20);
        const int columns = layout.columns();
        QVERIFY(columns >= 4);
        for (int cell = 0; cell < layout.cells(); ++cell) {
            const int down = layout.rowNeighbour(cell, 1);
            if (down == cell) continue;
            QVERIFY(layout.rect(down).top() > layout.rect(cell).top());
            QVERIFY(layout.rect(down).left() <= layout.rect(cell).left());
        }
        QCOMPARE(layout.rowNeighbour(0, -1), 0);
        QCOMPARE(layout.rowNeighbour(layout.cells() - 1, 1), layout.cells() - 1);
    }
};

QTEST_GUILESS_MAIN(MapModelTest)
#include "map_model_test.moc"
