// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/vram_pane.h"

#include <QAction>
#include <QActionGroup>
#include <QClipboard>
#include <QFrame>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QLocale>
#include <QStackedWidget>
#include <QTimer>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/settings/settings_panel.h"
#include "gui/settings/settings_sheet.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/vram/card_bar.h"
#include "gui/vram/granule_table.h"
#include "gui/vram/legend.h"
#include "gui/vram/map_view.h"
#include "gui/vram/replay_strip.h"
#include "gui/widgets/full_height_scroll.h"

namespace granary::gui {

namespace {

constexpr int kRecordMs = 16;  // while a request runs, so that a replay has every frame
constexpr int kLiveMs = 33;
constexpr int kIdleMs = 200;
constexpr int kTextMs = 250;      // figures that change faster cannot be read
constexpr int kCalmDownMs = 500;  // after the last change

QLabel* smallLabel(QWidget* parent, const QString& tone) {
    auto* label = new QLabel(parent);
    label->setFont(metrics::small(parent->font()));
    if (!tone.isEmpty()) label->setProperty("tone", tone);
    return label;
}

}  // namespace

VramPane::VramPane(QWidget* parent)
    : QWidget(parent),
      m_view(new MapView(m_model, this)),
      m_table(new GranuleTable(m_model, this)),
      m_legend(new Legend(this)),
      m_settings(new SettingsPanel(m_draft, this)),
      m_replayAction(new QAction(tr("Replay slowly"), this)),
      m_stopReplayAction(new QAction(tr("Stop replay"), this)),
      m_tableAction(new QAction(tr("Table"), this)),
      m_poolAction(new QAction(tr("Pool"), this)),
      m_rangesAction(new QAction(tr("Ranges"), this)),
      m_timer(new QTimer(this)) {
    setObjectName(QStringLiteral("vram"));
    setAccessibleName(tr("Card memory"));
    m_sheet = new SettingsSheet(m_draft, m_settings->applyAction(), m_settings->undoAction(), this);

    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(metrics::kPaneMargin, metrics::kGrid, metrics::kPaneMargin,
                               metrics::kGrid);
    column->setSpacing(metrics::kGrid);
    column->addWidget(makeHeader());
    m_pages = new QStackedWidget(this);
    m_pages->addWidget(m_view);
    m_pages->addWidget(m_table);
    m_pages->setMinimumHeight(160);
    column->addWidget(m_pages, 1);
    column->addWidget(makeControls());

    m_view->setEmptyText(tr("No model is loaded. Its memory shows here."));
    connect(m_view, &MapView::currentChanged, this, &VramPane::showHover);
    connect(m_view, &MapView::captionChanged, this,
            [this] { m_caption->setText(m_view->caption()); });
    connect(m_legend, &Legend::shownChanged, this, [this](Owner owner, bool shown) {
        m_model.setShown(owner, shown);
        m_view->refresh();
    });
    connect(m_table, &GranuleTable::granuleChosen, m_view, &MapView::setPinnedGranule);
    connect(&m_draft, &SettingsDraft::applyRequested, this, &VramPane::applyRequested);
    connect(&m_draft, &SettingsDraft::changed, this, [this] {
        showFace();
        if (m_bar)
            m_bar->setGhost(m_draft.edited() == m_draft.running() ? std::nullopt : m_draft.plan());
    });
    connect(m_replayAction, &QAction::triggered, this, &VramPane::replaySlowly);
    connect(m_stopReplayAction, &QAction::triggered, this, &VramPane::stopReplay);
    connect(m_tableAction, &QAction::toggled, this,
            [this](bool on) { m_pages->setCurrentIndex(on ? 1 : 0); });
    connect(m_rangesAction, &QAction::toggled, this, [this](bool on) {
        m_model.setOrder(on ? MapOrder::Ranges : MapOrder::Pool);
        m_view->refresh();
    });
    makeMapMenu();
    m_timer->setTimerType(Qt::PreciseTimer);
    connect(m_timer, &QTimer::timeout, this, &VramPane::tick);
    clearEngine();
}

// The widgets look at the model and the draft, which are members: they go first.
VramPane::~VramPane() {
    m_timer->stop();
    qDeleteAll(findChildren<QWidget*>(QString(), Qt::FindDirectChildrenOnly));
}

QWidget* VramPane::makeHeader() {
    auto* header = new QWidget(this);
    auto* row = new QHBoxLayout(header);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(0);

    m_poolAction->setObjectName(QStringLiteral("poolOrder"));
    m_rangesAction->setObjectName(QStringLiteral("rangesOrder"));
    m_tableAction->setObjectName(QStringLiteral("showTable"));
    m_replayAction->setObjectName(QStringLiteral("replaySlowly"));
    m_stopReplayAction->setObjectName(QStringLiteral("stopReplay"));
    m_poolAction->setToolTip(tr("One cell per granule; a cell never moves, it changes colour"));
    m_rangesAction->setToolTip(tr("One cell per place of each address range"));
    m_tableAction->setToolTip(tr("The same granules as a table"));
    m_replayAction->setToolTip(
        tr("Show again what memory did for the last prompt, at a tenth of "
           "the speed"));
    auto* orders = new QActionGroup(this);
    for (QAction* action : {m_poolAction, m_rangesAction}) {
        action->setCheckable(true);
        orders->addAction(action);
    }
    m_poolAction->setChecked(true);
    m_tableAction->setCheckable(true);

    const auto add = [this](QHBoxLayout* to, QAction* action, const char* segment) {
        auto* button = new QToolButton(this);
        button->setDefaultAction(action);
        button->setObjectName(action->objectName() + QStringLiteral("Button"));
        button->setAccessibleName(action->text());
        button->setProperty("segment", QString::fromLatin1(segment));
        button->setFont(metrics::small(font()));
        button->setFocusPolicy(Qt::StrongFocus);
        to->addWidget(button);
    };
    add(row, m_poolAction, "left");
    add(row, m_rangesAction, "right");
    row->addSpacing(metrics::kGrid);
    // The strip takes the place of two buttons, so that the map does not move when it comes.
    m_liveButtons = new QWidget(header);
    auto* live = new QHBoxLayout(m_liveButtons);
    live->setContentsMargins(0, 0, 0, 0);
    live->setSpacing(0);
    live->addStretch();
    add(live, m_replayAction, "left");
    add(live, m_tableAction, "right");
    m_strip = new ReplayStrip(m_stopReplayAction, header);
    row->addWidget(m_liveButtons, 1);
    row->addWidget(m_strip, 1);
    header->setFixedHeight(
        std::max(m_strip->sizeHint().height(), m_liveButtons->sizeHint().height()));
    m_strip->hide();
    return header;
}

void VramPane::makeMapMenu() {
    auto* copyCell = new QAction(tr("Copy text of this cell"), m_view);
    copyCell->setObjectName(QStringLiteral("copyCell"));
    connect(copyCell, &QAction::triggered, this, [this] {
        const MapModel::HoverText text = m_view->currentText();
        QGuiApplication::clipboard()->setText(text.first + QLatin1Char('\n') + text.second);
    });
    auto* copySums = new QAction(tr("Copy sums by class"), m_view);
    copySums->setObjectName(QStringLiteral("copySums"));
    connect(copySums, &QAction::triggered, this,
            [this] { QGuiApplication::clipboard()->setText(m_model.summary()); });
    auto* calm = new QAction(tr("Reduce motion"), m_view);
    calm->setObjectName(QStringLiteral("reduceMotion"));
    calm->setToolTip(tr("Cells that change hands do not flash"));
    calm->setCheckable(true);
    connect(calm, &QAction::toggled, this, [this](bool on) {
        m_model.setReducedMotion(on);
        m_view->refresh();
    });
    m_view->addActions({copyCell, copySums, calm});
    m_view->setContextMenuPolicy(Qt::ActionsContextMenu);
}

// Everything under the map; it scrolls where the window is too low for it.
QWidget* VramPane::makeControls() {
    auto* content = new QWidget;
    auto* column = new QVBoxLayout(content);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(metrics::kHalfGrid);

    m_caption = smallLabel(this, QStringLiteral("muted"));
    m_caption->setObjectName(QStringLiteral("mapCaption"));
    m_face = smallLabel(this, QString());
    m_face->setObjectName(QStringLiteral("faceLine"));
    m_face->setWordWrap(true);
    m_hoverFirst = smallLabel(this, QString());
    m_hoverSecond = smallLabel(this, QStringLiteral("muted"));
    for (QLabel* label : {m_hoverFirst, m_hoverSecond}) {
        label->setTextFormat(Qt::PlainText);
        // As long as it may get, it must not widen the dock.
        label->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
        label->setMinimumHeight(label->fontMetrics().height() + 1);
    }
    auto* line = new QFrame(content);
    line->setFixedHeight(1);
    line->setAutoFillBackground(true);
    line->setBackgroundRole(QPalette::Mid);

    column->addWidget(m_caption);
    column->addWidget(m_face);
    column->addWidget(m_legend);
    column->addWidget(m_hoverFirst);
    column->addWidget(m_hoverSecond);
    column->addSpacing(metrics::kHalfGrid);
    column->addWidget(line);
    column->addSpacing(metrics::kHalfGrid);
    column->addWidget(m_settings);

    auto* scroll = new FullHeightScroll(this);
    scroll->setObjectName(QStringLiteral("vramControls"));
    scroll->setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Maximum);
    scroll->setContent(content);
    return scroll;
}

