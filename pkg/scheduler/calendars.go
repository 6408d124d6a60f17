package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/ical"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// The pace of imported calendars.
const (
	calendarEvery   = 5 * time.Minute            // from one fetch to the next
	calendarRetry   = time.Minute                // after a failure; doubles with each
	calendarWait    = 15 * time.Minute           // the longest after a failure, unless the far side asks for more
	calendarAsked   = time.Hour                  // the longest that it may ask for
	calendarLease   = ical.Timeout + time.Minute // how long one replica may take
	calendarAtOnce  = 4                          // of one replica
	calendarBehind  = 92 * 24 * time.Hour        // what is kept of the past
	calendarAhead   = 400 * 24 * time.Hour       // and of the time to come
	forgetCalendar  = 30 * 24 * time.Hour        // after no file has named it any more; an outage of all replicas may be as long
	calendarMessage = 1000                       // characters of what is kept of a failure
)

// Calendars fetches the calendars that the file imports, each by one replica at a time, and keeps the last good copy of each for all of
// them. A far side that is down changes nothing: the copy stays in force. What is not as it should be is told, once, by one replica.
func (s *Scheduler) Calendars(ctx context.Context) (bool, error) {
	f := s.o.File()
	if s.o.Calendar == nil || len(f.Calendars) == 0 && s.imported == f.Checksum {
		return false, nil
	}
	mark := f.Checksum
	ids := inOrder(f.Calendars)
	var due []store.Fetch
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) (err error) {
		due = nil
		if err := tx.ListCalendars(ctx, ids); err != nil {
			return err
		}
		due, err = tx.ClaimCalendars(ctx, ids, calendarLease, calendarAtOnce)
		return err
	}); err != nil {
		return false, fmt.Errorf("look which calendars are due: %w", err)
	}
	failed := make([]error, len(due))
	var all sync.WaitGroup
	for i, d := range due {
		all.Go(func() { failed[i] = s.fetch(ctx, f.Calendars[d.ID], d) })
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return false, fmt.Errorf("write what calendars say: %w", err)
	}
	spoke, err := s.tellCalendars(ctx, f)
	if err != nil {
		return false, fmt.Errorf("tell what is wrong with calendars: %w", err)
	}
	if spoke {
		s.imported = mark
	}
	return len(due) == calendarAtOnce, nil
}

// fetch fetches one calendar and writes what came of it. The far side is called outside of any transaction.
func (s *Scheduler) fetch(ctx context.Context, c config.Calendar, d store.Fetch) error {
	now, err := s.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	var cal *oncall.Calendar
	text, wrong := s.o.Calendar(ctx, c.URL)
	if wrong == nil {
		cal, wrong = oncall.ReadCalendar(text, c.Zone, zoneNamed, now.Add(-calendarBehind), now.Add(calendarAhead))
	}
	if err := ctx.Err(); err != nil {
		return err // stopping: it is fetched again when its lease is over
	}
	return s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		if wrong == nil {
			_, err := tx.PutCalendar(ctx, d, cal, calendarEvery)
			return err
		}
		again := min(calendarRetry<<min(d.Tries, 10), calendarWait)
		var failure *ical.Failure
		if errors.As(wrong, &failure) {
			again = max(again, min(failure.RetryAfter, calendarAsked))
		}
		_, err := tx.CalendarFailed(ctx, d, limit(wrong.Error(), calendarMessage), again)
		return err
	})
}

// zoneNamed finds a zone by its name; nil where there is none. The machine's own zone is nobody's name for one.
func zoneNamed(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil
	}
	return zone
}

// limit cuts a text.
func limit(s string, most int) string {
	if all := []rune(s); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return s
}

// tellCalendars raises an alert for each layer whose calendar is not as it should be, and tells the schedule's owner. It is told anew when it becomes
// something else; the alert resolves by itself when all is well. False: this replica's file is not the newest, and others speak.
func (s *Scheduler) tellCalendars(ctx context.Context, f *config.File) (bool, error) {
	var raised []intake.Result
	spoke := false
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		raised, spoke = nil, false
		newest, err := tx.NewestFile(ctx, Alive)
		if err != nil || newest != "" && newest != f.Checksum {
			return err
		}
		spoke = true
		states, err := tx.CalendarStates(ctx)
		if err != nil {
			return err
		}
		over, err := tx.OverridesFrom(ctx, tx.Now())
		if err != nil {
			return err
		}
		told, err := tx.CalendarsTold(ctx)
		if err != nil {
			return err
		}
		wrong := slices.DeleteFunc(plan.Calendars(f, store.PlannedCalendars(states), over, tx.Now()), func(c plan.CalendarLayer) bool { return len(c.Wrong) == 0 })
		for _, t := range told {
			if !slices.ContainsFunc(wrong, func(c plan.CalendarLayer) bool { return c.Schedule == t.Schedule && c.Layer == t.Layer }) {
				if err := tx.ForgetCalendar(ctx, t.Schedule, t.Layer); err != nil {
					return err
				}
			}
		}
		for _, c := range wrong { // in one order on all replicas: these incidents are locked
			first, err := tx.TellCalendar(ctx, store.CalendarTold{Schedule: c.Schedule, Layer: c.Layer, What: c.What()})
			if err != nil {
				return err
			}
			if !first {
				continue
			}
			self := calendarWrong(f, c)
			r, err := s.o.Intake.SelfAlert(ctx, tx, self)
			if err != nil {
				return err
			}
			raised = append(raised, r)
			if err := s.tellOwner(ctx, tx, f, c.Schedule, self); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	s.o.Intake.Committed(raised...)
	return spoke, nil
}

// labelLayer names the layer of a schedule that a self-alert is about.
const labelLayer = "layer"

// calendarWrong is the self-alert about a layer whose calendar is not as it should be.
func calendarWrong(f *config.File, c plan.CalendarLayer) intake.Self {
	sch, _ := f.Schedule(c.Schedule)
	labels := map[string]string{labelSchedule: c.Schedule, labelLayer: c.Layer}
	if sch.Owner != "" {
		labels["owner"] = sch.Owner
	}
	return intake.Self{
		Kind: intake.SelfCalendar, Criticality: "warning", About: c.Schedule + "/" + c.Layer,
		Title:  fmt.Sprintf("The calendar of %s, layer %s, is not as it should be", sch.Name, c.Layer),
		Text:   strings.Join(c.Sentences(), "\n") + "\nWhere the layer has nobody, the layers below it count. `tocsin oncall` says how it stands; this alert resolves when it is mended.",
		Labels: labels,
	}
}
