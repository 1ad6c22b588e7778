// SPDX-License-Identifier: GPL-3.0-or-later
#include <QScrollBar>
#include <QTextDocument>
#include <QToolButton>
#include <QtTest>
#include <algorithm>

#include "gui/chat/code_block.h"
#include "gui/chat/composer.h"
#include "gui/chat/markdown.h"
#include "gui/chat/message_view.h"
#include "gui/chat/request.h"
#include "gui/chat/text_block.h"
#include "gui/chat/transcript.h"

using namespace granary::gui;

namespace {

ChatMessage message(Role role, const QString& text) {
    ChatMessage result;
    result.role = role;
    result.text = text;
    result.ending = role == Role::assistant ? Ending::answered : Ending::none;
    return result;
}

Document document(const char* name, const char* text) {
    Document result;
    result.name = QLatin1String(name);
    result.text = std::make_shared<const QByteArray>(text);
    return result;
}

}  // namespace

class ChatTest : public QObject {
    Q_OBJECT

  private Q_SLOTS:
    void cutsAtFences() {
        const auto parts = splitMarkdown(
            QStringLiteral("Look:\n\n```cpp title\nint a;\n\n```\nand\n~~~\n```\n~~~~\nend"));
        const std::vector<MarkdownPart> wanted{
            {false, {}, QStringLiteral("Look:")},
            {true, QStringLiteral("cpp"), QStringLiteral("int a;\n")},
            {false, {}, QStringLiteral("and")},
            {true, {}, QStringLiteral("```")},
            {false, {}, QStringLiteral("end")}};
        QVERIFY(parts == wanted);
        const auto open = splitMarkdown(QStringLiteral("a\n```py\nb = 1"));
        QCOMPARE(open.size(), size_t{2});
        QCOMPARE(open[1].text, QStringLiteral("b = 1"));
        QVERIFY(splitMarkdown({}).empty());
        QVERIFY(splitMarkdown(QStringLiteral("\n \n")).empty());
    }

    void cutsLongTextAtBlankLines() {
        const QString paragraph = QString(1500, QLatin1Char('a')) + QStringLiteral("\n\n");
        const auto parts = splitMarkdown(paragraph.repeated(6));
        QCOMPARE(parts.size(), size_t{2});
        // What was settled stays the same while more arrives.
        const auto more = splitMarkdown(paragraph.repeated(6) + QStringLiteral("more"));
        QVERIFY(more[0] == parts[0]);
    }

    void showsHtmlAsText() {
        const auto rendered = renderMarkdown(
            QStringLiteral("<b>bold</b> <img src=\"http://example.org/x.png\"> **strong**"),
            QFont(), QPalette());
        const QString plain = rendered->toPlainText();
        QVERIFY(plain.contains(QStringLiteral("<b>bold</b>")));
        QVERIFY(plain.contains(QStringLiteral("<img")));
        QVERIFY(plain.contains(QStringLiteral("strong")));
        QVERIFY(!plain.contains(QStringLiteral("**")));
    }

    void loadsNothing() {
        const auto rendered = renderMarkdown(
            QStringLiteral("![x](file:///etc/hostname) ![y](http://example.org/y.png)"), QFont(),
            QPalette());
        for (const char* url : {"file:///etc/hostname", "http://example.org/y.png"}) {
            QVERIFY(!rendered->resource(QTextDocument::ImageResource, QUrl(QLatin1String(url)))
                         .isValid());
        }
        TextBlock block;
        QVERIFY(!block.loadResource(QTextDocument::ImageResource, QUrl()).isValid());
    }

    void keepsLineBreaks() {
        const auto rendered =
            renderMarkdown(QStringLiteral("one\ntwo\n\n- a\n- b"), QFont(), QPalette());
        QCOMPARE(rendered->toPlainText(), QStringLiteral("one\ntwo\na\nb"));
    }

    void putsDocumentsBeforeTheQuestion() {
        ChatMessage question = message(Role::user, QStringLiteral("Who?"));
        question.documents = {document("a.txt", "The text.")};
        QCOMPARE(contentOf(question), std::string("The text.\n\nWho?"));
        question.documents.push_back(document("b.txt", "More."));
        QCOMPARE(contentOf(question),
                 std::string("Document: a.txt\n\nThe text.\n\nDocument: b.txt\n\nMore.\n\nWho?"));

        const granary::Request request =
            makeRequest({question, message(Role::assistant, QStringLiteral("She"))},
                        {QStringLiteral(" Be kind. "), 0}, true);
        QCOMPARE(request.messages.size(), size_t{3});
        QCOMPARE(request.messages[0].content, std::string("Be kind."));
        QCOMPARE(request.messages[2].role, std::string("assistant"));
        QVERIFY(request.continue_last);
        QCOMPARE(request.sampling.temperature, 0.0f);
        QCOMPARE(request.sampling.top_p, 1.0f);
    }

