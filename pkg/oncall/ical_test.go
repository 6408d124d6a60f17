package oncall_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// calendarText is a calendar with these lines between its first and last.
func calendarText(lines ...string) string {
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//test//EN\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VCALENDAR\r\n"
}

// vevent is an event with a UID of its own unless one is among the lines.
func vevent(lines ...string) string {
	text := strings.Join(lines, "\r\n")
	if !strings.Contains(text, "UID:") {
		text += fmt.Sprintf("\r\nUID:%x", text)
	}
	return "BEGIN:VEVENT\r\n" + text + "\r\nEND:VEVENT"
}

func zoneNamed(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil
	}
	return z
}

// read reads a calendar in a zone from one wall clock to another.
func read(t *testing.T, text, zoneName, from, until string) *oncall.Calendar {
	t.Helper()
	z := zone(t, zoneName)
	c, err := oncall.ReadCalendar(text, z, zoneNamed, inZone(from, z), inZone(until, z))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// listed are the events of a calendar on the wall of a zone.
func listed(t *testing.T, c *oncall.Calendar, zoneName string) []string {
	t.Helper()
	var all []string
	for _, e := range c.Events {
		z := zone(t, zoneName)
		all = append(all, e.Start.In(z).Format("01-02 15:04 -07 ")+e.End.In(z).Format("01-02 15:04 -07 ")+e.Summary)
	}
	return all
}

func TestRecurringEventsGoByTheWall(t *testing.T) {
	t.Parallel()
	text := calendarText(
		vevent("SUMMARY:ana", "DTSTART;TZID=Europe/Berlin:20260309T090000", "DTEND;TZID=Europe/Berlin:20260316T090000", "RRULE:FREQ=WEEKLY;INTERVAL=2"),
		vevent("SUMMARY:bo", "DTSTART;TZID=Europe/Berlin:20260316T090000", "DURATION:P1W", "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"))
	same(t, listed(t, read(t, text, "UTC", "2026-03-20 00:00", "2026-04-07 00:00"), "Europe/Berlin"),
		"03-16 09:00 +01 03-23 09:00 +01 bo", "03-23 09:00 +01 03-30 09:00 +02 ana", "03-30 09:00 +02 04-06 09:00 +02 bo", "04-06 09:00 +02 04-13 09:00 +02 ana")
	same(t, listed(t, read(t, text, "UTC", "2026-10-20 00:00", "2026-10-27 00:00"), "Europe/Berlin"),
		"10-19 09:00 +02 10-26 09:00 +01 ana", "10-26 09:00 +01 11-02 09:00 +01 bo")
}

func TestHoursThatDoNotExistOrOccurTwice(t *testing.T) {
	t.Parallel()
	text := calendarText(vevent("SUMMARY:ana", "DTSTART;TZID=Europe/Berlin:20260101T023000", "DTEND;TZID=Europe/Berlin:20260101T060000", "RRULE:FREQ=DAILY"))
	same(t, listed(t, read(t, text, "UTC", "2026-03-29 00:00", "2026-03-30 00:00"), "Europe/Berlin"), "03-29 03:00 +02 03-29 06:00 +02 ana")
	same(t, listed(t, read(t, text, "UTC", "2026-10-25 00:00", "2026-10-26 00:00"), "Europe/Berlin"), "10-25 02:30 +02 10-25 06:00 +01 ana")
}

func TestDaysWithoutAnHour(t *testing.T) {
	t.Parallel()
	text := calendarText(
		vevent("SUMMARY:ana", "DTSTART;VALUE=DATE:20260327", "DTEND;VALUE=DATE:20260330"),
		vevent("SUMMARY:bo", "DTSTART;VALUE=DATE:20260330")) // one day
	same(t, listed(t, read(t, text, "Europe/Berlin", "2026-03-01 00:00", "2026-04-30 00:00"), "Europe/Berlin"),
		"03-27 00:00 +01 03-30 00:00 +02 ana", "03-30 00:00 +02 03-31 00:00 +02 bo")
	// The same days are other hours elsewhere.
	same(t, listed(t, read(t, text, "America/New_York", "2026-03-01 00:00", "2026-04-30 00:00"), "UTC"),
		"03-27 04:00 +00 03-30 04:00 +00 ana", "03-30 04:00 +00 03-31 04:00 +00 bo")
	// A midnight that a zone skips: the first instant after it.
	same(t, listed(t, read(t, calendarText(vevent("SUMMARY:cho", "DTSTART;VALUE=DATE:20260905", "RRULE:FREQ=DAILY;COUNT=3")), "America/Santiago", "2026-09-01 00:00", "2026-09-30 00:00"), "America/Santiago"),
		"09-05 00:00 -04 09-06 01:00 -03 cho", "09-06 01:00 -03 09-07 00:00 -03 cho", "09-07 00:00 -03 09-08 00:00 -03 cho")
}

func TestWhatHasNoZoneIsTheLayers(t *testing.T) {
	t.Parallel()
	text := calendarText(
		vevent("SUMMARY:floats", "DTSTART:20260105T090000", "DTEND:20260105T170000"),
		vevent("SUMMARY:utc", "DTSTART:20260106T090000Z", "DTEND:20260106T170000Z"),
		vevent("SUMMARY:tokyo", "DTSTART;TZID=Asia/Tokyo:20260107T090000", "DTEND;TZID=Europe/Berlin:20260107T170000"))
	same(t, listed(t, read(t, text, "Europe/Berlin", "2026-01-01 00:00", "2026-02-01 00:00"), "UTC"),
		"01-05 08:00 +00 01-05 16:00 +00 floats", "01-06 09:00 +00 01-06 17:00 +00 utc", "01-07 00:00 +00 01-07 16:00 +00 tokyo")
}

func TestExceptionsOfRecurrences(t *testing.T) {
	t.Parallel()
	text := calendarText(
		vevent("UID:a", "SUMMARY:ana", "DTSTART;TZID=Europe/Berlin:20260105T090000", "DTEND;TZID=Europe/Berlin:20260105T170000", "RRULE:FREQ=DAILY;UNTIL=20260113T080000Z",
			"EXDATE;TZID=Europe/Berlin:20260106T090000", "EXDATE:20260107T080000Z,20260108T080000Z", "EXDATE;VALUE=DATE:20260109", "RDATE;TZID=Europe/Berlin:20260120T090000"),
		vevent("UID:a", "SUMMARY:moved to bo", "RECURRENCE-ID;TZID=Europe/Berlin:20260110T090000", "DTSTART;TZID=Europe/Berlin:20260111T200000", "DTEND;TZID=Europe/Berlin:20260111T220000"),
		vevent("UID:a", "SUMMARY:off", "STATUS:CANCELLED", "RECURRENCE-ID:20260111T080000Z", "DTSTART;TZID=Europe/Berlin:20260111T090000", "DTEND;TZID=Europe/Berlin:20260111T170000"),
		vevent("UID:b", "SUMMARY:called off", "STATUS:CANCELLED", "DTSTART:20260105T090000Z", "DTEND:20260105T170000Z"))
	c := read(t, text, "UTC", "2026-01-01 00:00", "2026-02-01 00:00")
	same(t, listed(t, c, "Europe/Berlin"),
		"01-05 09:00 +01 01-05 17:00 +01 ana", "01-11 20:00 +01 01-11 22:00 +01 moved to bo", "01-12 09:00 +01 01-12 17:00 +01 ana",
		"01-13 09:00 +01 01-13 17:00 +01 ana", "01-20 09:00 +01 01-20 17:00 +01 ana")
	same(t, c.Problems)
}

// UNTIL is an instant where it ends with Z and belongs to what recurs, whatever the clocks have done since; a day counts whole.
func TestWhereRecurrencesEnd(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]int{
		"FREQ=DAILY;UNTIL=20260402T070000Z": 7, // 09:00 in Berlin's summer
		"FREQ=DAILY;UNTIL=20260402T065959Z": 6,
		"FREQ=DAILY;UNTIL=20260402T090000":  7,
		"FREQ=DAILY;UNTIL=20260402":         7,
		"FREQ=DAILY;COUNT=5;":               5,
		"freq=daily;count=5":                5,
		"FREQ=DAILY;UNTIL=20260301T000000Z": 0, // a series that was cut off before its first
	} {
		text := calendarText(vevent("SUMMARY:ana", "DTSTART;TZID=Europe/Berlin:20260327T090000", "DTEND;TZID=Europe/Berlin:20260327T100000", "RRULE:"+rule))
		if c := read(t, text, "UTC", "2026-03-01 00:00", "2026-05-01 00:00"); len(c.Events) != want {
			t.Errorf("%s: %d events, want %d: %q %q", rule, len(c.Events), want, listed(t, c, "Europe/Berlin"), c.Problems)
		}
	}
}

