// SPDX-License-Identifier: GPL-3.0-or-later
// The real window with the real engine and the starter model, as a person uses it.
#include <QAbstractButton>
#include <QAbstractItemView>
#include <QAction>
#include <QDockWidget>
#include <QJsonArray>
#include <QJsonObject>
#include <QPlainTextEdit>
#include <QTemporaryDir>
#include <QtTest>

#include "gui/app/main_window.h"
#include "gui/chat/chat_types.h"
#include "gui/engine/engine_controller.h"
#include "gui/engine/engine_worker.h"
#include "gui/library/chat_store.h"
#include "gui/theme/theme.h"
#include "gui/widgets/message_bar.h"

using namespace granary;
using namespace granary::gui;

namespace {

QString resource(const char* name) {
    return QStringLiteral(GRANARY_RESOURCES) + QLatin1Char('/') + QLatin1String(name);
}

QString writeFile(const QTemporaryDir& folder, const char* name, const QByteArray& bytes) {
    QFile file(folder.filePath(QLatin1String(name)));
    if (file.open(QIODevice::WriteOnly)) file.write(bytes);
    return file.fileName();
}

// A window with a profile of its own.
struct Session {
    explicit Session(const QString& folder, Options options = {})
        : profile(folder), theme(*qApp), window(prepared(std::move(options)), profile, theme) {
        window.show();
        window.begin();
    }
    static Options prepared(Options options) {
        if (!options.size.isValid()) options.size = {1366, 768};
        return options;
    }
    State state() const { return window.scriptState(); }
    bool idle() {
        return QTest::qWaitFor([&] { return settled(); }, 60000);
    }
    bool settled() const { return state() == State::idle && !window.scriptPending(); }
    void openStarter() { window.openModel(resource("starter/starter-q4_k_m.gguf")); }
    bool act(const char* name) {
        auto* action = window.findChild<QAction*>(QLatin1String(name));
        if (!QTest::qWaitFor([&] { return action && action->isEnabled(); }, 5000)) return false;
        action->trigger();
        return true;
    }
    bool ask(const char* text) {
        auto* input = window.findChild<QPlainTextEdit*>(QStringLiteral("input"));
        input->setPlainText(QLatin1String(text));
        return act("send");
    }
    bool click(const char* name) {
        auto* button = window.findChild<QAbstractButton*>(QLatin1String(name));
        if (!button || !button->isVisible()) return false;
        button->click();
        return true;
    }
    QJsonObject report() const { return window.scriptReport(); }
    QString message() const { return report()[QStringLiteral("message")].toString(); }
    QJsonArray transcript() const { return report()[QStringLiteral("transcript")].toArray(); }
    QString lastText() const {
        return transcript().last().toObject()[QStringLiteral("text")].toString();
    }

    Profile profile;
    Theme theme;
    MainWindow window;
};

}  // namespace

class WindowTest : public QObject {
    Q_OBJECT

  private Q_SLOTS:
    void init() { m_folder = std::make_unique<QTemporaryDir>(); }

    void answersTheThreeQuestions() {
        Options options;
        options.model = resource("starter/starter-q4_k_m.gguf");
        const auto welcome = loadWelcome();
        QVERIFY(welcome);
        QCOMPARE(welcome->questions.size(), 3);
        options.document = welcome->documentPath;
        options.firstQuestion = true;
        Session session(m_folder->path(), options);
        QVERIFY(QTest::qWaitFor(
            [&] { return session.settled() && session.transcript().size() == 2; }, 60000));
        QVERIFY2(session.lastText().contains(welcome->questions[0].fact),
                 qPrintable(session.lastText()));
        auto* first = session.window.findChild<QWidget*>(QStringLiteral("question1"));
        QVERIFY(first && !first->isVisible());  // it was asked
        for (int i = 1; i < 3; ++i) {
            QVERIFY(session.click(i == 1 ? "question2" : "question3"));
            QVERIFY(session.idle());
            QVERIFY2(session.lastText().contains(welcome->questions[i].fact),
                     qPrintable(session.lastText()));
            const QString kept =
                session.transcript().last().toObject()[QStringLiteral("kept")].toString();
            QVERIFY2(kept.startsWith(QLatin1String("kept 1,")), qPrintable(kept));
        }
        const QJsonObject report = session.report();
        QCOMPARE(report[QStringLiteral("driver_allocations_after_load")].toInt(), 0);
        // The map and the engine tell the same.
        QTRY_COMPARE(
            session.report()[QStringLiteral("granules")].toObject()[QStringLiteral("kv")].toInt() *
                65536,
            report[QStringLiteral("bytes")].toObject()[QStringLiteral("kv")].toInt());
        int sum = 0;
        for (const QJsonValue bytes : report[QStringLiteral("bytes")].toObject()) {
            sum += bytes.toInt();
        }
        QCOMPARE(sum, 40 << 20);
    }

