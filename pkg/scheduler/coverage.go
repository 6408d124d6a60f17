package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// coverageAhead is how far ahead gaps are looked for.
const coverageAhead = 7 * 24 * time.Hour

// Coverage makes gaps of schedules loud while there is time: one alert a schedule, which resolves when it is covered. A gap is told
// of once, by whichever replica sees it first; those with the newest file speak, as of who is on call.
func (s *Scheduler) Coverage(ctx context.Context) (bool, error) {
	f := s.o.File()
	var raised []intake.Result
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		raised = nil
		newest, err := tx.NewestFile(ctx, Alive)
		if err != nil || newest != "" && newest != f.Checksum {
			return err
		}
		told, err := tx.GapsTold(ctx)
		if err != nil {
			return fmt.Errorf("read the gaps that were told of: %w", err)
		}
		overrides, err := tx.OverridesFrom(ctx, tx.Now())
		if err != nil {
			return err
		}
		gaps := map[string]oncall.Shift{}
		for _, sch := range f.WithOverrides(overrides).Schedules {
			if gap, ok := firstGap(sch, tx.Now()); ok {
				gaps[sch.ID] = gap
			}
		}
		for _, id := range inOrder(told) {
			if _, still := gaps[id]; !still {
				if err := tx.ForgetGap(ctx, id); err != nil {
					return err
				}
			}
		}
		for _, id := range inOrder(gaps) { // one order on all replicas: these incidents are locked
			begins := gaps[id].Start
			if begins.IsZero() {
				begins = time.Unix(0, 0)
			}
			if before, known := told[id]; known && before.Equal(begins) {
				continue
			}
			if first, err := tx.TellGap(ctx, id, begins); err != nil || !first {
				if err != nil {
					return err
				}
				continue
			}
			sch, _ := f.Schedule(id)
			r, err := s.o.Intake.SelfAlert(ctx, tx, uncovered(sch, gaps[id], tx.Now()))
			if err != nil {
				return err
			}
			raised = append(raised, r)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for gaps of the schedules: %w", err)
	}
	s.o.Intake.Committed(raised...)
	return false, nil
}

// firstGap is the first gap of a schedule in the coming days. None where gaps are meant.
func firstGap(sch oncall.Schedule, now time.Time) (oncall.Shift, bool) {
	for t, end := now, now.Add(coverageAhead); !sch.Partial && t.Before(end); {
		shift, covered := sch.At(t)
		if !covered {
			return shift, true
		}
		if shift.End.IsZero() {
			break
		}
		t = shift.End
	}
	return oncall.Shift{}, false
}

// uncovered is the self-alert about a schedule with a gap ahead.
func uncovered(sch oncall.Schedule, gap oncall.Shift, now time.Time) intake.Self {
	const clock = "Mon 2006-01-02 15:04 -07:00"
	when := "from " + gap.Start.Format(clock)
	if !gap.Start.After(now) {
		when = "now"
	}
	if gap.End.IsZero() {
		when += ", without an end"
	} else {
		when += " until " + gap.End.Format(clock)
	}
	text := fmt.Sprintf("Pages for it reach nobody in that time. Put somebody on call with `tocsin schedules override %s --add`, or add a layer; `tocsin schedules gaps %s` lists what is open. "+
		"Where gaps are meant, give the schedule `coverage: partial`. This alert resolves when the next seven days are covered.", sch.ID, sch.ID)
	labels := map[string]string{labelSchedule: sch.ID}
	if sch.Owner != "" {
		labels["owner"] = sch.Owner
	}
	return intake.Self{
		Kind: intake.SelfCoverageGap, Criticality: "warning", About: sch.ID, Title: fmt.Sprintf("Nobody is on call for %s %s", sch.Name, when), Text: text, Labels: labels,
	}
}

// labelSchedule names the schedule that a self-alert is about.
const labelSchedule = "schedule"
