package oncall_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	_ "pgregory.net/rapid" // its flags

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// oracle walks through time minute by minute with the clocks on the walls in view, and hands off whenever a wall reaches
// the next hand-off: the definition of a schedule, without any search or arithmetic on zones. All wall clocks that the
// test draws, and all changes of the zones since 2011, are whole minutes.
type oracle struct {
	schedule oncall.Schedule
	layers   []*walker
	walls    map[*time.Location]time.Time // the latest each wall has shown: in the second pass of an hour it stands still
}

type walker struct {
	oncall.Layer
	open [7 * 1440]bool // the minutes of the week, from Sunday on, in which its window is open
	turn int
	next time.Time // the wall clock at which the turn ends
	had  int       // turns before this one that somebody had
}

// answer is who is on call and why.
type answer struct {
	users           string
	layer, override string
}

// newOracle prepares to walk from anywhere: the turns until then are gone through one by one.
func newOracle(s oncall.Schedule) *oracle {
	o := &oracle{schedule: s, walls: map[*time.Location]time.Time{}}
	for _, l := range s.Layers {
		w := &walker{Layer: l, next: plainHandoff(l, 1)}
		for d := range 7 {
			for m := range 1440 {
				if a := l.Active; a == nil || a.Days[d] && m >= a.From && (m < a.Until || a.Until <= a.From) || a.Until <= a.From && a.Days[(d+6)%7] && m < a.Until {
					w.open[d*1440+m] = true
				}
			}
		}
		o.layers = append(o.layers, w)
	}
	return o
}

// wall is the latest that the zone's wall has shown up to the minute t.
func (o *oracle) wall(t time.Time, zone *time.Location) time.Time {
	highest := o.walls[zone]
	_, offset := t.In(zone).Zone()
	if shown := t.Add(time.Duration(offset) * time.Second); shown.After(highest) {
		o.walls[zone] = shown
		return shown
	}
	return highest
}

// minuteOfWeek counts from Sunday; 1970 began with a Thursday.
func minuteOfWeek(wall time.Time) int {
	return int((wall.Unix()/60 + 4*1440) % (7 * 1440))
}

// anyone says that the window is open in some minute of the turn.
func (w *walker) anyone(from, until time.Time) bool {
	if until.Sub(from) >= 7*24*time.Hour {
		return slices.Contains(w.open[:], true)
	}
	for m := minuteOfWeek(from); from.Before(until); from, m = from.Add(time.Minute), m+1 {
		if w.open[m%len(w.open)] {
			return true
		}
	}
	return false
}

// step moves to the minute t and says who is on call.
func (o *oracle) step(t time.Time) answer {
	var a answer
	var users []string
	for _, w := range o.layers {
		zone := w.Zone
		if zone == nil {
			zone = o.schedule.Zone
		}
		wall := o.wall(t, zone)
		for w.Every.N > 0 && !w.next.After(wall) {
			if !w.SkipInactive || w.anyone(plainHandoff(w.Layer, w.turn), w.next) {
				w.had++
			}
			w.turn++
			w.next = plainHandoff(w.Layer, w.turn+1)
		}
		open := true
		if w.Active != nil {
			open = w.open[minuteOfWeek(o.wall(t, w.Active.Zone))]
		}
		if open && !w.Start.After(wall) && (w.End.IsZero() || w.End.After(wall)) {
			users, a.layer = w.Users[w.had%len(w.Users)], w.Name
		}
	}
	for _, v := range o.schedule.Overrides {
		if t.Before(v.Start) || !t.Before(v.End) {
			continue
		}
		switch {
		case v.Instead == "" && (v.Add || len(users) > 0):
			users = []string{v.User}
		case v.Instead != "" && v.User != v.Instead && slices.Contains(users, v.Instead):
			var now []string
			for _, u := range users {
				switch {
				case u == v.Instead && !slices.Contains(users, v.User):
					now = append(now, v.User)
				case u != v.Instead:
					now = append(now, u)
				}
			}
			users = now
		default:
			continue
		}
		a.layer, a.override = oncall.ByOverride, v.ID
	}
	if a.users = crew(users); a.users == "" {
		return answer{}
	}
	return a
}

// crew is the people of a shift in one word.
func crew(users []string) string {
	if len(users) == 1 {
		return users[0]
	}
	return strings.Join(users, "+")
}

func answerOf(s oncall.Shift) answer {
	return answer{crew(s.Users), s.Layer, s.Override}
}

func plainHandoff(l oncall.Layer, k int) time.Time {
	n := k * l.Every.N
	switch l.Every.Unit {
	case "hour":
		return l.Start.Add(time.Duration(n) * time.Hour)
	case "day":
		return l.Start.AddDate(0, 0, n)
	case "week":
		return l.Start.AddDate(0, 0, 7*n)
	}
	first := time.Date(l.Start.Year(), l.Start.Month(), 1, l.Start.Hour(), l.Start.Minute(), 0, 0, time.UTC).AddDate(0, n, 0)
	for day := l.Start.Day(); ; day-- {
		if at := first.AddDate(0, 0, day-1); at.Month() == first.Month() {
			return at
		}
	}
}

