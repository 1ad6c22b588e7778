// SPDX-License-Identifier: GPL-3.0-or-later
// One picture and one audit of the window in each state, for one size and one theme.
// screens OUT WIDTHxHEIGHT light|dark; the scale comes from QT_SCALE_FACTOR. Fails on any fault.
#include <QAction>
#include <QApplication>
#include <QDialog>
#include <QDir>
#include <QLabel>
#include <QPlainTextEdit>
#include <QTemporaryDir>
#include <QTest>
#include <cstdio>

#include "gui/app/main_window.h"
#include "gui/engine/engine_worker.h"
#include "gui/script/layout_audit.h"
#include "gui/theme/theme.h"

using namespace granary;
using namespace granary::gui;

namespace {

class Screens {
  public:
    Screens(const QString& out, const Options& options, Profile& profile, Theme& theme)
        : m_out(out), m_window(options, profile, theme) {
        m_window.show();
        m_window.begin();
    }

    bool run() {
        const auto welcome = loadWelcome();
        if (!welcome) return fail("the welcome document is missing");
        QTest::qWait(50);
        capture("NoModel");
        captureSheet("NoModel");
        bool loading = false;
        const auto atState =
            QObject::connect(&m_window, &MainWindow::stateChanged, qApp, [&](State state) {
                if (state != State::loading || std::exchange(loading, true)) return;
                capture("Loading");
                captureSheet("Loading");
            });
        m_window.openModel(starterModelPath());
        if (!wait([&] { return loading; })) return fail("nothing was loaded");
        QObject::disconnect(atState);
        if (!settle()) return false;
        m_window.dropFiles({welcome->documentPath});
        if (!settle()) return false;
        capture("Idle");
        captureSheet("Idle");
        act("chatOptions");
        QTest::qWait(50);
        capture("Idle-options");
        act("chatOptions");

        // Reading and answering are short: each picture is taken at its first sign.
        bool reading = false, answering = false;
        EngineController* engine = &m_window.engine();
        const auto atProgress =
            QObject::connect(engine, &EngineController::readProgress, qApp,
                             [&](quint32 done, quint32 total, double) {
                                 if (done == 0 || done == total || std::exchange(reading, true))
                                     return;
                                 capture("Reading");
                             });
        const auto atText = QObject::connect(engine, &EngineController::text, qApp, [&] {
            if (!std::exchange(answering, true)) capture("Answering");
        });
        ask(QStringLiteral("Where is the key to the blue door?"));
        if (!wait([&] { return answering; })) return fail("there was no answer");
        QObject::disconnect(atProgress);
        QObject::disconnect(atText);
        if (!reading) return fail("reading told no progress");
        if (!settle()) return false;
        QTest::qWait(300);
        capture("Idle-answered");
        act("find");
        QTest::qWait(50);
        capture("Idle-find");

        ask(QStringLiteral("many words ").repeated(3000));
        if (!waitFor(State::refused)) return false;
        QTest::qWait(50);
        capture("Refused");
        input()->setPlainText(QStringLiteral("Hello!"));
        if (!settle()) return false;
        // No honest request fails on a host that works: the worker's own words are used.
        EngineWorker* worker = m_window.engine().worker();
        Q_EMIT worker->failed(
            {ErrorKind::device, "The copy from main memory failed",
             "16 MiB at expert 7 of layer 3, error 719", "Send the question again"},
            false);
        Q_EMIT worker->stateChanged(State::failed);
        QTest::qWait(50);
        capture("Failed");
        return m_faults == 0;
    }

    int faults() const { return m_faults; }

  private:
    template <class Condition>
    bool wait(Condition condition) {
        return QTest::qWaitFor(condition, 60000);
    }
    bool waitFor(State state) {
        return wait([&] { return m_window.scriptState() == state; }) ||
               fail("a state did not come");
    }
    bool settle() {
        return wait([&] {
                   return m_window.scriptState() == State::idle && !m_window.scriptPending();
               }) ||
               fail("the window did not come to rest");
    }
    bool fail(const char* what) {
        std::fprintf(stderr, "%s: %s\n", qPrintable(m_out), what);
        ++m_faults;
        return false;
    }
    QPlainTextEdit* input() { return m_window.findChild<QPlainTextEdit*>(QStringLiteral("input")); }
    void act(const char* name) { m_window.findChild<QAction*>(QLatin1String(name))->trigger(); }
    void ask(const QString& text) {
        input()->setPlainText(text);
        act("send");
    }
    void capture(const char* name) { capture(QLatin1String(name), &m_window); }
    void captureSheet(const char* state) {
        act("settings");
        auto* sheet = m_window.findChild<QDialog*>(QStringLiteral("settingsSheet"));
        capture(QLatin1String(state) + QStringLiteral("-settings"), sheet);
        sheet->close();
    }
    void capture(const QString& name, QWidget* subject) {
        const QString path = m_out + QLatin1Char('/') + name;
        // As a person sees it: after the layouts have followed the last change.
        QCoreApplication::sendPostedEvents(nullptr, QEvent::LayoutRequest);
        subject->grab().save(path + QStringLiteral(".png"));
        for (const QString& fault : auditLayout(subject)) {
            std::fprintf(stderr, "%s: %s\n", qPrintable(path), qPrintable(fault));
            ++m_faults;
        }
    }

    QString m_out;
    MainWindow m_window;
    int m_faults = 0;
};

}  // namespace

int main(int argc, char** argv) {
    QApplication app(argc, argv);
    const QStringList arguments = QApplication::arguments();
    if (arguments.size() != 4) {
        std::fprintf(stderr, "screens OUT WIDTHxHEIGHT light|dark\n");
        return 2;
    }
    QDir().mkpath(arguments[1]);
    Options options;
    options.size = {arguments[2].section(QLatin1Char('x'), 0, 0).toInt(),
                    arguments[2].section(QLatin1Char('x'), 1).toInt()};
    QTemporaryDir folder;
    Profile profile(folder.path());
    Theme theme(app);
    theme.setMode(Theme::modeFromName(arguments[3]));
    Screens screens(arguments[1], options, profile, theme);
    screens.run();
    std::printf("%s: %d fault(s)\n", qPrintable(arguments[1]), screens.faults());
    return screens.faults() == 0 ? 0 : 1;
}