    void stopsContinuesAndAsksAgain() {
        Session session(m_folder->path());
        session.openStarter();
        QVERIFY(session.idle());
        QVERIFY(session.ask("Tell me a long story about a cat."));
        QTRY_COMPARE_WITH_TIMEOUT(session.state(), State::answering, 20000);
        QVERIFY(session.act("stop"));
        QVERIFY(session.idle());
        const QJsonObject stopped = session.transcript().last().toObject();
        QCOMPARE(stopped[QStringLiteral("ending")].toString(), QStringLiteral("stopped"));
        const QString begun = session.lastText();
        QVERIFY(session.act("continue"));
        QVERIFY(session.idle());
        QVERIFY(session.lastText().startsWith(begun));
        QVERIFY(session.lastText().size() > begun.size());
        QVERIFY(session.act("regenerateAnswer"));
        QVERIFY(session.idle());
        QCOMPARE(session.transcript().size(), 2);
        const QString whole = session.lastText();
        QVERIFY(session.act("regenerateAnswer"));
        QVERIFY(session.idle());
        QCOMPARE(session.lastText(), whole);  // greedy
        QVERIFY(session.act("editLast"));
        QVERIFY(session.ask("Hello!"));
        QVERIFY(session.idle());
        QCOMPARE(session.transcript().size(), 2);
        QCOMPARE(session.transcript()[0].toObject()[QStringLiteral("text")].toString(),
                 QStringLiteral("Hello!"));
    }

    // The keyboard acts on the next thing to do, from the start on.
    void theFocusIsWhereThingsGoOn() {
        Session session(m_folder->path());
        auto* first = qobject_cast<QAbstractButton*>(session.window.focusWidget());
        QVERIFY(first);
        QTest::keyClick(first, Qt::Key_Return);
        QVERIFY(QTest::qWaitFor([&] { return session.settled(); }, 60000));
        QCOMPARE(session.window.focusWidget()->objectName(), QStringLiteral("input"));
    }

    void refusesAndKeepsTheDraft() {
        Session session(m_folder->path());
        session.openStarter();
        QVERIFY(session.idle());
        QVERIFY(session.ask("   "));
        QTRY_COMPARE(session.state(), State::refused);
        QVERIFY(!session.message().isEmpty());
        auto* input = session.window.findChild<QPlainTextEdit*>(QStringLiteral("input"));
        const QByteArray longText = QByteArray("many words ").repeated(3000);
        input->setPlainText(QString::fromLatin1(longText));
        QTRY_COMPARE(session.state(), State::idle);  // an edit answers a refusal
        QVERIFY(session.act("send"));
        QTRY_COMPARE(session.state(), State::refused);
        QVERIFY2(session.message().contains(QLatin1String("4096")), qPrintable(session.message()));
        QVERIFY(session.click("changeContext"));
        QCOMPARE(session.window.focusWidget()->objectName(), QStringLiteral("max-context-number"));
        QCOMPARE(session.state(), State::refused);
        QCOMPARE(input->toPlainText().size(), longText.size());
        QCOMPARE(session.transcript().size(), 0);
        input->setPlainText(QStringLiteral("Hello!"));
        QTRY_COMPARE(session.state(), State::idle);
        QVERIFY(session.act("send"));
        QVERIFY(session.idle());
        QCOMPARE(session.transcript().size(), 2);
    }

    void queuesWhatIsSentWhileLoading() {
        Session session(m_folder->path());
        // A free machine loads the starter between two looks at the state: its signal is caught.
        EngineController* engine = &session.window.engine();
        bool asked = false;
        connect(engine, &EngineController::stateChanged, this, [&](State state) {
            if (state == State::loading) {
                asked = session.ask("Hello!") && session.state() == State::loading;
            }
        });
        session.openStarter();
        QTRY_VERIFY(asked);
        QVERIFY(session.idle());
        QCOMPARE(session.transcript().size(), 2);
    }