void VramPane::setEngine(Telemetry* telemetry, std::optional<Planner> planner, Settings settings) {
    endReplay();
    m_telemetry = telemetry;
    m_planner = std::move(planner);
    m_history.clear();
    m_live = {};
    m_askedAt = 0;
    m_model.clear();
    m_model.setSlotBytes(m_planner ? m_planner->model().expert_bytes : std::vector<uint64_t>());
    m_view->resetPaintMs();
    if (m_planner) {
        m_settings->setTrainedContext(m_planner->model().trained_context);
        m_draft.load(settings, [planner = *m_planner](const Settings& edited) {
            return planner.plan(edited);
        });
    } else {
        m_settings->setTrainedContext(0);
        m_draft.clear();
    }
    m_view->setEmptyText(tr("Waiting for the first picture of the memory."));
    showFace();
    m_sinceChange.start();
    takeFrames();
    m_view->refresh();
    showAmounts(true);
    setPace();
}

void VramPane::setRates(const Rates& rates) {
    if (!m_planner) return;
    setPlanner(m_planner->corrected(rates));
}

void VramPane::setPlanner(const Planner& planner) {
    m_planner = planner;
    m_draft.setPlanner(
        [planner = *m_planner](const Settings& edited) { return planner.plan(edited); });
}

void VramPane::clearEngine() {
    setEngine(nullptr, std::nullopt, Settings());
    m_view->setEmptyText(tr("No model is loaded. Its memory shows here."));
    if (m_bar) m_bar->setEmptyText(tr("no model"));
    setBusy(false);
}

