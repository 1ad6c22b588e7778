// SPDX-License-Identifier: GPL-3.0-or-later
#include <QAction>
#include <QLabel>
#include <QLocale>
#include <QSignalSpy>
#include <QTest>

#include "gui/settings/count_control.h"
#include "gui/settings/count_slider.h"
#include "gui/settings/count_spin.h"
#include "gui/settings/plan_text.h"
#include "gui/settings/settings_draft.h"
#include "gui/settings/settings_panel.h"
#include "tests/gui/map/settings_fixture.h"

using namespace granary;
using namespace granary::gui;
using namespace granary::gui::test;

class SettingsPanelTest : public QObject {
    Q_OBJECT
  private Q_SLOTS:
    void initTestCase() { QLocale::setDefault(QLocale(QLocale::English)); }

    // ---- scale ---------------------------------------------------------------------------
    void everyStopRoundTrips() {
        for (const CountScale& scale :
             {CountScale::longestContext(4096), CountScale::longestContext(40960),
              CountScale::longestContext(0), CountScale::readingStep(),
              CountScale::streamAllExperts()}) {
            for (int stop = 0; stop < scale.stops(); ++stop) {
                const int position = stop * CountScale::kPerStop;
                const AutoCount value = scale.value(position);
                QCOMPARE(scale.position(value), position);
                QVERIFY(scale.contains(value));
                if (stop > 0) QVERIFY(scale.value(position - CountScale::kPerStop) != value);
            }
        }
    }

    void stopsArePowersOfTwoAndTheTrainedLength() {
        const CountScale scale = CountScale::longestContext(40960);
        QCOMPARE(scale.least(), 512u);
        QCOMPARE(scale.most(), 1u << 20);
        bool trained = false;
        for (int stop = 0; stop < scale.stops(); ++stop) {
            const uint32_t n = scale.value(stop * CountScale::kPerStop).number;
            trained |= n == 40960;
            QVERIFY(n == 40960 || (n & (n - 1)) == 0);
        }
        QVERIFY(trained);
        QCOMPARE(CountScale::longestContext(2000000).most(), 2000000u);
        QCOMPARE(CountScale::readingStep().value(0), kAuto);
        QCOMPARE(CountScale::readingStep().value(CountScale::kPerStop), number(64));
        const CountScale stream = CountScale::streamAllExperts();
        QCOMPARE(stream.value(CountScale::kPerStop), number(1));
        QCOMPARE(stream.value(stream.maximum()), kNever);
        QCOMPARE(stream.value(stream.maximum() - CountScale::kPerStop), number(16384));
    }

    void positionsRiseWithValues() {
        const CountScale scale = CountScale::longestContext(4096);
        int last = -1;
        for (uint32_t n = 512; n <= 1u << 20; n += n / 7) {
            const int position = scale.position(number(n));
            QVERIFY(position >= last);
            last = position;
        }
        QCOMPARE(scale.neighbour(number(5000), 1), number(8192));
        QCOMPARE(scale.neighbour(number(5000), -1), number(4096));
        QCOMPARE(scale.neighbour(number(512), -1), number(512));
        QCOMPARE(scale.neighbour(number(1u << 20), 3), number(1u << 20));
    }

    void whatAPersonTypesIsRead_data() {
        QTest::addColumn<QString>("text");
        QTest::addColumn<int>("kind");
        QTest::addColumn<uint>("value");
        const auto row = [](const char* text, AutoCount::Kind kind, uint32_t value) {
            QTest::newRow(text) << QString::fromLatin1(text) << static_cast<int>(kind) << value;
        };
        row("4096", AutoCount::Kind::number, 4096);
        row("4,096", AutoCount::Kind::number, 4096);
        row(" 12 000 ", AutoCount::Kind::number, 12000);
        row("16k", AutoCount::Kind::number, 16384);
        row("Auto", AutoCount::Kind::automatic, 0);
        row("never", AutoCount::Kind::never, 0);
        for (const char* text : {"", "k", "abc", "-5", "99999999999", "4096x", "5000000k"})
            QTest::newRow(text) << QString::fromLatin1(text) << -1 << 0u;
    }
    void whatAPersonTypesIsRead() {
        QFETCH(QString, text);
        QFETCH(int, kind);
        QFETCH(uint, value);
        const std::optional<AutoCount> read = CountScale::streamAllExperts().parse(text);
        if (kind < 0) {
            QVERIFY(!read);
        } else {
            QVERIFY(read);
            QCOMPARE(static_cast<int>(read->kind), kind);
            if (read->kind == AutoCount::Kind::number) QCOMPARE(read->number, value);
        }
        QVERIFY(!CountScale::longestContext(4096).parse(QStringLiteral("auto")));
    }