// Half-hour and quarter-hour zones, one whose clocks change by half an hour, ones that change four times in a year, ones
// that change at midnight, one that skipped a whole day (30 December 2011), and ordinary ones of both hemispheres.
var zones = []string{
	"Australia/Lord_Howe", "Europe/London", "America/New_York", "Asia/Kolkata", "Europe/Berlin", "America/St_Johns", "Pacific/Apia",
	"Africa/Casablanca", "America/Sao_Paulo", "Pacific/Chatham", "Africa/Cairo", "Asia/Beirut", "Antarctica/Troll", "UTC",
}

var lengths = []oncall.Every{
	{N: 1, Unit: "hour"}, {N: 2, Unit: "hour"}, {N: 5, Unit: "hour"}, {N: 12, Unit: "hour"}, {N: 1, Unit: "day"}, {N: 1, Unit: "day"},
	{N: 3, Unit: "day"}, {N: 1, Unit: "week"}, {N: 2, Unit: "week"}, {N: 1, Unit: "month"}, {N: 3, Unit: "month"},
}

// dice draws evenly, which rapid's generators do not: what is rare among schedules must be drawn often enough.
type dice struct{ *rand.Rand }

// one in n.
func (d dice) one(n int) bool { return d.IntN(n) == 0 }

// between is a number from low to high.
func (d dice) between(low, high int) int { return low + d.IntN(high-low+1) }

