package oncall

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxEvery bounds a rotation's length in its own unit, so that no arithmetic on it can overflow.
const maxEvery = 10000

// units are the calendar units a rotation may count in.
var units = []string{"hour", "day", "week", "month"}

// ParseEvery reads a rotation's length: a whole number and hours, days, weeks or months, as in "12 hours" or "1 week".
func ParseEvery(s string) (Every, error) {
	bad := func(why string) (Every, error) {
		return Every{}, fmt.Errorf("%q is no rotation length: %s; write for example 12 hours, 1 day, 2 weeks or 1 month", s, why)
	}
	parts := strings.Fields(strings.ToLower(s))
	if len(parts) != 2 {
		return bad("a number and a unit are wanted")
	}
	n, err := strconv.Atoi(parts[0])
	if err != nil {
		return bad(fmt.Sprintf("%q is not a whole number", parts[0]))
	}
	if n < 1 || n > maxEvery {
		return bad(fmt.Sprintf("the number must be from 1 to %d", maxEvery))
	}
	for _, unit := range units {
		if parts[1] == unit || parts[1] == unit+"s" {
			return Every{N: n, Unit: unit}, nil
		}
	}
	return bad(fmt.Sprintf("%q is not a unit", parts[1]))
}

// String is the length as people write it: "1 week", "12 hours".
func (e Every) String() string {
	if e.N == 1 {
		return "1 " + e.Unit
	}
	return strconv.Itoa(e.N) + " " + e.Unit + "s"
}

// handoff is the wall clock at which turn k begins, counted from 0 at start. Wall clocks are carried as UTC times
// whose fields are those of the clock on the wall; months that lack start's day take their last one.
func (e Every) handoff(start time.Time, k int) time.Time {
	year, month, day := start.Date()
	hour, minute, sec := start.Clock()
	switch e.Unit {
	case "hour":
		hour += k * e.N
	case "day":
		day += k * e.N
	case "week":
		day += k * e.N * 7
	case "month":
		month += time.Month(k * e.N)
		last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		day = min(day, last)
	}
	return time.Date(year, month, day, hour, minute, sec, start.Nanosecond(), time.UTC)
}

// turn is the last turn that has begun when the wall clock shows wall, which is not before start.
func (e Every) turn(start, wall time.Time) int {
	seconds := wall.Unix() - start.Unix() // not Sub: a Duration ends after 292 years
	switch e.Unit {
	case "hour":
		return int(seconds / int64(e.N*3600))
	case "day":
		return int(seconds / int64(e.N*86400))
	case "week":
		return int(seconds / int64(e.N*7*86400))
	}
	k := ((wall.Year()-start.Year())*12 + int(wall.Month()-start.Month())) / e.N
	if e.handoff(start, k).After(wall) {
		k--
	}
	return k
}
