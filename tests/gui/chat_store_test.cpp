// SPDX-License-Identifier: GPL-3.0-or-later
#include <QAbstractItemModelTester>
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

#include "gui/library/chat_list_model.h"
#include "gui/library/chat_store.h"
#include "gui/library/library.h"

using namespace granary::gui;

class ChatStoreTest : public QObject {
    Q_OBJECT

  private Q_SLOTS:
    void init() {
        m_folder = std::make_unique<QTemporaryDir>();
        m_path = m_folder->filePath(QStringLiteral("sub/chats.sqlite"));
    }

    void keepsWhatWasStored() {
        qint64 chat = 0;
        {
            auto store = ChatStore::open(m_path);
            QVERIFY2(store, store ? "" : store.error().message().c_str());
            chat = *(*store)->createChat(QStringLiteral("Tea"), {QStringLiteral("Be brief"), 0.5});
            ChatMessage question;
            question.text = QStringLiteral("Where is the key?");
            Document document;
            document.name = QStringLiteral("a.txt");
            document.text = std::make_shared<const QByteArray>("The key is under the mat.");
            document.hash = "hash";
            document.tokens = 7;
            document.pages = 3;
            question.documents = {document};
            QVERIFY((*store)->append(chat, question));
            ChatMessage answer;
            answer.role = Role::assistant;
            answer.id = *(*store)->append(chat, answer);
            QVERIFY((*store)->appendPiece(answer.id, QStringLiteral("Under the ")));
            QVERIFY((*store)->appendPiece(answer.id, QStringLiteral("mat.")));
            // The program ends here.
        }
        auto store = ChatStore::open(m_path);
        QVERIFY(store);
        QCOMPARE((*store)->chats(10)->size(), 1);
        QCOMPARE(*(*store)->options(chat), (ChatOptions{QStringLiteral("Be brief"), 0.5}));
        const auto messages = (*store)->messages(chat);
        QVERIFY(messages);
        QCOMPARE(messages->size(), 2);
        QCOMPARE(messages->at(0).documents.size(), 1);
        QCOMPARE(*messages->at(0).documents[0].text, QByteArray("The key is under the mat."));
        QCOMPARE(messages->at(0).documents[0].tokens, 7);
        QCOMPARE(messages->at(0).documents[0].pages, 3);
        QCOMPARE(messages->at(1).text, QStringLiteral("Under the mat."));
        QCOMPARE(messages->at(1).ending, Ending::interrupted);

        ChatMessage answer = messages->at(1);
        answer.ending = Ending::answered;
        answer.memoryLine = QStringLiteral("line");
        QVERIFY((*store)->finish(answer));
        const auto again = (*store)->messages(chat);
        QCOMPARE(again->at(1).text, QStringLiteral("Under the mat."));
        QCOMPARE(again->at(1).ending, Ending::answered);
        QCOMPARE(again->at(1).memoryLine, QStringLiteral("line"));
        QVERIFY((*store)->remove({answer.id}));
        QCOMPARE((*store)->messages(chat)->size(), 1);
    }

    void deletesAndRestores() {
        auto store = ChatStore::open(m_path);
        const qint64 first = *(*store)->createChat(QStringLiteral("one"), {});
        const qint64 second = *(*store)->createChat(QStringLiteral("two"), {});
        QCOMPARE((*store)->chats(10)->front().id, second);
        QVERIFY((*store)->deleteChat(second, true));
        QCOMPARE((*store)->chats(10)->size(), 1);
        QVERIFY((*store)->deleteChat(second, false));
        QVERIFY((*store)->renameChat(first, QStringLiteral("renamed")));
        QCOMPARE((*store)->chats(10)->size(), 2);
        QCOMPARE((*store)->chats(10)->at(1).title, QStringLiteral("renamed"));
        QVERIFY(!(*store)->options(4711));
    }

    void refusesAForeignFile() {
        QVERIFY(QDir().mkpath(QFileInfo(m_path).absolutePath()));
        QFile file(m_path);
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(QByteArray(4096, 'x'));
        file.close();
        const auto store = ChatStore::open(m_path);
        QVERIFY(!store);
        QVERIFY(store.error().detail.find("chats.sqlite") != std::string::npos);
    }

    void worksInItsThread() {
        Library library(m_path);
        qint64 chat = 0;
        library.run(
            this, [](ChatStore& store) { return store.createChat(QStringLiteral("a"), {}); },
            [&](const granary::Result<qint64>& id) { chat = id ? *id : -1; });
        QTRY_VERIFY(chat > 0);
    }

    void listModelIsSound() {
        ChatListModel model;
        QAbstractItemModelTester tester(&model,
                                        QAbstractItemModelTester::FailureReportingMode::QtTest);
        model.setChats({{1, QStringLiteral("a"), 1}, {2, QStringLiteral("b"), 2}});
        model.touch(2, QStringLiteral("b2"), 5);
        QCOMPARE(model.chats().front().title, QStringLiteral("b2"));
        model.touch(3, QStringLiteral("c"), 6);
        QCOMPARE(model.rowCount(), 3);
        QCOMPARE(model.take(1).title, QStringLiteral("a"));
        QSignalSpy renamed(&model, &ChatListModel::renamed);
        QVERIFY(model.setData(model.index(0), QStringLiteral(" new  name "), Qt::EditRole));
        QCOMPARE(renamed.front().at(1).toString(), QStringLiteral("new name"));
        QVERIFY(!model.setData(model.index(0), QStringLiteral("  "), Qt::EditRole));
    }

  private:
    std::unique_ptr<QTemporaryDir> m_folder;
    QString m_path;
};

QTEST_GUILESS_MAIN(ChatStoreTest)
#include "chat_store_test.moc"
