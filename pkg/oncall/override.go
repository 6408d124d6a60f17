package oncall

import (
	"slices"
	"time"
)

// ByOverride is the layer of a shift that an override made.
const ByOverride = "override"

// Override puts a person on call for a while, whatever the layers say. One that was made later goes before one that was
// made earlier.
type Override struct {
	ID         string
	User       string
	Instead    string // only this person is replaced, and only where they are on call; empty: everybody is
	Add        bool   // it covers gaps as well, else they stay gaps
	Start, End time.Time
}

// apply says who is on call where the override holds, and whether that is its doing.
func (o Override) apply(users []string) ([]string, bool) {
	switch {
	case o.Instead != "":
		i := slices.Index(users, o.Instead)
		if i < 0 || o.User == o.Instead {
			return users, false
		}
		users = slices.Clone(users)
		if slices.Contains(users, o.User) { // they share the shift already
			return slices.Delete(users, i, i+1), true
		}
		users[i] = o.User
		return users, true
	case len(users) == 0 && !o.Add:
		return users, false
	}
	return []string{o.User}, true
}

// Swap makes the overrides by which two shifts change hands: a's person, or the one that is named, takes b's time and the
// other way round. Only those two people move; whoever shares a shift with one of them stays.
func Swap(a Shift, userA string, b Shift, userB string) [2]Override {
	return [2]Override{
		{User: userB, Instead: userA, Start: a.Start, End: a.End},
		{User: userA, Instead: userB, Start: b.Start, End: b.End},
	}
}
