// SPDX-License-Identifier: GPL-3.0-or-later
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QtTest>

#include "gui/app/budget_search.h"
#include "gui/app/heartbeat.h"
#include "gui/app/options.h"
#include "gui/app/pane_layout.h"
#include "gui/script/layout_audit.h"
#include "gui/script/script.h"

using namespace granary;
using namespace granary::gui;

namespace {

QString failureOf(const char* text) {
    const auto script = Script::parse(QLatin1String(text), QStringLiteral("x.gs"));
    return script ? QString() : QString::fromStdString(script.error().message());
}

Result<Options> options(const QStringList& arguments) {
    return parseOptions(QStringList{QStringLiteral("granary")} + arguments);
}

bool mentions(const QStringList& faults, const char* what, const char* whom) {
    return std::any_of(faults.begin(), faults.end(), [&](const QString& fault) {
        return fault.contains(QLatin1String(what)) && fault.contains(QLatin1String(whom));
    });
}

// Swallows Tab, as a careless text field does.
class Trap : public QLineEdit {
  protected:
    bool focusNextPrevChild(bool) override { return true; }
};

}  // namespace

class ScriptTest : public QObject {
    Q_OBJECT

  private Q_SLOTS:
    void readsWordsAsAShell() {
        const auto script =
            Script::parse(QStringLiteral("# head\n\n  type input \"a \\\"b\\\" # c\" # tail\n"
                                         "drop 'one file' two\\ files\nwait-state Idle 2.5\nquit"),
                          QStringLiteral("x.gs"));
        QVERIFY(script);
        QCOMPARE(script->steps().size(), 4);
        QCOMPARE(script->steps()[0].line, 3);
        QCOMPARE(script->steps()[0].arguments,
                 (QStringList{QStringLiteral("input"), QStringLiteral("a \"b\" # c")}));
        QCOMPARE(script->steps()[1].arguments,
                 (QStringList{QStringLiteral("one file"), QStringLiteral("two files")}));
    }

    void namesTheLineOfAFault() {
        QVERIFY(failureOf("quit\nfly home").contains(QLatin1String("x.gs:2")));
        QVERIFY(failureOf("type input").contains(QLatin1String("number of words")));
        QVERIFY(failureOf("type input \"open").contains(QLatin1String("quote")));
        QVERIFY(failureOf("wait-state Elsewhere").contains(QLatin1String("Elsewhere")));
        QVERIFY(failureOf("wait-state Idle soon").contains(QLatin1String("soon")));
        QVERIFY(failureOf("quit now").contains(QLatin1String("x.gs:1")));
        QVERIFY(!Script::load(QStringLiteral("/nowhere/x.gs")));
    }

    void readsTheCommandLine() {
        const auto all = options({QStringLiteral("m.gguf"), QStringLiteral("--document"),
                                  QStringLiteral("d.txt"), QStringLiteral("--first-question"),
                                  QStringLiteral("--vram-budget"), QStringLiteral("64MiB"),
                                  QStringLiteral("--size"), QStringLiteral("1366x768")});
        QVERIFY(all);
        QCOMPARE(all->model, QStringLiteral("m.gguf"));
        QVERIFY(all->firstQuestion);
        QCOMPARE(all->settings.vram_budget, uint64_t{64} << 20);
        QCOMPARE(all->given, QStringList{QStringLiteral("vram-budget")});
        QCOMPARE(all->size, QSize(1366, 768));
        QVERIFY(
            options({QStringLiteral("--help")})->helpText.contains(QLatin1String("wait-state")));
        QVERIFY(!options({QStringLiteral("--script"), QStringLiteral("x")}));
        QVERIFY(!options({QStringLiteral("--size"), QStringLiteral("big")}));
        QVERIFY(!options({QStringLiteral("--prefill"), QStringLiteral("7x")}));
        QVERIFY(!options({QStringLiteral("--theme"), QStringLiteral("pink")}));
        QVERIFY(!options({QStringLiteral("--unknown")}));
        QVERIFY(!options({QStringLiteral("a"), QStringLiteral("b")}));
    }

    void panesBeginAsDesigned() {
        const auto check = [](QSize window, int library, int vram, int bottom) {
            const PaneSizes sizes = firstSizes(window);
            QCOMPARE(sizes.library, library);
            QCOMPARE(sizes.vram, vram);
            QCOMPARE(sizes.bottom, bottom);
        };
        check({1366, 768}, 200, 440, 0);
        check({1920, 1080}, 240, 600, 180);
        check({3840, 2160}, 320, 1300, 420);
        check({5120, 2880}, 320, 1300, 420);
        QVERIFY(firstSizes({800, 560}).vram <= 300);
    }

