// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/settings_draft.h"

namespace granary::gui {

namespace {

constexpr size_t kUndoSteps = 32;

}  // namespace

SettingsDraft::SettingsDraft(QObject* parent) : QObject(parent) {}

void SettingsDraft::load(const Settings& running, PlanFunction plan) {
    m_loaded = true;
    m_expecting = false;
    m_waiting = m_applying = m_undoing = m_outcomeBad = false;
    m_planFunction = std::move(plan);
    m_running = running;
    m_runningPlan.reset();
    if (const Result<Plan> now = m_planFunction(running)) {
        m_runningPlan = *now;
        // 0 stands for a number that the planner knows; with the number in its place, moving the
        // slider away and back leaves the draft as it was.
        if (m_running.max_context == 0) m_running.max_context = now->max_context;
    }
    m_edited = m_running;
    m_before.clear();
    m_fieldErrors.clear();
    m_outcome.clear();
    replan();
}

void SettingsDraft::setPlanner(PlanFunction plan) {
    if (!m_loaded) return;
    m_planFunction = std::move(plan);
    m_runningPlan.reset();
    if (const Result<Plan> now = m_planFunction(m_running)) m_runningPlan = *now;
    replan();
}

void SettingsDraft::clear() {
    m_loaded = m_waiting = m_applying = m_undoing = m_outcomeBad = m_expecting = false;
    m_planFunction = nullptr;
    m_running = m_edited = Settings();
    m_runningPlan.reset();
    m_plan.reset();
    m_planError.clear();
    m_outcome.clear();
    m_fieldErrors.clear();
    m_before.clear();
    Q_EMIT changed();
}

void SettingsDraft::expect(const Settings& settings) {
    clear();
    m_expecting = true;
    m_running = m_edited = settings;
    Q_EMIT changed();
}

SettingsDraft::State SettingsDraft::state() const {
    if (!m_loaded) return State::Empty;
    if (m_applying) return State::Applying;
    if (m_waiting) return State::Waiting;
    if (!m_fieldErrors.isEmpty()) return State::Refused;
    if (m_edited == m_running) return State::Clean;
    return m_plan || isElsewhere() ? State::Edited : State::Refused;
}

bool SettingsDraft::onCard() const {
    if (!m_loaded) return false;
    if (isElsewhere()) return m_edited.device != "host" || m_edited.vram_budget > 0;
    if (m_plan) return m_plan->card;
    // Of a refused budget: on the processor it decides, a GPU is a card in any case.
    return m_edited.vram_budget > 0 ||
           (m_runningPlan && m_runningPlan->card && m_runningPlan->settings.vram_budget == 0);
}

QString SettingsDraft::refusal() const {
    if (!m_fieldErrors.isEmpty()) return m_fieldErrors.first();
    return m_edited == m_running ? QString() : m_planError;
}

void SettingsDraft::replan() {
    m_plan.reset();
    m_planError.clear();
    if (isElsewhere()) {
        Q_EMIT changed();
        return;
    }
    if (const Result<Plan> plan = m_planFunction(m_edited))
        m_plan = *plan;
    else
        m_planError = QString::fromStdString(plan.error().message());
    Q_EMIT changed();
}

void SettingsDraft::edit(const Settings& settings) {
    if (!m_loaded || settings == m_edited) return;
    m_edited = settings;
    m_waiting = false;  // what would be applied is no longer what was asked for
    m_outcome.clear();
    replan();
}

Result<void> SettingsDraft::set(const QString& name, const QString& value) {
    if (!m_loaded)
        return fail(ErrorKind::invalid_argument, "No model is loaded, so no setting can change");
    Settings settings = m_edited;
    const Result<void> read = settings.set(name.toStdString(), value.toStdString());
    if (!read) {
        m_fieldErrors.insert(name, QString::fromStdString(read.error().message()));
        m_waiting = false;
        Q_EMIT changed();
        return read;
    }
    const bool hadError = m_fieldErrors.remove(name) > 0;
    if (settings != m_edited)
        edit(settings);
    else if (hadError)
        Q_EMIT changed();
    return {};
}

bool SettingsDraft::canApply() const {
    return state() == State::Edited;
}

bool SettingsDraft::canUndo() const {
    switch (state()) {
        case State::Empty:
        case State::Applying:
            return false;
        case State::Clean:
            return !m_before.empty() && !m_busy;
        default:
            return true;
    }
}

void SettingsDraft::apply() {
    if (!canApply()) return;
    if (m_busy) {
        m_waiting = true;
        Q_EMIT changed();
        return;
    }
    request(m_edited);
}

void SettingsDraft::request(const Settings& settings) {
    m_waiting = false;
    m_applying = true;
    m_requested = settings;
    m_outcome.clear();
    Q_EMIT changed();
    Q_EMIT applyRequested(settings);
}

void SettingsDraft::undo() {
    if (!canUndo()) return;
    if (m_waiting || m_edited != m_running || !m_fieldErrors.isEmpty()) {
        m_waiting = false;
        m_fieldErrors.clear();
        m_outcome.clear();
        m_edited = m_running;
        replan();
        return;
    }
    m_undoing = true;
    m_edited = m_before.back();
    replan();
    request(m_edited);
}

void SettingsDraft::setBusy(bool busy) {
    if (busy == m_busy) return;
    m_busy = busy;
    if (!busy && m_waiting)
        request(m_edited);
    else
        Q_EMIT changed();
}

void SettingsDraft::applied(bool ok, const QString& message) {
    if (!m_applying) return;
    m_applying = false;
    m_outcomeBad = !ok;
    if (ok) {
        if (m_undoing) {
            m_before.pop_back();
        } else {
            m_before.push_back(m_running);
            if (m_before.size() > kUndoSteps) m_before.erase(m_before.begin());
        }
        m_running = m_requested;
        m_runningPlan.reset();
        if (const Result<Plan> now = m_planFunction(m_running)) m_runningPlan = *now;
        m_outcome = message.isEmpty() ? tr("Applied.") : message;
    } else {
        if (m_undoing) m_edited = m_running;
        m_outcome = tr("Nothing changed, the settings before go on: %1").arg(message);
    }
    m_undoing = false;
    replan();
}

}  // namespace granary::gui
