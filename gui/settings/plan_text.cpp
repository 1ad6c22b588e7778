// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/plan_text.h"

#include <QCoreApplication>
#include <QLocale>
#include <QStringList>
#include <cmath>

#include "gui/settings/settings_draft.h"
#include "gui/theme/units.h"

namespace granary::gui {

namespace {

struct Words {
    Q_DECLARE_TR_FUNCTIONS(granary::gui::PlanText)
};

// "8 MiB", or "8 MiB -> 16 MiB" with the new figure strong.
QString change(const QString& before, const QString& after) {
    if (before == after) return after.toHtmlEscaped();
    return before.toHtmlEscaped() + QStringLiteral(" \u2192 <b>") + after.toHtmlEscaped() +
           QStringLiteral("</b>");
}

QString bytesChange(const Plan& running, const Plan& edited, Owner owner) {
    const auto i = static_cast<size_t>(owner);
    return change(bytesText(running.at_max[i]), bytesText(edited.at_max[i]));
}

QString streamText(uint32_t from) {
    if (from == UINT32_MAX) return Words::tr("never streams all experts");
    return Words::tr("streams all experts from %1").arg(QLocale().toString(from));
}

// Two digits: a prediction is no better, and figures should rest while a slider moves a little.
QString speedText(double tokensPerSecond) {
    double unit = 0.1;
    while (tokensPerSecond / unit >= 99.5) unit *= 10;
    const double rounded = std::round(tokensPerSecond / unit) * unit;
    return Words::tr("%1 tok/s").arg(QLocale().toString(rounded, 'f', unit < 1 ? 1 : 0));
}

}  // namespace

QString formatText(gpu::KvFormat format) {
    const std::string_view name = gpu::kv_format_name(format);
    return QString::fromLatin1(name.data(), static_cast<qsizetype>(name.size()));
}

QString planText(const Plan& running, const Plan& edited) {
    const bool card = edited.card;  // else nothing streams
    const QLocale locale;
    QStringList sums;
    if (running.budget_bytes != edited.budget_bytes)
        sums << Words::tr("budget %1")
                    .arg(change(bytesText(running.budget_bytes), bytesText(edited.budget_bytes)));
    sums << Words::tr("K/V %1 in %2")
                .arg(bytesChange(running, edited, Owner::kv),
                     change(formatText(running.kv_format), formatText(edited.kv_format)))
         << Words::tr("loan %1").arg(bytesChange(running, edited, Owner::loan));
    if (card)
        sums << Words::tr("experts %1, %2 rows")
                    .arg(bytesChange(running, edited, Owner::experts),
                         change(locale.toString(running.rows_at_max),
                                locale.toString(edited.rows_at_max)));
    QString text = Words::tr("With a full context: %1.").arg(sums.join(QStringLiteral(" \u00b7 ")));
    QStringList reading{
        Words::tr("reads %1 tokens a step")
            .arg(change(locale.toString(running.chunk), locale.toString(edited.chunk)))};
    if (card) {
        const QString before = streamText(running.stream_min),
                      after = streamText(edited.stream_min);
        reading << (before == after
                        ? after.toHtmlEscaped()
                        : QStringLiteral("<b>") + after.toHtmlEscaped() + QStringLiteral("</b>"));
    }
    QString second = reading.join(QStringLiteral(", "));
    if (!second.isEmpty()) second[0] = second[0].toUpper();
    text += QLatin1Char(' ') + second + QLatin1Char('.');
    QString note = QString::fromStdString(context_note(edited.rope, edited.max_context));
    if (!note.isEmpty()) {
        note[0] = note[0].toUpper();
        text += QLatin1Char(' ') + note.toHtmlEscaped() + QLatin1Char('.');
    }
    if (edited.chunk_at_max < edited.chunk)
        text += QLatin1Char(' ') +
                Words::tr("The reading step shrinks from %1 to %2 tokens as the context fills.")
                    .arg(locale.toString(edited.chunk), locale.toString(edited.chunk_at_max));
    if (edited.speeds.reading > 0)
        text +=
            QLatin1Char(' ') +
            Words::tr("Predicted with a full context: reading %1, answering %2.")
                .arg(change(speedText(running.speeds.reading), speedText(edited.speeds.reading)),
                     change(speedText(running.speeds.answering_at_max),
                            speedText(edited.speeds.answering_at_max)));
    return text;
}

QString noSettingsText(const SettingsDraft& draft) {
    return draft.expecting()
               ? Words::tr("The model is loading. Its settings can be changed when it is ready.")
               : Words::tr("No model is loaded.");
}

}  // namespace granary::gui
