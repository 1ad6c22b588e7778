// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/library/chats_panel.h"

#include <QAction>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QListView>
#include <QMenu>
#include <QPainter>
#include <QPushButton>
#include <QStyledItemDelegate>
#include <QTimer>
#include <QToolButton>

#include "gui/theme/metrics.h"
#include "gui/widgets/colors.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

namespace {

// The title, and below it when the chat changed.
class ChatDelegate : public QStyledItemDelegate {
  public:
    using QStyledItemDelegate::QStyledItemDelegate;

    QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex&) const override {
        return {80, 2 * option.fontMetrics.height() + 14};
    }

    void paint(QPainter* painter, const QStyleOptionViewItem& option,
               const QModelIndex& index) const override {
        painter->save();
        painter->setRenderHint(QPainter::Antialiasing);
        const bool selected = option.state & QStyle::State_Selected;
        const bool over = option.state & QStyle::State_MouseOver;
        const QRect box = option.rect.adjusted(0, 1, 0, -1);
        if (selected || over) {
            painter->setPen(Qt::NoPen);
            painter->setBrush(hovered(option.palette));
            painter->drawRoundedRect(box, metrics::kRadius, metrics::kRadius);
        }
        if ((option.state & QStyle::State_HasFocus) &&
            (option.state & QStyle::State_KeyboardFocusChange)) {
            painter->setPen(QPen(accent(option.palette), 2));
            painter->setBrush(Qt::NoBrush);
            painter->drawRoundedRect(QRectF(box).adjusted(1, 1, -1, -1), metrics::kRadius,
                                     metrics::kRadius);
        }
        const QRect text = box.adjusted(10, 5, -10, -5);
        painter->setPen(option.palette.color(QPalette::WindowText));
        painter->drawText(
            text, Qt::AlignTop | Qt::AlignLeft,
            option.fontMetrics.elidedText(index.data().toString(), Qt::ElideRight, text.width()));
        painter->setFont(metrics::small(option.font));
        painter->setPen(mutedText(option.palette));
        painter->drawText(text, Qt::AlignBottom | Qt::AlignLeft,
                          whenText(index.data(ChatListModel::ChangedRole).toLongLong()));
        painter->restore();
    }

    void updateEditorGeometry(QWidget* editor, const QStyleOptionViewItem& option,
                              const QModelIndex&) const override {
        editor->setGeometry(option.rect.adjusted(4, 2, -4, -option.rect.height() / 2 + 8));
    }
};

}  // namespace

