// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/granule_table.h"

#include <QComboBox>
#include <QHeaderView>
#include <QLocale>
#include <QTableView>
#include <QTimer>
#include <QVBoxLayout>

#include "gui/theme/metrics.h"
#include "gui/theme/units.h"

namespace granary::gui {

namespace {

constexpr int kRefreshMs = 500;  // text that changes faster cannot be read

}  // namespace

GranuleTableModel::GranuleTableModel(const MapModel& map, QObject* parent)
    : QAbstractTableModel(parent), m_map(map) {
    refresh();
}

void GranuleTableModel::refresh() {
    if (m_map.granules() != m_rows) {
        beginResetModel();
        m_rows = m_map.granules();
        endResetModel();
    } else if (m_map.frame().sequence != m_sequence && m_rows > 0) {
        Q_EMIT dataChanged(index(0, 0), index(m_rows - 1, Columns - 1));
    }
    m_sequence = m_map.frame().sequence;
}

int GranuleTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : m_rows;
}

int GranuleTableModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : Columns;
}

QVariant GranuleTableModel::data(const QModelIndex& index, int role) const {
    // Between two refreshes the map may have become smaller.
    if (!index.isValid() || index.row() >= m_map.granules()) return {};
    const GranuleWord word = m_map.frame().words[static_cast<size_t>(index.row())];
    const Owner owner = MapModel::ownerOf(word);
    if (role == kOwnerRole) return static_cast<int>(owner);
    if (role == Qt::TextAlignmentRole)
        return static_cast<int>(Qt::AlignVCenter |
                                (index.column() == Number ? Qt::AlignRight : Qt::AlignLeft));
    if (role != Qt::DisplayRole) return {};
    switch (index.column()) {
        case Number:
            return QLocale().toString(index.row());
        case Class:
            return ownerText(owner);
        case What:
            return m_map.holdsText(word);
        case Where:
            return m_map.placeText(index.row());
        default:
            return {};
    }
}

QVariant GranuleTableModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) return {};
    switch (section) {
        case Number:
            return tr("Granule");
        case Class:
            return tr("Class");
        case What:
            return tr("Holds");
        case Where:
            return tr("Place");
        default:
            return {};
    }
}

void GranuleFilter::setOwner(int owner) {
    m_owner = owner;
    invalidateFilter();
}

bool GranuleFilter::filterAcceptsRow(int row, const QModelIndex& parent) const {
    if (m_owner < 0) return true;
    return sourceModel()->index(row, 0, parent).data(GranuleTableModel::kOwnerRole).toInt() ==
           m_owner;
}

GranuleTable::GranuleTable(const MapModel& map, QWidget* parent)
    : QWidget(parent),
      m_model(new GranuleTableModel(map, this)),
      m_filter(new GranuleFilter(this)),
      m_view(new QTableView(this)),
      m_filterBox(new QComboBox(this)),
      m_timer(new QTimer(this)) {
    m_filter->setSourceModel(m_model);
    m_view->setObjectName(QStringLiteral("granuleTable"));
    m_view->setAccessibleName(tr("Granules as a table"));
    m_view->setModel(m_filter);
    m_view->setSelectionBehavior(QAbstractItemView::SelectRows);
    m_view->setSelectionMode(QAbstractItemView::SingleSelection);
    m_view->setTabKeyNavigation(false);
    m_view->setShowGrid(false);
    m_view->setFont(metrics::small(font()));
    m_view->verticalHeader()->hide();
    m_view->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
    m_view->verticalHeader()->setDefaultSectionSize(QFontMetrics(m_view->font()).height() + 6);
    m_view->horizontalHeader()->setHighlightSections(false);
    m_view->horizontalHeader()->setDefaultAlignment(Qt::AlignLeft | Qt::AlignVCenter);
    m_view->horizontalHeader()->setStretchLastSection(true);
    m_view->setColumnWidth(GranuleTableModel::Number, 70);
    m_view->setColumnWidth(GranuleTableModel::Class, 90);
    m_view->setColumnWidth(GranuleTableModel::What, 140);
    m_filterBox->setObjectName(QStringLiteral("granuleFilter"));
    m_filterBox->setAccessibleName(tr("Class of granules in the table"));
    m_filterBox->addItem(tr("All classes"), -1);
    for (int i = 0; i < kOwners; ++i) m_filterBox->addItem(ownerText(static_cast<Owner>(i)), i);

    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(metrics::kHalfGrid);
    column->addWidget(m_filterBox);
    column->addWidget(m_view);

    connect(m_filterBox, &QComboBox::currentIndexChanged, this,
            [this] { m_filter->setOwner(m_filterBox->currentData().toInt()); });
    connect(m_view->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
            [this](const QModelIndex& index) {
                if (index.isValid()) Q_EMIT granuleChosen(m_filter->mapToSource(index).row());
            });
    m_timer->setInterval(kRefreshMs);
    connect(m_timer, &QTimer::timeout, m_model, &GranuleTableModel::refresh);
}

void GranuleTable::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    m_model->refresh();
    m_timer->start();
}

void GranuleTable::hideEvent(QHideEvent* event) {
    QWidget::hideEvent(event);
    m_timer->stop();
}

}  // namespace granary::gui
