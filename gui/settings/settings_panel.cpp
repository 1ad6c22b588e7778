// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/settings_panel.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QLocale>
#include <QPushButton>
#include <QTextDocumentFragment>
#include <QVBoxLayout>

#include "gui/settings/count_control.h"
#include "gui/settings/plan_text.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"

namespace granary::gui {

void followAction(QPushButton* button, QAction* action) {
    const auto show = [button, action] {
        button->setText(action->text());
        button->setToolTip(action->toolTip());
        button->setEnabled(action->isEnabled());
    };
    QObject::connect(action, &QAction::changed, button, show);
    QObject::connect(button, &QPushButton::clicked, action, &QAction::trigger);
    show();
}

SettingsPanel::SettingsPanel(SettingsDraft& draft, QWidget* parent)
    : QWidget(parent),
      m_draft(draft),
      m_context(new CountControl(
          QStringLiteral("max-context"), tr("Longest context"),
          tr("How many tokens a conversation may hold. Its keys and values take memory from the "
             "experts as they grow."),
          CountScale::longestContext(0), this)),
      m_step(new CountControl(
          QStringLiteral("prefill"), tr("Reading step"),
          tr("How many tokens of a prompt pass through the layers together. Larger steps read "
             "faster and take a larger loan."),
          CountScale::readingStep(), this)),
      m_stream(new CountControl(
          QStringLiteral("prefill-stream-min"), tr("Stream all experts from"),
          tr("From this reading step on, every expert that is not on the card streams in fixed "
             "order; below it only those that are needed are copied."),
          CountScale::streamAllExperts(), this)),
      m_line(new QLabel(this)),
      m_apply(new QAction(tr("Apply"), this)),
      m_undo(new QAction(tr("Undo"), this)),
      m_applyButton(new QPushButton(this)),
      m_undoButton(new QPushButton(this)) {
    m_apply->setObjectName(QStringLiteral("apply"));
    m_undo->setObjectName(QStringLiteral("undo"));
    m_applyButton->setObjectName(QStringLiteral("applyButton"));
    m_undoButton->setObjectName(QStringLiteral("undoButton"));
    m_applyButton->setProperty("accent", true);
    followAction(m_applyButton, m_apply);
    followAction(m_undoButton, m_undo);
    m_line->setObjectName(QStringLiteral("planLine"));
    m_line->setWordWrap(true);
    m_line->setTextFormat(Qt::RichText);
    m_line->setAlignment(Qt::AlignLeft | Qt::AlignTop);
    m_line->setFont(metrics::small(font()));
    m_line->setMinimumHeight(3 * QFontMetrics(m_line->font()).lineSpacing());
    m_line->setTextInteractionFlags(Qt::TextSelectableByMouse);

    auto* buttons = new QHBoxLayout;
    buttons->setSpacing(metrics::kGrid);
    buttons->addWidget(m_applyButton);
    buttons->addWidget(m_undoButton);
    buttons->addStretch();
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(metrics::kGrid);
    for (CountControl* control : {m_context, m_step, m_stream}) column->addWidget(control);
    column->addWidget(m_line);
    column->addLayout(buttons);

    connect(m_context, &CountControl::edited, this, [this](AutoCount value) {
        Settings settings = m_draft.edited();
        settings.max_context = value.number;
        m_draft.edit(settings);
    });
    connect(m_step, &CountControl::edited, this, [this](AutoCount value) {
        Settings settings = m_draft.edited();
        settings.prefill = value;
        m_draft.edit(settings);
    });
    connect(m_stream, &CountControl::edited, this, [this](AutoCount value) {
        Settings settings = m_draft.edited();
        settings.prefill_stream_min = value;
        m_draft.edit(settings);
    });
    connect(m_apply, &QAction::triggered, &m_draft, &SettingsDraft::apply);
    connect(m_undo, &QAction::triggered, &m_draft, &SettingsDraft::undo);
    connect(&m_draft, &SettingsDraft::changed, this, &SettingsPanel::showDraft);
    showDraft();
}

void SettingsPanel::setTrainedContext(uint32_t tokens) {
    m_trained = tokens;
    m_context->setScale(CountScale::longestContext(tokens));
    m_context->setMark(tokens > 0 ? std::optional(tokens) : std::nullopt);
    showDraft();
}

void SettingsPanel::showDraft() {
    const bool loaded = m_draft.state() != SettingsDraft::State::Empty;
    const Settings& edited = m_draft.edited();
    const bool card = m_draft.onCard();
    for (CountControl* control : {m_context, m_step}) control->setEnabled(loaded);
    m_stream->setEnabled(loaded && card);

    m_context->setCount({AutoCount::Kind::number, edited.max_context});
    m_step->setCount(edited.prefill);
    m_stream->setCount(edited.prefill_stream_min);
    const std::optional<Plan>& plan = m_draft.plan() ? m_draft.plan() : m_draft.runningPlan();
    m_step->setAutoMeaning(plan ? plan->chunk : 0);
    m_stream->setAutoMeaning(plan && plan->stream_min != UINT32_MAX ? plan->stream_min : 0);

    const bool beyond = m_trained > 0 && edited.max_context > m_trained;
    m_context->setNote(beyond ? tr("beyond the trained %1").arg(QLocale().toString(m_trained))
                       : m_trained > 0 ? tr("trained for %1").arg(QLocale().toString(m_trained))
                                       : QString(),
                       beyond);
    m_stream->setNote(loaded && !card ? tr("nothing to stream") : QString(), false);
    showLine();

    m_apply->setEnabled(m_draft.canApply());
    m_undo->setEnabled(m_draft.canUndo());
    m_apply->setToolTip(m_draft.busy() ? tr("Applies when the running request has ended")
                                       : tr("Change the running settings, all or nothing"));
    m_undo->setToolTip(m_draft.state() == SettingsDraft::State::Clean
                           ? tr("Apply the settings before these again")
                           : tr("Go back to the settings that run"));
}

void SettingsPanel::showLine() {
    QString text, tone = QStringLiteral("muted");
    switch (m_draft.state()) {
        case SettingsDraft::State::Empty:
            text = noSettingsText(m_draft);
            break;
        case SettingsDraft::State::Waiting:
            text = tr("Waits for the running request to end, then applies. Undo takes it back.");
            tone = QStringLiteral("warning");
            break;
        case SettingsDraft::State::Applying:
            text = tr("Applying\u2026");
            break;
        case SettingsDraft::State::Refused:
            text = m_draft.refusal().toHtmlEscaped();
            tone = QStringLiteral("danger");
            break;
        case SettingsDraft::State::Clean:
        case SettingsDraft::State::Edited:
            if (!m_draft.outcome().isEmpty()) {
                text = m_draft.outcome().toHtmlEscaped();
                tone =
                    m_draft.outcomeIsBad() ? QStringLiteral("danger") : QStringLiteral("success");
            } else if (m_draft.isElsewhere()) {
                text = tr("What fits on the other device shows once this is applied.");
                tone = QString();
            } else if (m_draft.plan()) {
                const Plan& running =
                    m_draft.runningPlan() ? *m_draft.runningPlan() : *m_draft.plan();
                text = planText(running, *m_draft.plan());
                if (m_draft.state() == SettingsDraft::State::Edited) tone = QString();
            }
            break;
    }
    // A failed Apply stays said while the draft still holds what failed.
    m_line->setText(text);
    m_line->setAccessibleName(line());
    Theme::setProperty(m_line, "tone", tone);
}

QString SettingsPanel::line() const {
    return QTextDocumentFragment::fromHtml(m_line->text()).toPlainText();
}

}  // namespace granary::gui