ChatsPanel::ChatsPanel(QAction* newChat, QWidget* parent) : QWidget(parent) {
    setAccessibleName(tr("Chats"));
    m_model = new ChatListModel(this);
    m_list = new QListView;
    m_list->setObjectName(QStringLiteral("chatList"));
    m_list->setAccessibleName(tr("Last chats"));
    m_list->setModel(m_model);
    m_list->setItemDelegate(new ChatDelegate(m_list));
    m_list->setFrameShape(QFrame::NoFrame);
    m_list->setMouseTracking(true);
    m_list->setUniformItemSizes(true);
    m_list->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    m_list->setEditTriggers(QAbstractItemView::EditKeyPressed);
    m_list->setContextMenuPolicy(Qt::CustomContextMenu);
    m_list->viewport()->setAutoFillBackground(false);
    m_list->installEventFilter(this);

    auto* title = new QLabel(tr("Chats"));
    QFont bold = title->font();
    bold.setWeight(QFont::DemiBold);
    title->setFont(bold);
    auto* add = new QToolButton;
    add->setDefaultAction(newChat);
    add->setAutoRaise(true);
    add->setIconSize({16, 16});
    add->setFixedSize(28, 28);
    add->setAccessibleName(newChat->text());
    m_nothing =
        new QuietLabel(tr("Your chats will be listed here. Each one is stored on this "
                          "computer as you write."));
    m_nothing->setWordWrap(true);
    m_nothing->setContentsMargins(10, 4, 10, 4);

    m_undoBar = new QWidget;
    auto* undoLayout = new QHBoxLayout(m_undoBar);
    undoLayout->setContentsMargins(10, 0, 4, 0);
    m_undoText = new QLabel(tr("Chat deleted"));
    auto* undoButton = new QPushButton(tr("Undo"));
    undoButton->setObjectName(QStringLiteral("undoDelete"));
    undoButton->setAccessibleName(tr("Undo the deletion"));
    undoLayout->addWidget(m_undoText, 1);
    undoLayout->addWidget(undoButton);
    m_undoBar->hide();
    m_undoTimer = new QTimer(this);
    m_undoTimer->setSingleShot(true);
    connect(m_undoTimer, &QTimer::timeout, m_undoBar, &QWidget::hide);
    connect(undoButton, &QPushButton::clicked, this, &ChatsPanel::undo);

    auto* head = new QHBoxLayout;
    head->setContentsMargins(10, 0, 0, 0);
    head->addWidget(title, 1);
    head->addWidget(add);
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(8, 8, 8, 8);
    layout->setSpacing(8);
    layout->addLayout(head);
    layout->addWidget(m_nothing);
    layout->addWidget(m_list, 1);
    layout->addWidget(m_undoBar);

    const auto refresh = [this] { m_nothing->setVisible(m_model->rowCount() == 0); };
    connect(m_model, &QAbstractItemModel::modelReset, this, refresh);
    connect(m_model, &QAbstractItemModel::rowsInserted, this, refresh);
    connect(m_model, &QAbstractItemModel::rowsRemoved, this, refresh);
    connect(m_model, &ChatListModel::renamed, this, &ChatsPanel::renamed);
    const auto choose = [this](const QModelIndex& index) {
        if (!m_locked) Q_EMIT chosen(index.data(ChatListModel::IdRole).toLongLong());
    };
    connect(m_list, &QListView::clicked, this, choose);
    connect(m_list, &QListView::activated, this, choose);
    connect(m_list, &QListView::customContextMenuRequested, this, [this](const QPoint& at) {
        const QModelIndex index = m_list->indexAt(at);
        if (!index.isValid()) return;
        auto* menu = new QMenu(m_list);
        menu->setAttribute(Qt::WA_DeleteOnClose);
        menu->addAction(tr("Rename"), this, [this, index] { m_list->edit(index); });
        QAction* drop = menu->addAction(tr("Delete"), this, [this, index] { remove(index); });
        drop->setEnabled(!m_locked);
        menu->popup(m_list->viewport()->mapToGlobal(at));
    });
}

void ChatsPanel::setCurrent(qint64 chat) {
    const QModelIndex index = m_model->indexOf(chat);
    if (index.isValid())
        m_list->setCurrentIndex(index);
    else
        m_list->clearSelection();
}

void ChatsPanel::setLocked(bool locked) {
    m_locked = locked;
}

void ChatsPanel::remove(const QModelIndex& index) {
    if (!index.isValid() || m_locked) return;
    m_removed = m_model->take(index.data(ChatListModel::IdRole).toLongLong());
    m_undoText->setText(tr("Chat deleted"));
    m_undoBar->show();
    m_undoTimer->start(kUndoMs);
    Q_EMIT deleted(m_removed.id);
}

void ChatsPanel::undo() {
    m_undoBar->hide();
    m_model->touch(m_removed.id, m_removed.title, m_removed.changed);
    Q_EMIT restored(m_removed.id);
}

bool ChatsPanel::eventFilter(QObject* watched, QEvent* event) {
    if (watched == m_list && event->type() == QEvent::KeyPress &&
        static_cast<QKeyEvent*>(event)->key() == Qt::Key_Delete) {
        remove(m_list->currentIndex());
        return true;
    }
    return QWidget::eventFilter(watched, event);
}

}  // namespace granary::gui
