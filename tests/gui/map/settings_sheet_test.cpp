// SPDX-License-Identifier: GPL-3.0-or-later
#include <QAbstractButton>
#include <QAction>
#include <QCheckBox>
#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QLocale>
#include <QRadioButton>
#include <QScreen>
#include <QScrollArea>
#include <QScrollBar>
#include <QTest>

#include "gui/settings/settings_sheet.h"
#include "tests/gui/map/settings_fixture.h"

using namespace granary;
using namespace granary::gui;
using namespace granary::gui::test;

class SettingsSheetTest : public QObject {
    Q_OBJECT
  private Q_SLOTS:
    void initTestCase() { QLocale::setDefault(QLocale(QLocale::English)); }

    void aModelThatLoadsShowsWhatItIsLoadedWith() {
        SettingsDraft draft;
        SettingsPanel panel(draft);
        SettingsSheet sheet(draft, panel.applyAction(), panel.undoAction());
        Settings settings;
        settings.device = "host";
        settings.vram_budget = 40 * kMiB;
        draft.expect(settings);
        QCOMPARE(draft.state(), SettingsDraft::State::Empty);
        QVERIFY(panel.line().contains(QStringLiteral("is loading")));
        auto* device = sheet.findChild<QComboBox*>(QStringLiteral("device"));
        QCOMPARE(device->currentData().toString(), QStringLiteral("host"));
        QVERIFY(!device->isEnabled());
        QVERIFY(sheet.findChild<QRadioButton*>(QStringLiteral("faceCard"))->isChecked());
        QCOMPARE(sheet.findChild<QLineEdit*>(QStringLiteral("vram-budget"))->text(),
                 QStringLiteral("40MiB"));
        draft.clear();
        QVERIFY(panel.line().contains(QStringLiteral("No model")));
    }

    // "auto" is decided when a model is loaded: until then only what is known is said.
    void theSheetSaysOfAutomaticWhatIsKnown() {
        SettingsDraft draft;
        SettingsPanel panel(draft);
        SettingsSheet sheet(draft, panel.applyAction(), panel.undoAction());
        auto* device = sheet.findChild<QComboBox*>(QStringLiteral("device"));
        auto* face = sheet.findChild<QRadioButton*>(QStringLiteral("faceCpu"));
        draft.expect({});
        sheet.setDevices(std::nullopt, {});
        QVERIFY(device->currentText().contains(QStringLiteral("looked for")));
        QVERIFY(!device->currentText().contains(QStringLiteral("CPU")));
        QVERIFY(face->isHidden());
        const gpu::FoundDevice cpu{"host", "AMD EPYC, 2 threads", uint64_t{8} << 30, {}};
        sheet.setDevices(std::nullopt, {{"cuda:0", "NVIDIA H200", uint64_t{140} << 30, {}}, cpu});
        QCOMPARE(device->currentText(),
                 QStringLiteral("Automatic: NVIDIA H200, where it has room"));
        QVERIFY(face->isHidden());
        sheet.setDevices(std::nullopt, {cpu});
        QVERIFY(device->currentText().startsWith(QStringLiteral("Automatic: the CPU")));
    }

