// SPDX-License-Identifier: GPL-3.0-or-later
#include <spdlog/logger.h>
#include <QAbstractItemModelTester>
#include <QComboBox>
#include <QLineEdit>
#include <QListView>
#include <QLocale>
#include <QScrollBar>
#include <QSignalSpy>
#include <QTest>
#include <thread>

#include "gui/logs/log_view.h"
#include "gui/plots/strip_plot.h"
#include "gui/theme/theme.h"

using namespace granary;
using namespace granary::gui;

class LogPlotTest : public QObject {
    Q_OBJECT
  private Q_SLOTS:
    void initTestCase() { QLocale::setDefault(QLocale(QLocale::English)); }

    // ---- log -----------------------------------------------------------------------------
    void linesOfManyThreadsArriveOnce() {
        LogModel model;
        QAbstractItemModelTester tester(&model);
        spdlog::logger logger("t", model.sink());
        constexpr int kThreads = 4, kEach = 500;
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([&logger, t] {
                for (int i = 0; i < kEach; ++i) logger.info("thread {} line {}", t, i);
            });
        for (std::thread& thread : threads) thread.join();
        QSignalSpy inserted(&model, &QAbstractItemModel::rowsInserted);
        QTRY_COMPARE(model.rowCount(), kThreads * kEach);
        QCOMPARE(inserted.count(), 1);  // coalesced
        // Each thread's lines in their order.
        std::array<int, kThreads> next{};
        for (int row = 0; row < model.rowCount(); ++row) {
            const QStringList words =
                model.index(row).data(LogModel::TextRole).toString().split(QLatin1Char(' '));
            QCOMPARE(words.size(), 4);
            QCOMPARE(words[3].toInt(), next[static_cast<size_t>(words[1].toInt())]++);
        }
    }

    void theLogStaysBoundedAndSaysWhatItDropped() {
        LogModel model;
        spdlog::logger logger("t", model.sink());
        for (size_t i = 0; i < LogBuffer::kWaiting + 25; ++i) logger.info("line {}", i);
        model.drain();
        QCOMPARE(model.rowCount(), static_cast<int>(LogBuffer::kWaiting) + 1);
        QVERIFY(model.lineText(model.rowCount() - 1).contains(QStringLiteral("25 lines")));
        for (int round = 0; round < 8; ++round) {
            for (size_t i = 0; i < LogBuffer::kWaiting; ++i) logger.info("round {} {}", round, i);
            model.drain();
            QVERIFY(model.rowCount() <= LogModel::kLines);
        }
        QCOMPARE(model.rowCount(), static_cast<int>(LogModel::kLines));
        QVERIFY(model.lineText(model.rowCount() - 1).endsWith(QStringLiteral("round 7 4095")));
    }

    void hostileTextIsOnePlainLine() {
        LogModel model;
        spdlog::logger logger("t", model.sink());
        logger.info("a\nb\x1b[31m\tc \xff\xfe");
        logger.info("{}", std::string(100000, 'x'));
        model.drain();
        const QString first = model.lineText(0);
        QVERIFY(!first.contains(QLatin1Char('\n')) && !first.contains(QChar(0x1b)));
        QVERIFY(model.lineText(1).size() < 5000);
        QVERIFY(model.lineText(1).endsWith(QStringLiteral("[95904 bytes more]")));
    }

    void aSinkOutlivesItsModel() {
        std::shared_ptr<spdlog::sinks::sink> sink;
        {
            LogModel model;
            sink = model.sink();
        }
        spdlog::logger logger("t", sink);
        logger.info("nobody listens");
        QCoreApplication::processEvents();
    }

    void levelAndSearchFilter() {
        LogView view;
        spdlog::logger logger("t", view.sink());
        logger.set_level(spdlog::level::trace);
        logger.debug("a detail");
        logger.info("Reading ALICE");
        logger.warn("a warning");
        logger.error("an error about Alice");
        view.model()->drain();
        QCOMPARE(view.list()->model()->rowCount(), 4);
        view.levelBox()->setCurrentIndex(2);
        QCOMPARE(view.list()->model()->rowCount(), 2);
        view.searchEdit()->setText(QStringLiteral("alice"));
        QCOMPARE(view.list()->model()->rowCount(), 1);
        view.levelBox()->setCurrentIndex(0);
        QCOMPARE(view.list()->model()->rowCount(), 2);
        QVERIFY(view.text().contains(QStringLiteral("ALICE")));
        QVERIFY(!view.text().contains(QStringLiteral("a detail")));
        view.list()->selectionModel()->select(view.list()->model()->index(1, 0),
                                              QItemSelectionModel::Select);
        QVERIFY(!view.text().contains(QStringLiteral("ALICE")));
    }

