// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/library/library.h"

#include <QCoreApplication>

namespace granary::gui {

Library::Library(const QString& path, QObject* parent) : QObject(parent), m_worker(new QObject) {
    m_thread.setObjectName(QStringLiteral("chats"));
    m_worker->moveToThread(&m_thread);
    m_thread.start();
    QMetaObject::invokeMethod(m_worker, [this, path] {
        auto store = ChatStore::open(path);
        if (store)
            m_store = std::move(*store);
        else
            m_error = store.error();
    });
}

void Library::settle() {
    QMetaObject::invokeMethod(
        m_worker, [] {}, Qt::BlockingQueuedConnection);
    QCoreApplication::sendPostedEvents(this, QEvent::MetaCall);
}

Library::~Library() {
    QMetaObject::invokeMethod(
        m_worker, [this] { m_store.reset(); }, Qt::BlockingQueuedConnection);
    m_thread.quit();
    m_thread.wait();
    delete m_worker;
}

}  // namespace granary::gui