    void asksAboutALongDocument() {
        Session session(m_folder->path());
        session.openStarter();
        QVERIFY(session.idle());
        const QString path = writeFile(*m_folder, "long.txt",
                                       QByteArray("The cat sat on the mat.\n").repeated(1200));
        session.window.dropFiles({path});
        QTRY_VERIFY(session.message().contains(QLatin1String("this model was trained for 4,096")));
        QVERIFY(session.window.findChild<QWidget*>(QStringLiteral("choosePart")));
        auto* all = session.window.findChild<QAbstractButton*>(QStringLiteral("readAll"));
        QVERIFY(all);
        QVERIFY2(all->text().contains(QLatin1String("the answer will be nonsense")),
                 qPrintable(all->text()));
        QVERIFY(session.click("choosePart"));
        QTRY_VERIFY(session.window.findChild<QWidget*>(QStringLiteral("partDialog")));
        QVERIFY(session.click("usePart"));
        QTRY_VERIFY(session.settled());
        const QJsonObject part = session.report()[QStringLiteral("tray")].toArray()[0].toObject();
        QVERIFY(part[QStringLiteral("tokens")].toInt() > 1000);
        QVERIFY(part[QStringLiteral("tokens")].toInt() <= 3072);
        QVERIFY(part[QStringLiteral("name")].toString().contains(QLatin1Char('%')));
    }

    void readsAllWhenAskedTo() {
        Session session(m_folder->path());
        session.openStarter();
        QVERIFY(session.idle());
        session.window.dropFiles({writeFile(
            *m_folder, "long.txt", QByteArray("The cat sat on the mat.\n").repeated(700))});
        QTRY_VERIFY(session.window.findChild<QAbstractButton*>(QStringLiteral("readAll")));
        QVERIFY(session.click("readAll"));
        QTRY_VERIFY(session.report()[QStringLiteral("settings")]
                        .toObject()[QStringLiteral("max-context")]
                        .toString() != QStringLiteral("auto"));
        QVERIFY(session.ask("Who sat?"));
        QTRY_COMPARE_WITH_TIMEOUT(session.state(), State::reading, 5000);
        QVERIFY(session.act("stop"));
        QVERIFY(session.idle());
    }

    void refusesABinaryAndALostFile() {
        Session session(m_folder->path());
        session.openStarter();
        QVERIFY(session.idle());
        QByteArray binary(5000, '\0');
        for (int i = 0; i < binary.size(); ++i) binary[i] = static_cast<char>(i * 37);
        session.window.dropFiles({writeFile(*m_folder, "binary.txt", binary)});
        QTRY_VERIFY(!session.message().isEmpty());
        QTRY_COMPARE(session.report()[QStringLiteral("tray")].toArray().size(), 0);
        const QString first = session.message();
        session.window.dropFiles({m_folder->filePath(QStringLiteral("gone.txt"))});
        QTRY_VERIFY(session.message() != first);
        QVERIFY(session.message().contains(QLatin1String("gone.txt")));
    }

    void namesWhatIsWrongWithAModel() {
        Session session(m_folder->path());
        session.window.openModel(writeFile(*m_folder, "broken.gguf", "GGUF but no more"));
        QTRY_VERIFY(session.message().contains(QLatin1String("broken.gguf")));
        QTRY_COMPARE(session.state(), State::no_model);
    }

    void keepsChatsOverRuns() {
        {
            Session session(m_folder->path());
            session.openStarter();
            QVERIFY(session.idle());
            QVERIFY(session.ask("Hello!"));
            QVERIFY(session.idle());
        }
        Session session(m_folder->path());
        auto* list = session.window.findChild<QAbstractItemView*>(QStringLiteral("chatList"));
        QTRY_COMPARE(list->model()->rowCount(), 1);
        QCOMPARE(list->model()->index(0, 0).data().toString(), QStringLiteral("Hello!"));
        Q_EMIT list->clicked(list->model()->index(0, 0));
        QTRY_COMPARE(session.transcript().size(), 2);
        QVERIFY(!session.lastText().isEmpty());
        QTest::keyClick(list, Qt::Key_Delete);
        QTRY_COMPARE(list->model()->rowCount(), 0);
        QVERIFY(session.click("undoDelete"));
        QTRY_COMPARE(list->model()->rowCount(), 1);
    }

