package oncall

import "time"

// Overlay is what the database lays over the schedules of the file.
type Overlay struct {
	Overrides map[string][]Override // by schedule, in the order in which they were made
	Calendars map[string]*Calendar  // by [Layer.Calendar]
}

// Calendar is what was read of a calendar that somebody else keeps: the last copy that could be understood. It is never
// changed once it is made, so whatever is computed of it may be kept beside it.
type Calendar struct {
	Events   []Event  // in order of their starts
	Problems []string // what in it could not be understood, for people
}

// Event is one span of a calendar, a recurrence of one included, and all that says whom it is about.
type Event struct {
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"` // exclusive
	Summary   string    `json:"summary,omitempty"`
	Invited   []string  `json:"invited,omitempty"` // e-mail addresses of those who have not declined
	Organizer string    `json:"organizer,omitempty"`
}

// Turn is a span of an imported layer, in which the same people are on call.
type Turn struct {
	Users      []string
	Start, End time.Time
	Overlap    bool // they are together by different events, somewhere in it
}

// Stray is an event that puts nobody on call, or somebody whom the file does not know as well.
type Stray struct {
	Event Event
	Who   []string // addresses that no user has; empty: it names nobody at all
	Lost  bool     // nobody is on call by it
}

// Imported makes the turns of a layer of a calendar's events. Where events overlap, the people of all of them are on call.
// What names somebody who is no user of the file is returned beside them: where nobody else is in it, the layer has nobody
// then, and those below it count.
func (c *Calendar) Imported(people []Person) ([]Turn, []Stray) {
	if c == nil {
		return nil, nil
	}
	find := newFinder(people)
	var turns []Turn
	var strays []Stray
	for _, e := range c.Events {
		users, unknown := find.who(e)
		if len(users) > 0 {
			turns = append(turns, Turn{Users: users, Start: e.Start, End: e.End})
		}
		if len(unknown) > 0 || len(users) == 0 {
			strays = append(strays, Stray{Event: e, Who: unknown, Lost: len(users) == 0})
		}
	}
	return apart(turns), strays
}

// Person is a user of the file as calendars may name one.
type Person struct{ ID, Name, Email string }
