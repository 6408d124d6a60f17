package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// The sorts of notices about a shift.
const (
	NoticeStart   = "start"
	NoticeEnd     = "end"
	NoticeEvening = "evening"
)

// Turn is the time in which one person is on call in one schedule without a break, whoever else is and by whichever layers.
type Turn struct {
	Schedule, User string
	Start, End     time.Time // zero: since ever, for ever
}

// Overlaps says that two spans of time have an instant in common.
func (t Turn) Overlaps(start, end time.Time) bool {
	return (end.IsZero() || t.Start.Before(end)) && (t.End.IsZero() || start.Before(t.End))
}

// maxShifts bounds the search for a turn's beginning and end over the changes of those who share it.
const maxShifts = 200

// Turns are the turns of a schedule that overlap [from, until), in order of their starts.
func Turns(s oncall.Schedule, from, until time.Time) []Turn {
	var all []Turn
	open := map[string]int{} // user: where their turn stands in all, while it goes on
	shifts := s.Shifts(from, until)
	for i, shift := range shifts {
		for u := range open {
			if !slices.Contains(shift.Users, u) || i > 0 && !shifts[i-1].End.Equal(shift.Start) {
				delete(open, u)
			}
		}
		for _, u := range shift.Users {
			if at, goesOn := open[u]; goesOn {
				all[at].End = shift.End
				continue
			}
			open[u] = len(all)
			all = append(all, Turn{Schedule: s.ID, User: u, Start: shift.Start, End: shift.End})
		}
	}
	for i := range all {
		all[i].Start, all[i].End = edge(s, all[i], true), edge(s, all[i], false)
	}
	slices.SortStableFunc(all, func(a, b Turn) int { return a.Start.Compare(b.Start) })
	return all
}

// edge is where a turn begins or ends, also outside of the time that was looked at.
func edge(s oncall.Schedule, t Turn, begin bool) time.Time {
	at := t.End
	if begin {
		at = t.Start
	}
	for range maxShifts {
		if at.IsZero() {
			return at
		}
		look := at
		if begin {
			look = at.Add(-1)
		}
		shift, covered := s.At(look)
		if !covered || !slices.Contains(shift.Users, t.User) {
			return at
		}
		if at = shift.End; begin {
			at = shift.Start
		}
	}
	return at
}

// Notice is something to tell a person about a shift of theirs.
type Notice struct {
	Turn
	What string    // start, end, evening
	At   time.Time // of what it tells: the turn's start or end
	Due  time.Time
}

// ShiftNotices are the notices of a schedule that are due in (after, until]. A person's quiet hours put one off; one that they put off for
// longer than it lives is none.
func ShiftNotices(f *config.File, s oncall.Schedule, after, until time.Time, lives time.Duration) []Notice {
	want := f.Notices[s.ID]
	var all []Notice
	add := func(t Turn, what string, at, due time.Time) {
		u, known := user(f, t.User)
		if !known || at.IsZero() {
			return
		}
		asked := due
		if u.Quiet != nil && u.Quiet.Active(due) {
			if due = u.Quiet.Over(due); due.IsZero() || !due.Before(asked.Add(lives)) {
				return
			}
		}
		if due.After(after) && !due.After(until) {
			all = append(all, Notice{Turn: t, What: what, At: at, Due: due})
		}
	}
	const evening = 2 * 24 * time.Hour // what starts later has its evening later
	for _, t := range Turns(s, after.Add(-lives), until.Add(evening)) {
		if want.Start {
			add(t, NoticeStart, t.Start, t.Start)
		}
		if want.End {
			add(t, NoticeEnd, t.End, t.End)
		}
		if u, ok := user(f, t.User); ok && want.Evening && !t.Start.IsZero() {
			if due := oncall.DayBefore(t.Start, want.EveningAt, u.Zone(s.Zone)); due.Before(t.Start) {
				add(t, NoticeEvening, t.Start, due)
			}
		}
	}
	return all
}

// Told is what a notice says.
func (n Notice) Told(f *config.File, s oncall.Schedule) (title, text string) {
	u, _ := user(f, n.User)
	zone := u.Zone(s.Zone)
	name := s.Name
	if name == "" {
		name = s.ID
	}
	clock := func(t time.Time) string { return t.In(zone).Format("Mon 2 Jan 15:04 MST") }
	until := "."
	if !n.End.IsZero() {
		until = " until " + clock(n.End) + "."
	}
	switch n.What {
	case NoticeEvening:
		return "Your shift starts soon: " + name, fmt.Sprintf("You are on call for %s from %s%s", name, clock(n.Start), until)
	case NoticeEnd:
		text = fmt.Sprintf("You were on call for %s until %s.", name, clock(n.At))
		if next := namesAt(f, s, n.At); next != "" {
			return "Your shift has ended: " + name, text + " On call now: " + next + "."
		}
		return "Your shift has ended: " + name, text + " Nobody is on call now."
	}
	return "Your shift has started: " + name, fmt.Sprintf("You are on call for %s%s", name, until)
}

// namesAt are the names of those who are on call.
func namesAt(f *config.File, s oncall.Schedule, at time.Time) string {
	shift, _ := s.At(at)
	var names []string
	for _, id := range shift.Users {
		name := id
		if u, ok := user(f, id); ok && u.Name != "" {
			name = u.Name
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// QuietWay is the notifier by which something that is not urgent reaches a person: the first of their ways that leads somewhere.
func QuietWay(f *config.File, accounts []Account, userID string, now time.Time) (string, bool) {
	u, known := user(f, userID)
	if !known {
		return "", false
	}
	for _, c := range u.Contacts {
		if c.Urgency == "high" {
			continue
		}
		if n := f.Notifiers[c.Via]; n.Type != "slack" && n.Type != "telegram" {
			continue // a notice is for people to read
		}
		if _, err := Resolve(f, accounts, c.Via, "user:"+userID, now); err == nil || LookedUp(err) {
			return c.Via, true
		}
	}
	return "", false
}
