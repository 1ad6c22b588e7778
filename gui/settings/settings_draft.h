// SPDX-License-Identifier: GPL-3.0-or-later
// The settings being edited against those that run. Editing changes nothing but the preview;
// Apply asks the engine between requests, all or nothing; Undo goes one step back.
#pragma once

#include <QMap>
#include <QObject>
#include <QString>
#include <functional>
#include <optional>
#include <vector>

#include "granary/planner.h"
#include "granary/settings.h"

namespace granary::gui {

class SettingsDraft : public QObject {
    Q_OBJECT
  public:
    // Planner::plan of the loaded model.
    using PlanFunction = std::function<Result<Plan>(const Settings&)>;

    enum class State {
        Empty,     // no model is loaded
        Clean,     // what is shown is what runs
        Edited,    // differs, and would fit
        Refused,   // differs, and would not fit
        Waiting,   // Apply was asked for while a request runs
        Applying,  // the engine is at it
    };

    explicit SettingsDraft(QObject* parent = nullptr);

    // What runs now; forgets edits and the way back.
    void load(const Settings& running, PlanFunction plan);
    void clear();
    // A model is being loaded with these: they are shown, and nothing can be set.
    void expect(const Settings& settings);
    bool expecting() const { return m_expecting; }
    // The same layouts with other predictions; what is edited stays.
    void setPlanner(PlanFunction plan);

    State state() const;
    const Settings& running() const { return m_running; }
    const Settings& edited() const { return m_edited; }
    const std::optional<Plan>& runningPlan() const { return m_runningPlan; }
    // Of the edited settings; none while they are refused.
    const std::optional<Plan>& plan() const { return m_plan; }
    // The edited settings name another device than the one that plans are made for: what fits
    // there is not known before they are applied.
    bool isElsewhere() const { return m_loaded && m_edited.device != m_running.device; }
    // Experts are cached in a card's memory, as far as that is known.
    bool onCard() const;
    // Why the edited settings cannot be applied; empty if they can.
    QString refusal() const;
    // What the last Apply or Undo led to; empty after an edit.
    const QString& outcome() const { return m_outcome; }
    bool outcomeIsBad() const { return m_outcomeBad; }

    void edit(const Settings& settings);
    // By identifier and text form. A text that cannot be read is remembered against its setting,
    // so that nothing is applied while a field shows something else than the draft holds.
    Result<void> set(const QString& name, const QString& value);
    QString fieldError(const QString& name) const { return m_fieldErrors.value(name); }

    bool canApply() const;
    bool canUndo() const;
    void apply();
    void undo();

    bool busy() const { return m_busy; }
    void setBusy(bool busy);

    // The engine's answer to applyRequested.
    void applied(bool ok, const QString& message);

  Q_SIGNALS:
    void changed();
    void applyRequested(const granary::Settings& settings);

  private:
    void replan();
    void request(const Settings& settings);

    bool m_loaded = false, m_busy = false, m_waiting = false, m_applying = false;
    bool m_undoing = false, m_outcomeBad = false, m_expecting = false;
    Settings m_running, m_edited, m_requested;
    PlanFunction m_planFunction;
    std::optional<Plan> m_runningPlan, m_plan;
    QString m_planError, m_outcome;
    QMap<QString, QString> m_fieldErrors;
    std::vector<Settings> m_before;  // applied settings, the latest last
};

}  // namespace granary::gui