    void theSheetScrollsOnALowScreen() {
        Fixture f;
        SettingsSheet sheet(f.draft, f.panel.applyAction(), f.panel.undoAction());
        QVERIFY2(sheet.minimumSizeHint().height() < 320,
                 qPrintable(QString::number(sheet.minimumSizeHint().height())));
        sheet.show();
        QVERIFY(sheet.height() <= sheet.screen()->availableSize().height());
        // Where the screen has room nothing scrolls.
        const auto* scroll = sheet.findChild<QScrollArea*>();
        if (sheet.screen()->availableSize().height() >= 800)
            QTRY_COMPARE(scroll->verticalScrollBar()->maximum(), 0);
        sheet.resize(560, 400);
        // The buttons stay in sight; a field that takes the focus comes into it.
        auto* apply = sheet.findChild<QAbstractButton*>(QStringLiteral("sheetClose"));
        QVERIFY(sheet.rect().contains(apply->geometry()));
        auto* last = sheet.findChild<QLineEdit*>(QStringLiteral("cpu-share"));
        QTRY_VERIFY(last->visibleRegion().isEmpty());
        sheet.activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(&sheet));
        auto* before = sheet.findChild<QCheckBox*>(QStringLiteral("deterministic"));
        before->setFocus();
        QTest::keyClick(before, Qt::Key_Tab);
        QVERIFY(last->hasFocus());
        QTRY_VERIFY(!last->visibleRegion().isEmpty());
    }

    void theSheetEditsTheSameDraft() {
        Fixture f;
        SettingsSheet sheet(f.draft, f.panel.applyAction(), f.panel.undoAction());
        for (const char* name : {"vram-budget", "vram-reserve", "cache-floor", "threads"}) {
            auto* edit = sheet.findChild<QLineEdit*>(QString::fromLatin1(name));
            QVERIFY(edit != nullptr);
            QVERIFY(edit->toolTip().contains(QString::fromLatin1(name)));
            QVERIFY(!edit->accessibleName().isEmpty());
        }
        QVERIFY(sheet.findChild<QWidget*>(QStringLiteral("device")) != nullptr);
        auto* floor = sheet.findChild<QLineEdit*>(QStringLiteral("cache-floor"));
        floor->selectAll();
        QTest::keyClicks(floor, QStringLiteral("12%"));
        QCOMPARE(f.draft.edited().cache_floor.kind, CacheFloor::Kind::percent);
        QCOMPARE(f.draft.edited().cache_floor.percent, 12.0);
        QVERIFY(f.panel.applyAction()->isEnabled());
        // What cannot be read is said at its field, and nothing is applied meanwhile.
        floor->selectAll();
        QTest::keyClicks(floor, QStringLiteral("12 apples"));
        QVERIFY(!f.draft.fieldError(QStringLiteral("cache-floor")).isEmpty());
        QVERIFY(!f.panel.applyAction()->isEnabled());
        f.panel.undoAction()->trigger();
        QCOMPARE(f.draft.edited().cache_floor, CacheFloor());
        QVERIFY(f.draft.fieldError(QStringLiteral("cache-floor")).isEmpty());
        QCOMPARE(floor->text(), QStringLiteral("auto"));
    }

    void theKvFormatIsChosenFromAList() {
        Fixture f;
        SettingsSheet sheet(f.draft, f.panel.applyAction(), f.panel.undoAction());
        auto* kv = sheet.findChild<QComboBox*>(QStringLiteral("kv"));
        QVERIFY(kv != nullptr);
        QVERIFY(kv->toolTip().contains(QStringLiteral("Setting: kv")));
        QCOMPARE(kv->currentText(), QStringLiteral("auto: f16"));
        // Each entry of the list is a value that the setting takes.
        for (int i = 0; i < kv->count(); ++i)
            QVERIFY(f.draft.set(QStringLiteral("kv"), kv->itemData(i).toString()));
        QCOMPARE(kv->currentData().toString(), QStringLiteral("q4"));
        QTest::keyClick(kv, Qt::Key_Up);
        QCOMPARE(f.draft.edited().kv, gpu::KvFormat::k8v4);
        QVERIFY(f.panel.line().contains(QStringLiteral("K/V 4 MiB in f16 \u2192 k8v4")));
        f.panel.undoAction()->trigger();
        QCOMPARE(kv->currentData().toString(), QStringLiteral("auto"));
    }

    void theFaceIsABudgetOrNone() {
        Fixture f;
        SettingsSheet sheet(f.draft, f.panel.applyAction(), f.panel.undoAction());
        auto* cpu = sheet.findChild<QRadioButton*>(QStringLiteral("faceCpu"));
        auto* card = sheet.findChild<QRadioButton*>(QStringLiteral("faceCard"));
        QVERIFY(card->isChecked());
        cpu->click();
        QCOMPARE(f.draft.edited().vram_budget, uint64_t{0});
        QVERIFY(!sheet.findChild<QLineEdit*>(QStringLiteral("cache-floor"))->isEnabled());
        card->click();
        QCOMPARE(f.draft.edited().vram_budget, 40 * kMiB);  // the one from before
    }

    void devicesAreChosenFromAListThatSaysWhyNot() {
        Fixture f;
        SettingsSheet sheet(f.draft, f.panel.applyAction(), f.panel.undoAction());
        gpu::DeviceInfo used;
        used.id = "host";
        sheet.setDevices(used, {{"cuda:0", "NVIDIA H200", uint64_t{140} << 30, {}},
                                {{}, "NVIDIA GeForce RTX 2060", 0, "driver 535 is too old"},
                                {"host", "AMD EPYC, 2 threads", uint64_t{8} << 30, {}}});
        auto* device = sheet.findChild<QComboBox*>(QStringLiteral("device"));
        QCOMPARE(device->count(), 4);
        QCOMPARE(device->currentData().toString(), QStringLiteral("auto"));
        QCOMPARE(device->itemText(1), QStringLiteral("NVIDIA H200, 140 GiB"));
        QVERIFY(device->itemText(2).contains(QStringLiteral("cannot be used")));
        QVERIFY(!device->model()->flags(device->model()->index(2, 0)).testFlag(Qt::ItemIsEnabled));
        bool reason = false;
        for (const QLabel* label : sheet.findChildren<QLabel*>())
            reason |= label->text().contains(QStringLiteral("driver 535 is too old"));
        QVERIFY(reason);
        // On another card all of it; what fits there nobody knows yet, and it may be applied.
        QTest::keyClick(device, Qt::Key_Down);
        QCOMPARE(f.draft.edited().device, std::string("cuda:0"));
        QCOMPARE(f.draft.edited().vram_budget, uint64_t{0});
        QCOMPARE(f.draft.state(), SettingsDraft::State::Edited);
        QVERIFY(f.panel.line().contains(QStringLiteral("shows once this is applied")));
        QVERIFY(sheet.findChild<QRadioButton*>(QStringLiteral("faceCard"))->isHidden());
        QVERIFY(sheet.findChild<QLineEdit*>(QStringLiteral("vram-budget"))->isEnabled());
        f.panel.undoAction()->trigger();
        QCOMPARE(device->currentData().toString(), QStringLiteral("auto"));
        QVERIFY(!sheet.findChild<QRadioButton*>(QStringLiteral("faceCard"))->isHidden());
    }

    void howAnswersAreMadeIsSetInTheSheet() {
        Fixture f;
        SettingsSheet sheet(f.draft, f.panel.applyAction(), f.panel.undoAction());
        auto* same = sheet.findChild<QCheckBox*>(QStringLiteral("deterministic"));
        QVERIFY(same->isChecked());
        same->click();
        QVERIFY(!f.draft.edited().deterministic);
        auto* share = sheet.findChild<QLineEdit*>(QStringLiteral("cpu-share"));
        Q_EMIT share->textEdited(QStringLiteral("40%"));
        QCOMPARE(f.draft.edited().cpu_share, std::optional<uint32_t>(40));
        auto* rope = sheet.findChild<QComboBox*>(QStringLiteral("rope-scaling"));
        auto* factor = sheet.findChild<QLineEdit*>(QStringLiteral("rope-factor"));
        QVERIFY(!factor->isEnabled());
        for (int i = 0; i < rope->count(); ++i)
            QVERIFY(f.draft.set(QStringLiteral("rope-scaling"), rope->itemData(i).toString()));
        QVERIFY(factor->isEnabled());
        f.draft.set(QStringLiteral("rope-scaling"), QStringLiteral("yarn"));
        QCOMPARE(rope->currentData().toString(), QStringLiteral("yarn"));
    }
};

QTEST_MAIN(SettingsSheetTest)
#include "settings_sheet_test.moc"