func pick[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

func (d dice) zone() *time.Location {
	zone, err := time.LoadLocation(pick(d, zones))
	if err != nil {
		panic(err)
	}
	return zone
}

// minute is a minute of the day, half of the time one that changes of the clocks touch.
func (d dice) minute() int {
	if d.one(2) {
		return pick(d, []int{0, 1, 30, 60, 75, 90, 105, 119, 120, 121, 135, 150, 165, 179, 180, 181, 23 * 60, 1439})
	}
	return d.IntN(1440)
}

func (d dice) layer(s oncall.Schedule, name string, from time.Time, days int) oncall.Layer {
	l := oncall.Layer{Name: name, Every: pick(d, lengths)}
	for range d.between(1, 4) {
		l.Users = append(l.Users, pick(d, [][]string{{"ana"}, {"bo"}, {"cho"}, {"ana", "bo"}}))
	}
	// It began some days before what is looked at or within it, or at any time of the ten years before.
	ago := d.between(-days/2, 30)
	if d.one(3) {
		ago = d.IntN(3650)
	}
	l.Start = from.AddDate(0, 0, -ago).Add(time.Duration(d.minute()) * time.Minute)
	if d.one(4) {
		l.End = from.AddDate(0, 0, d.between(-5, days+5)).Add(time.Duration(d.minute()) * time.Minute)
	}
	zone := s.Zone
	if d.one(4) {
		l.Zone = d.zone()
		zone = l.Zone
	}
	if d.one(2) {
		w := &oncall.Window{Zone: zone, From: d.minute(), Until: d.minute()}
		switch {
		case w.From == w.Until:
			w.From, w.Until = 0, 1440
		case w.Until == 0 && d.one(2):
			w.Until = 1440
		}
		for i := range w.Days {
			w.Days[i] = !d.one(4)
		}
		w.Days[d.IntN(7)] = true
		if l.SkipInactive = d.one(2); !l.SkipInactive && d.one(4) {
			w.Zone = d.zone()
		}
		l.Active = w
	}
	return l
}

func (d dice) override(id string, from time.Time, days int) oncall.Override {
	v := oncall.Override{ID: id, User: pick(d, []string{"ana", "bo", "dee"})}
	switch d.IntN(3) {
	case 1:
		v.Add = true
	case 2:
		v.Instead = pick(d, []string{"ana", "bo", "cho"})
	}
	v.Start = from.Add(time.Duration(d.between(-3*1440, days*1440)) * time.Minute)
	v.End = v.Start.Add(time.Duration(d.between(-10, 10*1440)) * time.Minute)
	return v
}

// askedOfEach is how many instants are asked of each schedule: 2,000 of 100 schedules, unless -rapid.checks says more.
const askedOfEach = 2000

// flags are those of rapid, by which `make test` begins at one place and `make fuzz` looks further: where to begin and how
// many schedules to make.
func flags(t *testing.T) (seed uint64, checks int) {
	t.Helper()
	seed, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if checks, err = strconv.Atoi(flag.Lookup("rapid.checks").Value.String()); err != nil {
		t.Fatal(err)
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any number does
	}
	return seed, checks
}

// Cases D13 and D14: whatever the schedule, the zone and the year.
func TestScheduleAgreesWithAWalkMinuteByMinute(t *testing.T) {
	t.Parallel()
	seed, checks := flags(t)
	const shares = 4 // for the machine's processors
	for share := range shares {
		t.Run(strconv.Itoa(share), func(t *testing.T) {
			t.Parallel()
			for n := share; n < checks; n += shares {
				compare(t, seed, n)
			}
		})
	}
}

// compare asks one random schedule and walks through it.
func compare(t *testing.T, seed uint64, n int) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("schedule %d of -rapid.seed=%d: "+format, append([]any{n, seed}, args...)...)
	}
	d := dice{rand.New(rand.NewPCG(seed, uint64(n)))} //nolint:gosec // schedules, not secrets
	s := oncall.Schedule{Zone: d.zone()}
	days := d.between(5, 25)
	from := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, d.IntN(3653))
	var change time.Time
	switch d.IntN(8) {
	case 0: // the day that Samoa skipped
		from = time.Date(2011, 12, 20, 0, 0, 0, 0, time.UTC)
	case 1, 2, 3, 4: // just before the zone's clocks change
		if _, change = from.In(s.Zone).ZoneBounds(); !change.IsZero() && change.Year() < 2027 {
			from, days = change.UTC().Truncate(24*time.Hour).AddDate(0, 0, -2), 5
		}
	}
	until := from.AddDate(0, 0, days)
	for i := range d.between(1, 3) {
		s.Layers = append(s.Layers, d.layer(s, fmt.Sprintf("layer %d", i), from, days))
	}
	for i := range d.IntN(5) {
		s.Overrides = append(s.Overrides, d.override(fmt.Sprintf("override %d", i), from, days))
	}

	// What the walk finds, minute by minute, from three days before: a wall may stand still at the beginning.
	o, minutes := newOracle(s), make([]answer, 0, days*1440)
	load := map[string]time.Duration{}
	for at := from.AddDate(0, 0, -3); at.Before(until); at = at.Add(time.Minute) {
		if a := o.step(at); !at.Before(from) {
			minutes = append(minutes, a)
		}
	}
	walked := func(at time.Time) answer { return minutes[int(at.Sub(from)/time.Minute)] }

	for range askedOfEach {
		at := from.Add(time.Duration(d.Int64N(int64(until.Sub(from)))))
		if near := change.Add(time.Duration(d.between(-180, 180)) * time.Minute); d.one(2) && near.After(from) && near.Before(until) {
			at = near
		}
		shift, on := s.At(at)
		want := walked(at)
		if answerOf(shift) != want || on != (want.users != "") {
			fail("%s (%s): At says %v, the walk says %v", at, at.In(s.Zone), shift, want)
		}
		if at.Before(shift.Start) || !shift.End.IsZero() && !at.Before(shift.End) {
			fail("At(%s) is the shift %v", at, shift)
		}
		if before := shift.Start.Add(-1); shift.Start.After(from) && (walked(shift.Start) != want || walked(before) == want) {
			fail("At(%s): %v begins at %s; the walk says %v before and %v then", at, want, shift.Start, walked(before), walked(shift.Start))
		}
		if !shift.End.IsZero() && shift.End.Before(until) && (walked(shift.End) == want || walked(shift.End.Add(-1)) != want) {
			fail("At(%s): %v ends at %s; the walk says %v until then and %v after", at, want, shift.End, walked(shift.End.Add(-1)), walked(shift.End))
		}
	}

	// Shifts and gaps share the time between them, and each minute has its person.
	all := append(s.Shifts(from, until), s.Gaps(from, until)...)
	slices.SortFunc(all, func(a, b oncall.Shift) int { return a.Start.Compare(b.Start) })
	for i, shift := range all {
		if i > 0 && !all[i-1].End.Equal(shift.Start) {
			fail("between %v and %v there is something", all[i-1], shift)
		}
		for at := latest(shift.Start, from); at.Before(until) && (shift.End.IsZero() || at.Before(shift.End)); at = at.Add(time.Minute) {
			if walked(at) != answerOf(shift) {
				fail("%s: the list says %v, the walk says %v", at, shift, walked(at))
			}
			for _, u := range shift.Users {
				load[u] += time.Minute
			}
		}
	}
	if len(all) == 0 || all[0].Start.After(from) || !all[len(all)-1].End.IsZero() && all[len(all)-1].End.Before(until) {
		fail("the list does not cover the time: %v", all)
	}
	for _, l := range s.Load(from, until) {
		if load[l.User] != l.Time {
			fail("%s is on call for %s, the walk says %s", l.User, l.Time, load[l.User])
		}
		delete(load, l.User)
	}
	if len(load) > 0 {
		fail("no load is told of %v", load)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
