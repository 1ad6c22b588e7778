// SPDX-License-Identifier: GPL-3.0-or-later
// The chat store in a thread of its own: the window hands over work and gets results back in
// order, and never waits for a disk.
#pragma once

#include <QObject>
#include <QPointer>
#include <QThread>
#include <memory>

#include "gui/library/chat_store.h"

namespace granary::gui {

class Library : public QObject {
    Q_OBJECT

  public:
    explicit Library(const QString& path, QObject* parent = nullptr);
    ~Library() override;  // finishes what was handed over

    // Calls work(store) in the store's thread, then then(result) in this object's thread, unless
    // `context` is gone by then. A failure is also told by `failed`.
    template <class Work, class Then>
    void run(QObject* context, Work work, Then then) {
        QMetaObject::invokeMethod(m_worker, [this, guard = QPointer<QObject>(context),
                                             work = std::move(work), then = std::move(then)] {
            using Outcome = decltype(work(*m_store));
            auto outcome = std::make_shared<Outcome>(
                m_store ? work(*m_store) : Outcome(tl::unexpected<Error>(m_error)));
            QMetaObject::invokeMethod(this, [this, guard, then, outcome] {
                if (!*outcome) Q_EMIT failed(outcome->error());
                if (guard) then(*outcome);
            });
        });
    }
    template <class Work>
    void run(Work work) {
        run(this, std::move(work), [](const auto&) {});
    }
    // Waits until all that was handed over is done, and tells the results: for who goes away.
    void settle();

  Q_SIGNALS:
    void failed(const granary::Error& error);

  private:
    QThread m_thread;
    QObject* m_worker;  // lives in m_thread
    // Both belong to m_thread.
    std::unique_ptr<ChatStore> m_store;
    Error m_error;
};

}  // namespace granary::gui