// outlook is how Outlook describes Europe/Berlin.
var outlook = strings.Join([]string{
	"BEGIN:VTIMEZONE", "TZID:W. Europe Standard Time",
	"BEGIN:STANDARD", "DTSTART:16010101T030000", "TZOFFSETFROM:+0200", "TZOFFSETTO:+0100", "RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10", "END:STANDARD",
	"BEGIN:DAYLIGHT", "DTSTART:16010101T020000", "TZOFFSETFROM:+0100", "TZOFFSETTO:+0200", "RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3", "END:DAYLIGHT",
	"END:VTIMEZONE",
}, "\r\n")

func TestZonesThatTheCalendarDescribes(t *testing.T) {
	t.Parallel()
	in := func(tzid string) []string {
		return listed(t, read(t, calendarText(outlook, vevent("SUMMARY:ana", "DTSTART;TZID="+tzid+":20260105T023000", "DTEND;TZID="+tzid+":20260105T190000", "RRULE:FREQ=DAILY")),
			"UTC", "2026-01-01 00:00", "2027-01-30 00:00"), "UTC")
	}
	own, known := in(`"W. Europe Standard Time"`), in("Europe/Berlin")
	if len(own) < 380 {
		t.Fatalf("%d events", len(own))
	}
	same(t, own, known...)
	// One whose clocks never change, and one that is not described.
	fixed := "BEGIN:VTIMEZONE\r\nTZID:odd\r\nBEGIN:STANDARD\r\nDTSTART:19700101T000000\r\nTZOFFSETFROM:-0330\r\nTZOFFSETTO:-0330\r\nEND:STANDARD\r\nEND:VTIMEZONE"
	c := read(t, calendarText(fixed, vevent("SUMMARY:a", "DTSTART;TZID=odd:20260105T090000", "DURATION:PT1H30M"), vevent("SUMMARY:b", "DTSTART;TZID=other:20260105T090000", "DURATION:PT1H")), "UTC", "2026-01-01 00:00", "2026-02-01 00:00")
	same(t, listed(t, c, "UTC"), "01-05 12:30 +00 01-05 14:00 +00 a")
	same(t, c.Problems, `the event "b" of 20260105T090000: its DTSTART can't be read: the zone "other" is unknown, and the calendar does not describe it`)
}