    // ---- controls ------------------------------------------------------------------------
    void controlsAreNamedByTheirSetting() {
        Fixture f;
        for (const char* name : {"max-context", "prefill", "prefill-stream-min"}) {
            auto* control = f.panel.findChild<CountControl*>(QString::fromLatin1(name));
            QVERIFY(control != nullptr);
            QVERIFY(control->toolTip().contains(QString::fromLatin1(name)));
            QVERIFY(!control->slider()->accessibleName().isEmpty());
            QVERIFY(!control->number()->accessibleName().isEmpty());
        }
        QCOMPARE(f.panel.applyAction()->objectName(), QStringLiteral("apply"));
        QCOMPARE(f.panel.undoAction()->objectName(), QStringLiteral("undo"));
    }

    void slidersAndSettingsRoundTrip() {
        Fixture f;
        CountControl* context = f.panel.longestContext();
        QCOMPARE(context->count(), number(4096));  // 0 shows as what it stands for
        QCOMPARE(f.panel.readingStep()->count(), kAuto);
        QTest::keyClick(context->slider(), Qt::Key_Right);
        QCOMPARE(f.draft.edited().max_context, 8192u);
        QCOMPARE(context->number()->count(), number(8192));
        QTest::keyClick(f.panel.readingStep()->slider(), Qt::Key_Right);
        QCOMPARE(f.draft.edited().prefill, number(64));
        QTest::keyClick(f.panel.streamAllExperts()->slider(), Qt::Key_End);
        QCOMPARE(f.draft.edited().prefill_stream_min, kNever);
        // And from the settings to the sliders.
        Settings settings = cardSettings();
        settings.max_context = 6000;
        settings.prefill = number(333);
        settings.prefill_stream_min = number(7);
        f.draft.edit(settings);
        QCOMPARE(context->slider()->count(), number(6000));
        QCOMPARE(context->number()->count(), number(6000));
        QCOMPARE(f.panel.readingStep()->count(), number(333));
        QCOMPARE(f.panel.streamAllExperts()->slider()->count(), number(7));
        QCOMPARE(f.draft.edited(), settings);  // showing a value does not round it
    }

    void theSpinBoxTakesAnyNumber() {
        Fixture f;
        CountSpin* spin = f.panel.longestContext()->number();
        const auto type = [spin](const char* text) {
            spin->selectAll();
            QTest::keyClicks(spin, QString::fromLatin1(text));
            QTest::keyClick(spin, Qt::Key_Return);
        };
        type("5000");
        QCOMPARE(f.draft.edited().max_context, 5000u);
        type("9k");
        QCOMPARE(f.draft.edited().max_context, 9216u);
        type("3");  // below the least: the least
        QCOMPARE(f.draft.edited().max_context, 512u);
        type("nonsense");
        QCOMPARE(f.draft.edited().max_context, 512u);
        QTest::keyClick(spin, Qt::Key_Up);
        QCOMPARE(f.draft.edited().max_context, 1024u);
    }

    void draggingSnapsToStops() {
        Fixture f;
        CountSlider* slider = f.panel.longestContext()->slider();
        slider->resize(200, 26);
        QTest::mousePress(slider, Qt::LeftButton, {}, {150, 10});
        QTest::mouseMove(slider, {152, 10});
        QTest::mouseRelease(slider, Qt::LeftButton, {}, {152, 10});
        const uint32_t n = f.draft.edited().max_context;
        QVERIFY(n != 4096);
        QCOMPARE(n & (n - 1), 0u);
    }

    void valuesBeyondTheTrainedLengthSaySo() {
        Fixture f;
        auto notes = f.panel.longestContext()->findChildren<QLabel*>();
        const auto said = [&] {
            for (const QLabel* label : notes)
                if (label->text().contains(QStringLiteral("beyond the trained 4,096"))) return true;
            return false;
        };
        QVERIFY(!said());
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        QVERIFY(said());
    }