void VramPane::expect(const Settings& settings) {
    m_draft.expect(settings);
    m_view->setEmptyText(tr("The model is loading. Its memory shows here."));
    if (m_bar) m_bar->setEmptyText(tr("loading"));
}

// The bar is seen where the pane is folded away.
bool VramPane::isSeen() const {
    return isVisible() || (m_bar && m_bar->isVisible());
}

void VramPane::setCardBar(CardBar* bar) {
    m_bar = bar;
    showAmounts(true);
}

QAction* VramPane::applyAction() const {
    return m_settings->applyAction();
}
QAction* VramPane::undoAction() const {
    return m_settings->undoAction();
}
double VramPane::paintMs() const {
    return m_view->paintMs();
}

double VramPane::worstPaintMs() const {
    return m_view->worstPaintMs();
}

void VramPane::applied(bool ok, const QString& message) {
    m_draft.applied(ok, message);
}

void VramPane::setBusy(bool busy) {
    if (busy && !m_busy) m_askedAt = liveNow();
    m_busy = busy;
    m_draft.setBusy(busy);
    m_sinceChange.start();
    // What a request left behind stands in the figures as soon as the window says it has ended.
    if (!busy && isSeen()) {
        tick();
        showAmounts(true);
    }
    setPace();
}

void VramPane::openSheet() {
    m_sheet->show();
    m_sheet->raise();
    m_sheet->activateWindow();
}

void VramPane::showFace() {
    const bool unified = m_planner && m_draft.runningPlan() && !m_draft.runningPlan()->card;
    m_face->setVisible(unified);
    m_face->setText(unified ? tr("The map holds no experts: CPU and device share one memory, so "
                                 "experts are read in place from the model file.")
                            : QString());
}

void VramPane::showHover() {
    const MapModel::HoverText text = m_view->currentText();
    if (text.first.isEmpty()) {
        m_hoverFirst->setText(m_model.empty() ? QString()
                                              : tr("Point at a cell, or click to keep it"));
        m_hoverSecond->setText(m_model.empty() ? QString()
                                               : tr("Arrow keys walk, N and P go on in a class"));
        return;
    }
    m_hoverFirst->setText(text.first);
    m_hoverSecond->setText(text.second);
    m_hoverFirst->setToolTip(text.first);
    m_hoverSecond->setToolTip(text.second);
}