func TestWhatIsNoWholeCalendarIsNotBelieved(t *testing.T) {
	t.Parallel()
	whole := calendarText(vevent("SUMMARY:ana", "DTSTART:20260105T090000Z", "DTEND:20260105T170000Z"), vevent("SUMMARY:bo", "DTSTART:20260106T090000Z", "DTEND:20260106T170000Z"))
	if c := read(t, "\ufeff"+strings.ReplaceAll(whole, "\r\n", "\n")+"\n", "UTC", "2026-01-01 00:00", "2026-02-01 00:00"); len(c.Events) != 2 {
		t.Errorf("%d events", len(c.Events))
	}
	for cut := range len(whole) - 2 { // the last line may lack its end
		if c, err := oncall.ReadCalendar(whole[:cut], time.UTC, zoneNamed, wall("2026-01-01 00:00"), wall("2026-02-01 00:00")); err == nil {
			t.Fatalf("cut after %d bytes it is taken: %+v", cut, c)
		}
	}
	for text, want := range map[string]string{
		"<!doctype html><html>sign in": `what came is no calendar: it begins with "<!doctype html><html"`,
		"":                             `what came is no calendar: it begins with ""`,
		whole[:len(whole)/2]:           "the calendar is cut off: END:VCALENDAR is not its last line",
		whole[:len(whole)/2] + "\r\nEND:VCALENDAR": "the calendar can't be read: ",
		whole + whole:               "the calendar can't be read: ",
		calendarText("no property"): "the calendar can't be read: ",
	} {
		if _, err := oncall.ReadCalendar(text, time.UTC, zoneNamed, wall("2026-01-01 00:00"), wall("2026-02-01 00:00")); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text[:min(len(text), 40)], err, want)
		}
	}
}

