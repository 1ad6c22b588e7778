// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/logs/log_view.h"

#include <QAction>
#include <QClipboard>
#include <QComboBox>
#include <QEvent>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QItemSelectionModel>
#include <QLabel>
#include <QLineEdit>
#include <QListView>
#include <QLocale>
#include <QPushButton>
#include <QScrollBar>
#include <QStyledItemDelegate>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"

namespace granary::gui {

namespace {

// Warnings and errors in their colours; the level also stands there as a word.
class LevelDelegate : public QStyledItemDelegate {
  public:
    using QStyledItemDelegate::QStyledItemDelegate;

  protected:
    void initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const override {
        QStyledItemDelegate::initStyleOption(option, index);
        const int level = index.data(LogModel::LevelRole).toInt();
        const Tones& tones = Theme::tones(option->palette);
        if (level >= spdlog::level::err)
            option->palette.setColor(QPalette::Text, tones.danger);
        else if (level >= spdlog::level::warn)
            option->palette.setColor(QPalette::Text, tones.warning);
        else if (level <= spdlog::level::debug)
            option->palette.setColor(QPalette::Text, tones.muted);
    }
};

}  // namespace

LogView::LogView(QWidget* parent)
    : QWidget(parent),
      m_model(new LogModel(this)),
      m_filter(new LogFilter(this)),
      m_list(new QListView(this)),
      m_level(new QComboBox(this)),
      m_search(new QLineEdit(this)),
      m_count(new QLabel(this)),
      m_copy(new QAction(tr("Copy"), this)) {
    setObjectName(QStringLiteral("logView"));
    setAccessibleName(tr("Log"));
    m_filter->setSourceModel(m_model);
    m_list->setObjectName(QStringLiteral("logLines"));
    m_list->setAccessibleName(tr("Log lines"));
    m_list->setModel(m_filter);
    m_list->setItemDelegate(new LevelDelegate(m_list));
    m_list->setUniformItemSizes(true);  // twenty thousand lines are not measured one by one
    m_list->setSelectionMode(QAbstractItemView::ExtendedSelection);
    m_list->setEditTriggers(QAbstractItemView::NoEditTriggers);
    m_list->setFont(metrics::monospace(metrics::small(font())));
    m_list->setFrameShape(QFrame::NoFrame);
    m_list->setContextMenuPolicy(Qt::ActionsContextMenu);
    m_copy->setObjectName(QStringLiteral("copyLog"));
    m_copy->setShortcut(QKeySequence::Copy);
    m_copy->setShortcutContext(Qt::WidgetShortcut);
    m_copy->setToolTip(tr("Copy the selected lines, or all that are shown"));
    m_list->addAction(m_copy);

    m_level->setObjectName(QStringLiteral("logLevel"));
    m_level->setAccessibleName(tr("Least level of the lines shown"));
    m_level->addItem(tr("Everything"), static_cast<int>(spdlog::level::trace));
    m_level->addItem(tr("Info and above"), static_cast<int>(spdlog::level::info));
    m_level->addItem(tr("Warnings and errors"), static_cast<int>(spdlog::level::warn));
    m_level->addItem(tr("Errors"), static_cast<int>(spdlog::level::err));
    m_search->setObjectName(QStringLiteral("logSearch"));
    m_search->setAccessibleName(tr("Search in the log"));
    m_search->setPlaceholderText(tr("Search in the log"));
    m_search->setClearButtonEnabled(true);
    m_count->setFont(metrics::small(font()));
    m_count->setProperty("tone", QStringLiteral("muted"));
    auto* copyButton = new QPushButton(m_copy->text(), this);
    copyButton->setObjectName(QStringLiteral("copyLogButton"));
    copyButton->setToolTip(m_copy->toolTip());
    copyButton->setAccessibleName(tr("Copy log lines"));

    auto* row = new QHBoxLayout;
    row->setContentsMargins(metrics::kGrid, metrics::kHalfGrid, metrics::kGrid, 0);
    row->setSpacing(metrics::kGrid);
    row->addWidget(m_level);
    row->addWidget(m_search, 1);
    row->addWidget(m_count);
    row->addWidget(copyButton);
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(metrics::kHalfGrid);
    column->addLayout(row);
    column->addWidget(m_list, 1);

    connect(m_level, &QComboBox::currentIndexChanged, this,
            [this] { m_filter->setLevel(m_level->currentData().toInt()); });
    connect(m_search, &QLineEdit::textChanged, m_filter, &LogFilter::setText);
    connect(m_copy, &QAction::triggered, this, &LogView::copy);
    connect(copyButton, &QPushButton::clicked, m_copy, &QAction::trigger);
    // Whether the reader follows is seen before lines come, and the end is shown after they did.
    connect(m_filter, &QAbstractItemModel::rowsAboutToBeInserted, this,
            [this] { m_followed = follows(); });
    connect(m_filter, &QAbstractItemModel::rowsInserted, this, [this] {
        if (m_followed) m_list->scrollToBottom();
        showCount();
    });
    connect(m_filter, &QAbstractItemModel::rowsRemoved, this, &LogView::showCount);
    connect(m_filter, &QAbstractItemModel::modelReset, this, &LogView::showCount);
    connect(m_filter, &QAbstractItemModel::layoutChanged, this, &LogView::showCount);
    showCount();
}

bool LogView::follows() const {
    const QScrollBar* bar = m_list->verticalScrollBar();
    return bar->value() >= bar->maximum() - 1;
}

void LogView::showCount() {
    const QLocale locale;
    const int shown = m_filter->rowCount(), all = m_model->rowCount();
    m_count->setText(shown == all
                         ? counted(static_cast<qulonglong>(all), tr("line"), tr("lines"))
                         : tr("%1 of %2 lines").arg(locale.toString(shown), locale.toString(all)));
}

QString LogView::text() const {
    QModelIndexList rows = m_list->selectionModel()->selectedRows();
    std::sort(rows.begin(), rows.end(),
              [](const QModelIndex& a, const QModelIndex& b) { return a.row() < b.row(); });
    QString text;
    if (rows.isEmpty()) {
        for (int row = 0; row < m_filter->rowCount(); ++row)
            text += m_filter->index(row, 0).data().toString() + QLatin1Char('\n');
    } else {
        for (const QModelIndex& index : rows) text += index.data().toString() + QLatin1Char('\n');
    }
    return text;
}

void LogView::copy() {
    QGuiApplication::clipboard()->setText(text());
}

void LogView::changeEvent(QEvent* event) {
    if (event->type() == QEvent::PaletteChange) m_list->viewport()->update();
    QWidget::changeEvent(event);
}

}  // namespace granary::gui