    // The window goes at once after the engine has said its last word, which nobody has seen yet.
    void closingLosesNoText() {
        QString whole;
        {
            Session session(m_folder->path());
            session.openStarter();
            QVERIFY(session.idle());
            QVERIFY(session.ask("Tell me a story about a cat."));
            QVERIFY(session.idle());
            whole = session.lastText();
            QVERIFY(whole.size() > 20);
        }
        // Not even the answer's row in the store is known when reading has just begun.
        for (const State seen : {State::answering, State::reading}) {
            QTemporaryDir folder;
            {
                Session session(folder.path());
                session.openStarter();
                QVERIFY(session.idle());
                std::atomic<bool> finished{false};
                connect(
                    session.window.engine().worker(), &EngineWorker::finished, this,
                    [&] { finished = true; }, Qt::DirectConnection);
                bool reached = false;
                connect(&session.window, &MainWindow::stateChanged, this, [&](State state) {
                    if (state != seen || reached) return;
                    reached = true;
                    // In here no event of the window's thread is handled.
                    QDeadlineTimer deadline(60000);
                    while (!finished && !deadline.hasExpired()) QThread::msleep(1);
                    QCoreApplication::exit();
                });
                QVERIFY(session.ask("Tell me a story about a cat."));
                if (!reached) QCoreApplication::exec();
                QVERIFY(reached && finished);
            }
            auto store = ChatStore::open(Profile(folder.path()).chatsPath());
            QVERIFY(store);
            const auto chats = (*store)->chats(10);
            QCOMPARE(chats->size(), 1);
            const auto messages = (*store)->messages(chats->first().id);
            QCOMPARE(messages->size(), 2);
            QCOMPARE(messages->last().text, whole);
            QCOMPARE(messages->last().ending, Ending::answered);
        }
    }

    // Who closes the window stops what is said; what was said until then is there.
    void closingStopsAnAnswerAndKeepsIt() {
        {
            Session session(m_folder->path());
            session.openStarter();
            QVERIFY(session.idle());
            QVERIFY(session.ask("Tell me a long story about a cat."));
            QTRY_COMPARE_WITH_TIMEOUT(session.state(), State::answering, 20000);
        }
        auto store = ChatStore::open(Profile(m_folder->path()).chatsPath());
        QVERIFY(store);
        const auto messages = (*store)->messages((*store)->chats(10)->first().id);
        QCOMPARE(messages->size(), 2);
        QVERIFY(!messages->last().text.isEmpty());
        QCOMPARE(messages->last().ending, Ending::stopped);
    }

    void switchesToTheCpuAndBack() {
        Session session(m_folder->path());
        session.openStarter();
        QVERIFY(session.idle());
        QVERIFY(session.window.scriptSet(QStringLiteral("vram-budget"), QStringLiteral("0")));
        QVERIFY(session.act("apply"));
        QTRY_COMPARE(session.report()[QStringLiteral("settings")]
                         .toObject()[QStringLiteral("vram-budget")]
                         .toString(),
                     QStringLiteral("0"));
        QVERIFY(session.ask("Hello!"));
        QVERIFY(session.idle());
        QVERIFY(session.lastText().size() > 0);
        QCOMPARE(
            session.report()[QStringLiteral("bytes")].toObject()[QStringLiteral("experts")].toInt(),
            0);
    }

    void foldsItsPanes() {
        Session session(m_folder->path());
        auto* library = session.window.findChild<QDockWidget*>(QStringLiteral("library"));
        auto* vram = session.window.findChild<QDockWidget*>(QStringLiteral("vramDock"));
        QTRY_VERIFY(library->isVisible() && vram->isVisible());
        QTRY_COMPARE(library->width(), 200);
        QTRY_COMPARE(vram->width(), 440);
        session.window.resize(1000, 700);
        QTRY_VERIFY(!library->isVisible() && vram->isVisible());
        session.window.resize(850, 700);
        QTRY_VERIFY(!library->isVisible() && !vram->isVisible());
        session.window.resize(1366, 768);
        QTRY_VERIFY(library->isVisible() && vram->isVisible());
        QCOMPARE(session.window.minimumSize(), QSize(800, 560));
    }

  private:
    std::unique_ptr<QTemporaryDir> m_folder;
};

QTEST_MAIN(WindowTest)
#include "window_test.moc"