func TestWhatIsWrongWithAnEventIsSaidAndTheOthersCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  string
		count int // that count all the same
	}{
		{[]string{"SUMMARY:x"}, `the event "x": it has no DTSTART`, 0},
		{[]string{"DTSTART:20260105T090000Z"}, `an event without a title of 20260105T090000Z: it has no end, or one that is not after its start`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DTEND:20260105T080000Z"}, `the event "x" of 20260105T090000Z: it has no end, or one that is not after its start`, 0},
		{[]string{"SUMMARY:x", "DTSTART:tomorrow", "DTEND:20260105T080000Z"}, `the event "x" of tomorrow: its DTSTART can't be read: "tomorrow" is no date and time`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:-PT1H"}, `the event "x" of 20260105T090000Z: its DURATION can't be read: "-PT1H" is no duration`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=5"},
			`the event "x" of 20260105T090000Z: its rule FREQ=HOURLY;INTERVAL=24;BYHOUR=5 can't be followed: it repeats within a day; write events that repeat daily`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=-1"}, `the event "x" of 20260105T090000Z: its rule FREQ=DAILY;COUNT=-1 can't be followed: COUNT is negative`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY;BYDAY=30MO"}, `the event "x" of 20260105T090000Z: its rule FREQ=MONTHLY;BYDAY=30MO can't be followed: it makes no sense`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY;BYDAY=2TU;BYSETPOS=2"}, `its rule FREQ=MONTHLY;BYDAY=2TU;BYSETPOS=2 can't be followed: it gives no day at all`, 0},
		{[]string{"SUMMARY:x", "DTSTART:00000105T090000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY"}, `its DTSTART can't be read: "00000105T090000Z" is no date and time`, 0},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=3", "EXDATE:never"}, `the event "x" of 20260105T090000Z: its EXDATE can't be read: "never" is no date and time`, 3},
		{[]string{"SUMMARY:x", "DTSTART:20260105T090000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=3", "EXRULE:FREQ=DAILY"}, `its EXRULE counts for nothing`, 3},
		{[]string{"SUMMARY:x", "RECURRENCE-ID;RANGE=THISANDFUTURE:20260105T090000Z", "DTSTART:20260105T090000Z", "DURATION:PT1H"}, `it changes all recurrences from one on (RANGE)`, 1},
	} {
		got := read(t, calendarText(vevent(c.lines...), vevent("SUMMARY:good", "DTSTART:20260106T090000Z", "DTEND:20260106T170000Z")), "UTC", "2026-01-01 00:00", "2026-02-01 00:00")
		if len(got.Problems) != 1 || !strings.Contains(got.Problems[0], c.want) || len(got.Events) != c.count+1 {
			t.Errorf("%q: %d events, problems %q", c.lines, len(got.Events), got.Problems)
		}
	}
}