    void streamsWithoutTouchingSettledParts() {
        MessageView view(message(Role::assistant, {}));
        view.resize(600, 400);
        const QString settled = QStringLiteral("First.\n\n```\ncode\n```\n");
        view.setText(settled + QStringLiteral("grow"), true);
        QTRY_COMPARE(view.blocks().size(), size_t{3});
        QWidget* const first = view.blocks()[0];
        const QTextDocument* const laidOut = static_cast<TextBlock*>(first)->document();
        QVERIFY(qobject_cast<CodeBlock*>(view.blocks()[1]));
        view.setText(settled + QStringLiteral("growing"), true);
        QTRY_COMPARE(static_cast<TextBlock*>(view.blocks()[2])->toPlainText(),
                     QStringLiteral("growing"));
        QCOMPARE(view.blocks()[0], first);
        QCOMPARE(static_cast<TextBlock*>(first)->document(), laidOut);
    }

    void streamsALongAnswerCheaply() {
        Transcript transcript;
        transcript.resize(900, 700);
        transcript.show();
        QVERIFY(QTest::qWaitForWindowExposed(&transcript));
        QString text;
        for (int i = 0; i < 200; ++i) {
            text += QStringLiteral("Paragraph %1 has **bold** and `code` words. ").arg(i).repeated(5) +
                    QStringLiteral("\n\n");
        }
        MessageView* view = transcript.append(message(Role::assistant, text));
        QTest::qWait(100);
        QVERIFY(text.size() > 40000);
        // The middle one of some steps, each drawn and laid out; others may use the machine too.
        std::vector<qint64> steps;
        for (int i = 0; i < 10; ++i) {
            text += QStringLiteral("and more words ");
            view->setText(text, true);
            QTest::qWait(60);  // until it was drawn by its timer
            text += QStringLiteral("at once ");
            QElapsedTimer clock;
            clock.start();
            view->setText(text, false);
            QCoreApplication::sendPostedEvents(nullptr, QEvent::LayoutRequest);
            steps.push_back(clock.nsecsElapsed());
        }
        std::sort(steps.begin(), steps.end());
        qInfo("step %.1f ms", static_cast<double>(steps[5]) / 1e6);
        QVERIFY(steps[5] < 30'000'000);
    }

    void leavesTheReaderWhereHeIs() {
        Transcript transcript;
        transcript.resize(700, 400);
        transcript.show();
        QVERIFY(QTest::qWaitForWindowExposed(&transcript));
        const QString text = QStringLiteral("line\n\n").repeated(60);
        transcript.append(message(Role::user, QStringLiteral("q")));
        MessageView* answer = transcript.append(message(Role::assistant, text));
        transcript.scrollToEnd();
        QTRY_VERIFY(transcript.verticalScrollBar()->maximum() > 400);
        QTRY_VERIFY(transcript.atEnd());
        answer->setText(text + text, false);
        QTRY_VERIFY(transcript.verticalScrollBar()->maximum() > 1200);
        QTRY_VERIFY(transcript.atEnd());  // followed

        transcript.verticalScrollBar()->setValue(100);
        answer->setText(text + text + text, false);
        QTest::qWait(50);
        QCOMPARE(transcript.verticalScrollBar()->value(), 100);
    }

    void findsInTextAndCode() {
        Transcript transcript;
        transcript.resize(700, 400);
        transcript.setMessages(
            {message(Role::user, QStringLiteral("the key")),
             message(Role::assistant, QStringLiteral("A Key.\n\n```\nkey = 1\n```"))});
        QCOMPARE(transcript.find(QStringLiteral("key"), false), std::make_pair(1, 3));
        QCOMPARE(transcript.find(QStringLiteral("key"), false), std::make_pair(2, 3));
        QCOMPARE(transcript.find(QStringLiteral("key"), false), std::make_pair(3, 3));
        QCOMPARE(transcript.find(QStringLiteral("key"), false), std::make_pair(1, 3));
        QCOMPARE(transcript.find(QStringLiteral("key"), true), std::make_pair(3, 3));
        QCOMPARE(transcript.find(QStringLiteral("absent"), false), std::make_pair(0, 0));
    }

    void opensALongChatWithItsEnd() {
        QVector<ChatMessage> messages;
        for (int i = 0; i < 1000; ++i) {
            messages.push_back(
                message(i % 2 ? Role::assistant : Role::user, QStringLiteral("message %1").arg(i)));
        }
        Transcript transcript;
        transcript.resize(700, 400);
        QElapsedTimer clock;
        clock.start();
        transcript.setMessages(messages);
        QVERIFY2(clock.elapsed() < 1000, qPrintable(QString::number(clock.elapsed())));
        QCOMPARE(transcript.count(), 1000);
        QCOMPARE(transcript.last()->message().text, QStringLiteral("message 999"));
    }

    void inputGrowsToEightLines() {
        QAction action;
        Composer composer(&action, &action, &action, &action);
        composer.resize(500, 100);
        composer.show();
        const int least = composer.input()->height();
        composer.setText(QStringLiteral("\n").repeated(5));
        QTRY_VERIFY(composer.input()->height() > least);
        composer.setText(QStringLiteral("\n").repeated(50));
        const int most = composer.input()->minimumHeight();
        QVERIFY(most <= 8 * composer.input()->fontMetrics().lineSpacing() + 6);
        QSignalSpy submitted(&composer, &Composer::submitted);
        QTest::keyClick(composer.input(), Qt::Key_Return, Qt::ShiftModifier);
        QCOMPARE(submitted.count(), 0);
        QTest::keyClick(composer.input(), Qt::Key_Return);
        QCOMPARE(submitted.count(), 1);
    }
};

QTEST_MAIN(ChatTest)
#include "chat_test.moc"