void VramPane::showAmounts(bool now) {
    // Granules change hands a few times a second at most: then the figures say at once what the
    // map shows. The rest waits, so that it can be read.
    const MapFrame& frame = m_model.frame();
    const bool changed = frame.granules != m_shownGranules;
    if (!now && !changed && m_sinceText.isValid() && m_sinceText.elapsed() < kTextMs) return;
    m_sinceText.start();
    m_shownGranules = frame.granules;
    m_legend->setAmounts(frame.granules, frame.granule_bytes);
    if (m_bar) m_bar->setAmounts(frame.granules, frame.granule_bytes);
    m_view->setAccessibleDescription(m_model.summary());
    m_replayAction->setEnabled(!replaying() && promptSpan().valid());
    Q_EMIT amountsShown(frame.granules, frame.granule_bytes);
}

void VramPane::showEvent(QShowEvent* event) {
    QWidget::showEvent(event);
    setPace();
    tick();
}

void VramPane::hideEvent(QHideEvent* event) {
    QWidget::hideEvent(event);
    setPace();
}

void VramPane::setPace() {
    if (!isSeen() || m_telemetry == nullptr) return m_timer->stop();
    const bool lively = m_replay.running() || m_model.animating() ||
                        (m_sinceChange.isValid() && m_sinceChange.elapsed() < kCalmDownMs);
    const int interval = m_busy ? kRecordMs : lively ? kLiveMs : kIdleMs;
    if (m_timer->isActive() && m_timer->interval() == interval) return;
    m_timer->start(interval);
}

double VramPane::liveNow() const {
    return m_live.seconds + (m_sinceFrame.isValid() ? m_sinceFrame.elapsed() / 1000.0 : 0.0);
}

bool VramPane::takeFrames() {
    if (m_telemetry == nullptr) return false;
    const MapFrame* frame = m_telemetry->map.take();
    if (frame == nullptr || frame->sequence == 0) return false;
    const bool changed = frame->words != m_live.words || frame->places != m_live.places;
    m_history.append(*frame);
    m_live = *frame;
    m_sinceFrame.start();
    if (changed) m_sinceChange.start();
    if (!m_replay.running()) m_model.setFrame(m_live);
    return changed;
}

void VramPane::tick() {
    const double wall = m_sinceTick.isValid() ? m_sinceTick.nsecsElapsed() / 1e9 : 0;
    m_sinceTick.start();
    takeFrames();
    if (m_replay.running()) {
        if (m_replay.advance(wall)) m_model.setFrame(m_replay.frame());
        m_model.setNow(m_replay.position());
        m_strip->showPosition(m_replay.position(), m_replay.span());
        if (m_replay.finished()) stopReplay();
    } else {
        m_model.setNow(liveNow());
    }
    // Frames are recorded as they come and drawn at 30 Hz.
    if (isVisible() &&
        (!m_sinceDraw.isValid() || m_sinceDraw.elapsed() >= kLiveMs - kRecordMs / 2 ||
         m_timer->interval() >= kLiveMs)) {
        m_sinceDraw.start();
        m_view->refresh();
    }
    showAmounts(false);
    setPace();
}

// Where the last prompt's loan was seen; a prompt so short that no frame shows its loan is the
// second after it was asked.
MapSpan VramPane::promptSpan() const {
    const MapSpan loan = m_history.lastPrompt(), all = m_history.span();
    if (loan.valid() && loan.to >= m_askedAt) return loan;
    if (m_askedAt > 0 && all.to > m_askedAt && m_askedAt >= all.from)
        return {std::max(m_askedAt - 0.15, all.from), std::min(m_askedAt + 1.0, all.to)};
    return loan;
}

void VramPane::replaySlowly() {
    if (!m_replay.start(m_history, promptSpan())) {
        m_hoverFirst->setText(tr("Nothing to replay"));
        m_hoverSecond->setText(tr("No prompt was read in the last minute of frames"));
        return;
    }
    m_liveButtons->hide();
    m_strip->show();
    m_stopReplayAction->setEnabled(true);
    m_model.setFrame(m_replay.frame(), true);
    m_model.setNow(m_replay.position());
    m_view->refresh();
    m_sinceTick.start();
    m_strip->showPosition(m_replay.position(), m_replay.span());
    showAmounts(true);
    setPace();
    Q_EMIT replayingChanged(true);
}

void VramPane::endReplay() {
    m_replay.stop();
    m_strip->hide();
    m_liveButtons->show();
    m_stopReplayAction->setEnabled(false);
}

void VramPane::stopReplay() {
    if (!m_replay.running()) return;
    endReplay();
    m_model.setFrame(m_live, true);
    m_model.setNow(liveNow());
    m_view->refresh();
    showAmounts(true);
    setPace();
    Q_EMIT replayingChanged(false);
}

}  // namespace granary::gui