    // ---- draft ---------------------------------------------------------------------------
    void movingChangesNothingButTheLine() {
        Fixture f;
        const QString before = f.panel.line();
        QVERIFY(before.contains(QStringLiteral("K/V 4 MiB")));
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        QVERIFY(f.panel.line().contains(QStringLiteral("K/V 4 MiB \u2192 8 MiB")));
        QVERIFY(f.panel.line().contains(QStringLiteral("24 MiB \u2192 20 MiB")));
        QCOMPARE(f.draft.running().max_context, 4096u);
        QCOMPARE(f.requests.count(), 0);
        QCOMPARE(f.draft.state(), SettingsDraft::State::Edited);
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Left);
        QCOMPARE(f.draft.state(), SettingsDraft::State::Clean);
        QCOMPARE(f.panel.line(), before);
    }

    void whatDoesNotFitIsRefusedWithNumbers() {
        Fixture f;
        Settings settings = f.draft.edited();
        settings.max_context = 65536;
        f.draft.edit(settings);
        QCOMPARE(f.draft.state(), SettingsDraft::State::Refused);
        QVERIFY(!f.panel.applyAction()->isEnabled());
        QVERIFY(f.panel.line().contains(QStringLiteral("budget 40 MiB")));
        QVERIFY(f.panel.line().contains(QStringLiteral("K/V 64 MiB")));
        f.draft.apply();
        QCOMPARE(f.requests.count(), 0);
        f.panel.undoAction()->trigger();
        QCOMPARE(f.draft.state(), SettingsDraft::State::Clean);
        QCOMPARE(f.panel.longestContext()->count(), number(4096));
    }

    void applyThenUndoGoesBack() {
        Fixture f;
        QVERIFY(!f.panel.applyAction()->isEnabled());
        QVERIFY(!f.panel.undoAction()->isEnabled());
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.panel.applyAction()->trigger();
        QCOMPARE(f.requests.count(), 1);
        QCOMPARE(f.requested(0).max_context, 8192u);
        QCOMPARE(f.draft.state(), SettingsDraft::State::Applying);
        QVERIFY(!f.panel.undoAction()->isEnabled());
        f.draft.applied(true, QStringLiteral("1,430 tokens must be read again"));
        QCOMPARE(f.draft.state(), SettingsDraft::State::Clean);
        QCOMPARE(f.draft.running().max_context, 8192u);
        QVERIFY(f.panel.line().contains(QStringLiteral("1,430 tokens must be read again")));
        // Undo applies the settings before.
        QVERIFY(f.panel.undoAction()->isEnabled());
        f.panel.undoAction()->trigger();
        QCOMPARE(f.requests.count(), 2);
        QCOMPARE(f.requested(1).max_context, 4096u);
        f.draft.applied(true, {});
        QCOMPARE(f.draft.running().max_context, 4096u);
        QCOMPARE(f.panel.longestContext()->count(), number(4096));
        QVERIFY(!f.draft.canUndo());
    }

    void aFailedApplyLeavesTheOldSettingsRunning() {
        Fixture f;
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.panel.applyAction()->trigger();
        f.draft.applied(false, QStringLiteral("12 MiB could not be mapped"));
        QCOMPARE(f.draft.running().max_context, 4096u);
        QCOMPARE(f.draft.edited().max_context, 8192u);  // can be tried again or corrected
        QVERIFY(f.draft.outcomeIsBad());
        QVERIFY(f.panel.line().contains(QStringLiteral("Nothing changed")));
        QVERIFY(f.panel.line().contains(QStringLiteral("12 MiB could not be mapped")));
        QVERIFY(f.panel.applyAction()->isEnabled());
        f.panel.undoAction()->trigger();
        QCOMPARE(f.draft.state(), SettingsDraft::State::Clean);
        QVERIFY(f.draft.outcome().isEmpty());
        QVERIFY(!f.draft.canUndo());
    }

    void applyWaitsWhileARequestRuns() {
        Fixture f;
        f.draft.setBusy(true);
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.panel.applyAction()->trigger();
        QCOMPARE(f.requests.count(), 0);
        QCOMPARE(f.draft.state(), SettingsDraft::State::Waiting);
        QVERIFY(f.panel.line().contains(QStringLiteral("Waits")));
        f.draft.setBusy(false);
        QCOMPARE(f.requests.count(), 1);
        QCOMPARE(f.requested(0).max_context, 8192u);
        f.draft.applied(true, {});

        // Undo, and any further edit, take a waiting Apply back.
        f.draft.setBusy(true);
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.panel.applyAction()->trigger();
        f.panel.undoAction()->trigger();
        QCOMPARE(f.draft.state(), SettingsDraft::State::Clean);
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.panel.applyAction()->trigger();
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Left);
        f.draft.setBusy(false);
        QCOMPARE(f.requests.count(), 1);
    }

    void editsWhileApplyingAreKept() {
        Fixture f;
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.panel.applyAction()->trigger();
        QTest::keyClick(f.panel.longestContext()->slider(), Qt::Key_Right);
        f.draft.applied(true, {});
        QCOMPARE(f.draft.running().max_context, 8192u);
        QCOMPARE(f.draft.edited().max_context, 16384u);
        QCOMPARE(f.draft.state(), SettingsDraft::State::Edited);
    }

    void withoutAModelNothingCanBeSet() {
        SettingsDraft draft;
        SettingsPanel panel(draft);
        QVERIFY(!panel.longestContext()->isEnabled());
        QVERIFY(!panel.applyAction()->isEnabled());
        QVERIFY(!draft.set(QStringLiteral("max-context"), QStringLiteral("512")));
        draft.applied(true, {});  // an answer to a question of a model that is gone
        QCOMPARE(draft.state(), SettingsDraft::State::Empty);
    }

    void onOneMemoryNothingStreams() {
        Fixture f;
        QVERIFY(f.panel.streamAllExperts()->isEnabled());
        f.draft.load(Settings(), [](const Settings& settings) -> Result<Plan> {
            Plan plan;
            plan.settings = settings;
            plan.max_context = 4096;
            plan.chunk = 512;
            return plan;
        });
        QVERIFY(!f.panel.streamAllExperts()->isEnabled());
        QVERIFY(f.panel.longestContext()->isEnabled());
        QVERIFY(!f.panel.line().contains(QStringLiteral("experts")));
    }

    void settingsAreSetByNameAsAScriptDoes() {
        Fixture f;
        QVERIFY(f.draft.set(QStringLiteral("max-context"), QStringLiteral("2048")));
        QCOMPARE(f.panel.longestContext()->count(), number(2048));
        QVERIFY(f.draft.set(QStringLiteral("prefill-stream-min"), QStringLiteral("never")));
        QVERIFY(f.draft.set(QStringLiteral("vram-budget"), QStringLiteral("48MiB")));
        QCOMPARE(f.draft.edited().vram_budget, 48 * kMiB);
        QVERIFY(!f.draft.set(QStringLiteral("no-such-setting"), QStringLiteral("1")));
        QCOMPARE(f.draft.state(), SettingsDraft::State::Refused);
        QVERIFY(!f.draft.refusal().isEmpty());
    }

    // The engine learns how fast its machine is while a person edits: what is edited stays.
    void otherPredictionsLeaveTheEdits() {
        Fixture f;
        f.draft.set(QStringLiteral("prefill"), QStringLiteral("128"));
        QVERIFY(!f.panel.line().contains(QStringLiteral("Predicted")));
        f.draft.setPlanner([](const Settings& settings) {
            Result<Plan> plan = smallPlan(settings);
            if (plan) plan->speeds = {500, 400, 50, 40};
            return plan;
        });
        QCOMPARE(f.draft.edited().prefill, number(128));
        QCOMPARE(f.draft.state(), SettingsDraft::State::Edited);
        QVERIFY(f.panel.line().contains(QStringLiteral("reading 500 tok/s, answering 40 tok/s")));
    }

    void aPlanInWordsIsEscaped() {
        Plan a, b;
        a.card = b.card = true;
        a.budget_bytes = 40 * kMiB;
        b.budget_bytes = 80 * kMiB;
        const QString text = planText(a, b);
        QVERIFY(text.contains(QStringLiteral("budget 40 MiB \u2192 <b>80 MiB</b>")));
        QVERIFY(!text.contains(QStringLiteral("shrinks")));
        QVERIFY(!text.contains(QStringLiteral("Predicted")));
        a.chunk = b.chunk = 4096;
        a.chunk_at_max = 4096;
        b.chunk_at_max = 640;
        a.speeds = {832, 700, 45, 21.4};
        b.speeds = {14321, 9000, 60, 8.26};
        const QString full = planText(a, b);
        QVERIFY2(full.contains(QStringLiteral("shrinks from 4,096 to 640 tokens")),
                 qPrintable(full));
        QVERIFY2(full.contains(QStringLiteral("reading 830 tok/s \u2192 <b>14,000 tok/s</b>")),
                 qPrintable(full));
        QVERIFY2(full.contains(QStringLiteral("answering 21 tok/s \u2192 <b>8.3 tok/s</b>")),
                 qPrintable(full));
    }
};

QTEST_MAIN(SettingsPanelTest)
#include "settings_panel_test.moc"
