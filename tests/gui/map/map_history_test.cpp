// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/map_history.h"

#include <QTest>

#include "frames.h"

using namespace granary;
using namespace granary::gui;
using namespace granary::test;

namespace {

bool same(const MapFrame& a, const MapFrame& b) {
    return a.sequence == b.sequence && a.words == b.words && a.places == b.places &&
           a.granules == b.granules && a.ranges == b.ranges && a.seconds == b.seconds;
}

// Frames of 30 Hz from `from` on in which the loan and K/V come and go.
std::vector<MapFrame> film(double from, int count) {
    std::vector<MapFrame> frames;
    Card card;
    for (int i = 0; i < count; ++i) {
        card.sequence = static_cast<uint64_t>(i) + 1;
        card.seconds = from + i / 30.0;
        card.tick = 1000 + static_cast<uint32_t>(i);
        card.loan = i >= 30 && i < 60 ? 64 : 0;
        card.kv = static_cast<uint32_t>(i) / 10;
        frames.push_back(makeFrame(card));
    }
    return frames;
}

}  // namespace

class MapHistoryTest : public QObject {
    Q_OBJECT
  private Q_SLOTS:
    void replayShowsEveryFrameInOrder() {
        const std::vector<MapFrame> frames = film(5, 300);
        MapHistory history;
        for (const MapFrame& frame : frames) history.append(frame);
        QCOMPARE(history.frames(), size_t{300});
        MapReplay replay;
        QVERIFY(replay.start(history, history.span()));
        QVERIFY(same(replay.frame(), frames.front()));
        size_t next = 1;
        // A wall-clock step short enough that no frame is passed over: 1/30 s of the recording
        // takes a third of a second.
        while (!replay.finished()) {
            if (!replay.advance(0.05)) continue;
            QVERIFY(next < frames.size());
            QVERIFY2(same(replay.frame(), frames[next]), qPrintable(QString::number(next)));
            ++next;
        }
        QCOMPARE(next, frames.size());
    }

    void replayRunsAtATenthOfTheSpeed() {
        MapHistory history;
        for (const MapFrame& frame : film(5, 90)) history.append(frame);
        MapReplay replay;
        QVERIFY(replay.start(history, {5, 6}));
        replay.advance(1.0);
        QCOMPARE(replay.position(), 5.1);
        for (int i = 0; i < 9; ++i) replay.advance(1.0);
        QVERIFY(replay.finished());
        QCOMPARE(replay.position(), 6.0);
    }

    void aBigStepEndsAtTheRightFrame() {
        const std::vector<MapFrame> frames = film(5, 300);
        MapHistory history;
        for (const MapFrame& frame : frames) history.append(frame);
        MapReplay replay;
        QVERIFY(replay.start(history, {6, 14}));
        QCOMPARE(replay.frame().sequence, uint64_t{31});
        replay.advance(10 * (100.5 / 30.0));  // past key frames
        QCOMPARE(replay.frame().sequence, uint64_t{131});
        QVERIFY(same(replay.frame(), frames[130]));
    }

    void theLastPromptIsWhereTheLoanWas() {
        MapHistory history;
        for (const MapFrame& frame : film(5, 120)) history.append(frame);
        const MapSpan span = history.lastPrompt();
        QVERIFY(span.valid());
        QVERIFY(span.from < 6.0 && span.from > 5.5);
        QVERIFY(span.to > 7.0 && span.to < 7.6);
        MapHistory quiet;
        Card card;
        quiet.append(makeFrame(card));
        QVERIFY(!quiet.lastPrompt().valid());
    }

    void theHistoryForgetsAfterAMinuteAndStaysInBounds() {
        MapHistory history;
        Card card;
        for (int i = 0; i < 3000; ++i) {
            card.seconds = i / 20.0;
            card.sequence = static_cast<uint64_t>(i) + 1;
            card.kv = static_cast<uint32_t>(i % 100);
            history.append(makeFrame(card));
        }
        QVERIFY(history.span().to - history.span().from <= MapHistory::kSeconds + 0.001);
        QVERIFY(history.span().to - history.span().from > MapHistory::kSeconds - 1);

        MapHistory small(200 << 10);
        for (int i = 0; i < 3000; ++i) {
            card.seconds = i / 20.0;
            card.kv = static_cast<uint32_t>(i % 100);
            small.append(makeFrame(card));
            QVERIFY(small.bytes() <= size_t{200 << 10});
        }
        QVERIFY(!small.empty());
    }

    void aReplayKeepsWhatTheHistoryForgets() {
        const std::vector<MapFrame> frames = film(0, 100);
        MapHistory history;
        for (const MapFrame& frame : frames) history.append(frame);
        MapReplay replay;
        QVERIFY(replay.start(history, history.span()));
        Card card;
        for (int i = 0; i < 2000; ++i) {  // recording goes on for another 100 s
            card.seconds = 4 + i / 20.0;
            history.append(makeFrame(card));
        }
        QVERIFY(history.span().from > 3.3);
        size_t shown = 1;
        while (!replay.finished())
            if (replay.advance(0.1)) {
                QVERIFY(same(replay.frame(), frames[shown]));
                ++shown;
            }
        QCOMPARE(shown, frames.size());
    }

    void anotherModelBeginsANewHistory() {
        MapHistory history;
        for (const MapFrame& frame : film(50, 10)) history.append(frame);
        Card card;
        card.seconds = 0.5;  // its clock begins again
        history.append(makeFrame(card));
        QCOMPARE(history.frames(), size_t{1});
        card.granules = 700;  // another budget
        card.seconds = 0.6;
        history.append(makeFrame(card));
        MapReplay replay;
        QVERIFY(replay.start(history, {0.5, 0.7}));
        QCOMPARE(replay.frame().words.size(), size_t{640});
        replay.advance(2);
        QCOMPARE(replay.frame().words.size(), size_t{700});
    }

    void nothingToReplayIsSaid() {
        MapReplay replay;
        QVERIFY(!replay.start(MapHistory(), {0, 1}));
        MapHistory history;
        history.append(makeFrame({}));
        QVERIFY(!replay.start(history, history.span()));  // one frame is no span
        QVERIFY(!replay.advance(1));
    }
};

QTEST_GUILESS_MAIN(MapHistoryTest)
#include "map_history_test.moc"
