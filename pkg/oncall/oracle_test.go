package oncall_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// tick is how finely the oracle looks. All generated wall clocks and all zone offsets are multiples of it; the moment of
// a change need not be: St. John's changed its clocks a minute after midnight until 2011, and what was due in the hour
// left out then begins between two ticks.
const tick = 15 * time.Minute

// oracle walks through time tick by tick with the clock on the wall in view, and hands off whenever the wall reaches
// the next hand-off: the definition of a rotation, without any search or arithmetic on zones.
type oracle struct {
	layers []*walker
}

type walker struct {
	layer   oncall.Layer
	begun   bool
	ended   bool
	turn    int
	highest time.Time // the latest wall clock seen: in the second pass of an hour the first pass's hand-offs are done
}

func newOracle(s oncall.Schedule) *oracle {
	o := &oracle{}
	for _, l := range s.Layers {
		o.layers = append(o.layers, &walker{layer: l})
	}
	return o
}

// step moves to t and says whose turn it is.
func (o *oracle) step(t time.Time, zone *time.Location) (users []string, layer string) {
	local := t.In(zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
	for _, w := range o.layers {
		if wall.After(w.highest) {
			w.highest = wall
		}
		w.begun = w.begun || !w.layer.Start.After(w.highest)
		w.ended = w.ended || !w.layer.End.IsZero() && !w.layer.End.After(w.highest)
		for w.begun && !plainHandoff(w.layer, w.turn+1).After(w.highest) {
			w.turn++
		}
		if turn := w.layer.Users[w.turn%len(w.layer.Users)]; w.begun && !w.ended {
			users, layer = turn, w.layer.Name
		}
	}
	return users, layer
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

var zones = []string{
	"Australia/Lord_Howe", "Europe/London", "America/New_York", "Asia/Kolkata", "Europe/Berlin", "America/St_Johns",
	"Pacific/Apia", "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Chatham", "Europe/Dublin", "UTC",
}

func drawLayer(t *rapid.T, name string, base time.Time) oncall.Layer {
	people := rapid.SampledFrom([][]string{{"ana"}, {"bo"}, {"cho"}, {"ana", "bo"}})
	l := oncall.Layer{
		Name:  name,
		Users: rapid.SliceOfN(people, 1, 4).Draw(t, name+" users"),
		Every: rapid.SampledFrom([]oncall.Every{
			{N: 1, Unit: "hour"}, {N: 2, Unit: "hour"}, {N: 5, Unit: "hour"}, {N: 12, Unit: "hour"}, {N: 1, Unit: "day"},
			{N: 3, Unit: "day"}, {N: 1, Unit: "week"}, {N: 2, Unit: "week"}, {N: 1, Unit: "month"}, {N: 3, Unit: "month"},
		}).Draw(t, name+" every"),
		Start: base.Add(time.Duration(rapid.IntRange(0, 40*96).Draw(t, name+" start")) * tick),
	}
	if rapid.Bool().Draw(t, name+" ends") {
		l.End = l.Start.Add(time.Duration(rapid.IntRange(-96, 200*96).Draw(t, name+" length")) * tick)
	}
	return l
}

// changes says that the zone's offset changes at t.
func changes(zone *time.Location, t time.Time) bool {
	_, before := t.Add(-time.Second).In(zone).Zone()
	_, after := t.In(zone).Zone()
	return before != after
}

func TestAtAndShiftsAgreeWithAWalkThroughTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		// 2011 has the day that Samoa skipped; the others have ordinary changes and leap days.
		base := time.Date(rapid.SampledFrom([]int{2011, 2016, 2023, 2026}).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
		s := oncall.Schedule{Zone: zone}
		for i := range rapid.IntRange(1, 3).Draw(t, "layers") {
			s.Layers = append(s.Layers, drawLayer(t, fmt.Sprintf("layer %d", i), base))
		}
		from, until := base.Add(-48*time.Hour), base.AddDate(0, 5, 0)
		shifts := s.Shifts(from, until)
		o, n, steps := newOracle(s), 0, 0
		var lastUsers []string
		var lastLayer string
		for at := from; at.Before(until); at = at.Add(tick) {
			users, layer := o.step(at, zone)
			for n < len(shifts) && !shifts[n].End.IsZero() && !at.Before(shifts[n].End) {
				n++
			}
			listed := n < len(shifts) && !at.Before(shifts[n].Start)
			if listed != (users != nil) || listed && (!slices.Equal(shifts[n].Users, users) || shifts[n].Layer != layer) {
				t.Fatalf("%s (%s): Shifts says %v, the walk says %v by %q", at, at.In(zone), shifts[min(n, len(shifts)-1):], users, layer)
			}
			// At is asked at each change, just before it, and now and then.
			changed := !slices.Equal(users, lastUsers) || layer != lastLayer
			lastUsers, lastLayer = users, layer
			if steps++; !changed && steps%23 != 0 {
				continue
			}
			got, ok := s.At(at)
			if ok != listed || ok && (!slices.Equal(got.Users, users) || got.Layer != layer || got.Start != shifts[n].Start || got.End != shifts[n].End) {
				t.Fatalf("%s (%s): At says %v, the walk says %v by %q", at, at.In(zone), got, users, layer)
			}
			if late := at.Sub(got.Start); changed && at.After(from) && (late < 0 || late >= tick || late > 0 && !changes(zone, got.Start)) {
				t.Fatalf("the walk hands off at %s, At at %s", at, got.Start)
			}
		}
		for i := 1; i < len(shifts); i++ {
			a, b := shifts[i-1], shifts[i]
			if a.End.After(b.Start) {
				t.Fatalf("shifts overlap: %v and %v", a, b)
			}
			if a.End.Equal(b.Start) && a.Layer == b.Layer && slices.Equal(a.Users, b.Users) {
				t.Fatalf("one shift is listed as two: %v and %v", a, b)
			}
		}
	})
}