    void findsTheSmallestBudget() {
        ModelFacts model;
        model.name = "m";
        model.family = "qwen3moe";
        model.layers = 4;
        model.trained_context = 4096;
        model.vocab = 1000;
        model.hidden = 256;
        model.experts = 8;
        model.experts_used = 2;
        model.expert_ffn = 128;
        model.attention = {4, 2, 64, nullptr};
        model.fixed_bytes = 4 << 20;
        model.expert_bytes.assign(4, 256 << 10);
        model.row_bytes = 4 * (256 << 10);
        model.kv_bytes_per_token = 4 * 2 * 2 * 64 * 2;
        DeviceFacts device;
        device.face = gpu::Face::card;
        device.granule_bytes = 64 << 10;
        device.free_bytes = uint64_t{8} << 30;
        const Planner planner(model, device);
        Settings settings;
        settings.vram_budget = 20 << 20;
        const auto now = planner.plan(settings);
        QVERIFY2(now, now ? "" : now.error().message().c_str());
        const auto plan = settingsForContext(planner, settings, 40000);
        QVERIFY2(plan, plan ? "" : plan.error().message().c_str());
        QVERIFY(plan->max_context >= 40000 + 1024);
        QVERIFY(plan->settings.vram_budget > settings.vram_budget);
        // It has room for the reading step that ran; one granule less has not.
        Settings probe = plan->settings;
        probe.prefill = {AutoCount::Kind::number, now->chunk};
        QVERIFY(planner.plan(probe));
        probe.vram_budget -= device.granule_bytes;
        QVERIFY(!planner.plan(probe));
    }

    void heartbeatSeesAPause() {
        QVERIFY(msSinceProcessStart() > 0);
        QVERIFY(msSinceProcessStart() < 600000);
        Heartbeat heartbeat;
        heartbeat.start();
        QTest::qWait(60);
        QThread::msleep(80);
        QTest::qWait(40);
        QVERIFY(heartbeat.maxMs() >= 75);
        QVERIFY(heartbeat.p999Ms() <= heartbeat.maxMs());
        heartbeat.pause();
        QThread::msleep(200);
        heartbeat.resume();
        QTest::qWait(40);
        QVERIFY(heartbeat.maxMs() < 195);
    }

    void auditFindsEachFault() {
        QWidget window;
        window.resize(400, 200);
        auto* cut = new QLabel(QStringLiteral("This text is much longer than its label"), &window);
        cut->setObjectName(QStringLiteral("cut"));
        cut->setGeometry(10, 10, 60, 20);
        auto* outside = new QPushButton(QStringLiteral("Go"), &window);
        outside->setObjectName(QStringLiteral("outside"));
        outside->setGeometry(380, 40, 80, 30);
        auto* unnamed = new QLineEdit(&window);
        unnamed->setObjectName(QStringLiteral("unnamed"));
        unnamed->setGeometry(10, 80, 100, 24);
        auto* pale = new QLabel(QStringLiteral("pale text"), &window);
        pale->setObjectName(QStringLiteral("pale"));
        pale->setGeometry(10, 110, 200, 24);
        QPalette colours = pale->palette();
        colours.setColor(QPalette::Window, Qt::white);
        colours.setColor(QPalette::WindowText, QColor(0xbbbbbb));
        pale->setAutoFillBackground(true);
        pale->setPalette(colours);
        auto* trap = new Trap;
        trap->setParent(&window);
        trap->setObjectName(QStringLiteral("trap"));
        trap->setAccessibleName(QStringLiteral("Trap"));
        trap->setGeometry(10, 140, 100, 24);
        auto* pile = new QWidget(&window);
        pile->setGeometry(10, 170, 100, 24);
        auto* row = new QHBoxLayout(pile);
        row->setContentsMargins(0, 0, 0, 0);
        for (const char* name : {"under", "over"}) {
            auto* part = new QWidget;
            part->setObjectName(QLatin1String(name));
            part->setFixedWidth(90);
            row->addWidget(part);
        }
        window.show();
        QVERIFY(QTest::qWaitForWindowExposed(&window));
        pile->setFixedWidth(100);
        pile->findChild<QWidget*>(QStringLiteral("over"))->move(40, 0);
        trap->setFocus();
        const QStringList faults = auditLayout(&window);
        QVERIFY2(mentions(faults, "clipped", "cut"), qPrintable(faults.join(QLatin1Char('\n'))));
        QVERIFY(mentions(faults, "outside", "outside"));
        QVERIFY(mentions(faults, "unnamed", "unnamed"));
        QVERIFY(mentions(faults, "contrast", "pale"));
        QVERIFY(mentions(faults, "trap", "trap"));
        QVERIFY(mentions(faults, "overlap", "over"));
    }

    void auditPassesASoundWindow() {
        QWidget window;
        auto* layout = new QHBoxLayout(&window);
        auto* edit = new QLineEdit;
        edit->setAccessibleName(QStringLiteral("Name"));
        layout->addWidget(new QLabel(QStringLiteral("Name")));
        layout->addWidget(edit);
        layout->addWidget(new QPushButton(QStringLiteral("Go on")));
        window.show();
        QVERIFY(QTest::qWaitForWindowExposed(&window));
        edit->setFocus();
        const QStringList faults = auditLayout(&window);
        QVERIFY2(faults.isEmpty(), qPrintable(faults.join(QLatin1Char('\n'))));
    }
};

QTEST_MAIN(ScriptTest)
#include "script_test.moc"