    void theViewFollowsUnlessTheReaderScrolled() {
        LogView view;
        view.resize(500, 160);
        view.show();
        QVERIFY(QTest::qWaitForWindowExposed(&view));
        spdlog::logger logger("t", view.sink());
        const auto lines = [&](int count) {
            for (int i = 0; i < count; ++i) logger.info("line {}", i);
            view.model()->drain();
            QCoreApplication::processEvents();
        };
        lines(100);
        QVERIFY(view.follows());
        lines(50);
        QVERIFY(view.follows());
        view.list()->verticalScrollBar()->setValue(10);
        lines(50);
        QCOMPARE(view.list()->verticalScrollBar()->value(), 10);
        view.list()->scrollToBottom();
        lines(10);
        QVERIFY(view.follows());
    }

    // ---- plot ----------------------------------------------------------------------------
    void ratesAreCountsOverTime() {
        Rate rate;
        QCOMPARE(rate.rate(), 0.0);
        for (int i = 0; i <= 20; ++i) rate.add(i * 0.1, static_cast<uint64_t>(i) * 60);
        QVERIFY(qAbs(rate.rate() - 600) < 1);
        for (int i = 21; i <= 40; ++i) rate.add(i * 0.1, 1200);
        QCOMPARE(rate.rate(), 0.0);
        rate.add(4.1, 5);  // another engine's counter
        QCOMPARE(rate.rate(), 0.0);
        rate.add(4.2, 65);
        QVERIFY(qAbs(rate.rate() - 600) < 1);
        rate.add(4.2, 70);  // no time has passed: no rate out of nothing
        QCOMPARE(rate.rate(), 0.0);
    }

    void thePlotKeepsTwoMinutes() {
        StripPlot plot;
        plot.resize(600, 140);
        plot.show();
        for (int i = 0; i < 3000; ++i)
            plot.addSample(i / 10.0, static_cast<uint64_t>(i) * 250, static_cast<uint64_t>(i) * 5);
        QVERIFY(qAbs(plot.readingRate() - 2500) < 5);
        QVERIFY(qAbs(plot.answeringRate() - 50) < 1);
        QVERIFY(plot.points() <= static_cast<int>(StripPlot::kSeconds * 10) + 2);
        QVERIFY(plot.accessibleDescription().contains(QStringLiteral("2,500")));
    }

    void thePlotReadsTheCountersWhileItIsSeen() {
        StripPlot plot;
        Telemetry telemetry;
        plot.resize(600, 140);
        plot.setEngine(&telemetry);
        QTest::qWait(250);
        QCOMPARE(plot.points(), 0);  // hidden
        plot.show();
        telemetry.counters.tokens_read = 10;
        QTRY_VERIFY(plot.points() >= 2);
        telemetry.counters.tokens_read = 500;
        QTRY_VERIFY(plot.readingRate() > 0);
        plot.clearEngine();
        const int points = plot.points();
        QTest::qWait(250);
        QCOMPARE(plot.points(), points);
    }

    void thePlotFollowsThePalette() {
        StripPlot plot;
        plot.resize(600, 140);
        plot.setPalette(Theme::palette(true));
        plot.addSample(0, 0, 0);
        plot.addSample(1, 0, 0);
        plot.show();
        QVERIFY(QTest::qWaitForWindowExposed(&plot));
        QTest::qWait(50);
        const auto corner = [&] { return plot.grab().toImage().pixelColor(300, 70).lightness(); };
        QVERIFY(corner() < 80);
        plot.setPalette(Theme::palette(false));
        QTest::qWait(50);
        QVERIFY(corner() > 170);
    }
};

QTEST_MAIN(LogPlotTest)
#include "log_plot_test.moc"