func TestCalendarsAreBounded(t *testing.T) {
	t.Parallel()
	daily := vevent("SUMMARY:x", "DTSTART:20200101T000000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY")
	rules := calendarText(strings.TrimSpace(strings.Repeat(daily+"\r\n", 1001)))
	if _, err := oncall.ReadCalendar(rules, time.UTC, zoneNamed, wall("2026-01-01 00:00"), wall("2026-01-02 00:00")); err == nil || err.Error() != "the calendar has more than 1000 events that recur" {
		t.Errorf("many rules: %v", err)
	}
	many := calendarText(strings.TrimSpace(strings.Repeat(daily+"\r\n", 30)))
	if _, err := oncall.ReadCalendar(many, time.UTC, zoneNamed, wall("2026-01-01 00:00"), wall("2027-01-02 00:00")); err == nil || err.Error() != "the calendar has more than 10000 events from 2026-01-01 to 2027-01-02" {
		t.Errorf("many events: %v", err)
	}
	var attendees strings.Builder
	for i := range 100 {
		fmt.Fprintf(&attendees, "ATTENDEE:mailto:p%d@example.com\r\n", i)
	}
	c := read(t, calendarText(vevent(attendees.String()+"SUMMARY:"+strings.Repeat("ö", 1000), "DTSTART:20260105T090000Z", "DTEND:20260105T170000Z")), "UTC", "2026-01-01 00:00", "2026-02-01 00:00")
	if e := c.Events[0]; len(e.Invited) != 50 || len([]rune(e.Summary)) != 200 {
		t.Errorf("%d invited, %d characters", len(e.Invited), len([]rune(e.Summary)))
	}
	barren := vevent("SUMMARY:x", "DTSTART:20200101T000000Z", "DURATION:PT1H", "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30")
	long := vevent("SUMMARY:x", "DTSTART:16010101T000000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11")
	for name, text := range map[string]string{"matches nothing": strings.TrimSpace(strings.Repeat(barren+"\r\n", 6)), "goes on": long} {
		if _, err := oncall.ReadCalendar(calendarText(text), time.UTC, zoneNamed, wall("2026-01-01 00:00"), wall("2027-01-02 00:00")); err == nil || !strings.HasPrefix(err.Error(), "the rules by which its events recur take too long to follow: ") {
			t.Errorf("a rule that %s: %v", name, err)
		}
	}
}

func FuzzReadCalendar(f *testing.F) {
	f.Add(calendarText(outlook, vevent("SUMMARY:ana\\, bo", "ATTENDEE;PARTSTAT=DECLINED:mailto:a@b.c", `DTSTART;TZID="W. Europe Standard Time":20260105T023000`, "DURATION:P1DT2H", "RRULE:FREQ=WEEKLY;BYDAY=MO,TU;COUNT=20", "EXDATE:20260107T080000Z")))
	f.Add(calendarText(vevent("DTSTART;VALUE=DATE:20260105", "RDATE:20260106,20260107", "RECURRENCE-ID:20260105")))
	f.Fuzz(func(t *testing.T, text string) {
		from, until := wall("2026-01-01 00:00"), wall("2027-01-01 00:00")
		c, err := oncall.ReadCalendar(text, time.UTC, zoneNamed, from, until)
		if err != nil {
			return
		}
		for i, e := range c.Events {
			if !e.Start.Before(e.End) || !e.End.After(from) || !e.Start.Before(until) || i > 0 && e.Start.Before(c.Events[i-1].Start) {
				t.Fatalf("%+v", e)
			}
		}
		for _, text := range append(c.Problems, "") {
			if strings.ContainsAny(text, "\x00\r\n") {
				t.Fatalf("%q", text)
			}
		}
	})
}
